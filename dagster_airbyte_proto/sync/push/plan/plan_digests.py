"""Digests of what a plan is made by: two plans of the same rows differ where one of these does."""

import hashlib
import json
from collections.abc import Sequence

import pyarrow as pa

from dagster_airbyte_proto.connection import ConstantColumn, ExpressionColumn, PushOptions
from dagster_airbyte_proto.loads.plan_query import PlannedField
from dagster_airbyte_proto.model import TransformSpec
from dagster_airbyte_proto.transforms.transform_choice import described_transforms


def planned_fields(options: PushOptions) -> tuple[PlannedField, ...]:
    fields = []
    for name, mapped in (options.map or {}).items():
        if isinstance(mapped, ConstantColumn):
            fields.append(PlannedField(name, constant=mapped.value))
        elif isinstance(mapped, ExpressionColumn):
            fields.append(PlannedField(name, sql=mapped.sql))
        else:
            fields.append(PlannedField(name, column=mapped))
    return tuple(fields)


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


def mapping_of(options: PushOptions) -> str:
    """A digest of the mapping; empty without one."""
    return _digest(planned_fields(options)) if options.map else ""


def selection_of(options: PushOptions) -> str:
    """A digest of the table or query that rows are taken from, and of the mapping: rows that were planned by another
    one may have what the user has taken out since."""
    return _digest((options.table, options.sql, planned_fields(options)))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
