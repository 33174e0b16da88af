"""Digests of what a plan is made by: two plans of the same rows differ where one of these does."""

import hashlib
import json
from collections.abc import Sequence

import pyarrow as pa

from dagster_airbyte_proto.connection import ConstantColumn, ExpressionColumn, PushOptions
from dagster_airbyte_proto.loads.plan_query import PlannedField
from dagster_airbyte_proto.loads.push import PushPosition, SealedPlan
from dagster_airbyte_proto.model import TransformSpec
from dagster_airbyte_proto.transforms.transform_choice import described_transforms


def planned_fields(options: PushOptions, order: Sequence[str] = ()) -> tuple[PlannedField, ...]:
    """Returns the fields of the mapping: in this order, if they are the same ones.

    The hash of a row depends on their order, and a line that has moved in the file is no change of it.
    """
    fields = []
    for name, mapped in (options.map or {}).items():
        if isinstance(mapped, ConstantColumn):
            fields.append(PlannedField(name, constant=mapped.value))
        elif isinstance(mapped, ExpressionColumn):
            fields.append(PlannedField(name, sql=mapped.sql))
        else:
            fields.append(PlannedField(name, column=mapped))
    by_name = {field.name: field for field in fields}
    return tuple(by_name[name] for name in order) if by_name.keys() == set(order) else tuple(fields)


def fingerprint_of(options: PushOptions, fields: pa.Schema, specs: Sequence[TransformSpec]) -> str:
    """A digest of what the destination gets: another one means that rows have to be sent again."""
    described = {
        "fields": [(field.name, str(field.type)) for field in fields],
        "keys": options.key,
        "options": options.options,
        "nulls": options.nulls or "send",
        **({"transforms": described_transforms(specs)} if specs else {}),
    }
    return _digest(described)


def with_connectors(fingerprint: str, connectors: str, last: SealedPlan | None, position: PushPosition | None) -> str:
    """Returns the fingerprint of rows that transforms with these connectors make. It is the one without them until the
    last plan was made by others: earlier releases did not look at them, and an upgrade is to send no row again.

    `last` and `position` are None where all rows are sent.
    """
    if not connectors:
        return fingerprint
    marked = _digest((fingerprint, connectors))
    if last is not None and last.connectors not in ("", connectors):
        return marked
    if last is not None and last.fingerprint in (fingerprint, marked):
        return last.fingerprint
    return marked if position is not None and marked in position.basis else fingerprint


def mapping_of(fields: Sequence[PlannedField]) -> str:
    """A digest of the mapping; empty without one."""
    return _digest(fields) if fields else ""


def selection_of(options: PushOptions, fields: Sequence[PlannedField]) -> str:
    """A digest of the table or query that rows are taken from, and of the mapping: rows that were planned by another
    one may have what the user has taken out since."""
    return _digest((options.table, options.sql, fields))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
