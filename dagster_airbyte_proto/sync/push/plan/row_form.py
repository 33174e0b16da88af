"""The form in which rows are held against those delivered: what goes into the hash of each, and in which order.

- By their names, fields have one order. So `map`, the columns of a query and those of a table may come in any.
- Earlier releases hashed the fields in the order in which they came, and the delivered table has such hashes. A push
  that they began keeps their form, or it would send all rows once more. A fingerprint does not say of which order it
  is: so the position of such a push remembers its form from the first push on that this release makes.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from dagster_airbyte_proto.connection import ConstantColumn, ExpressionColumn, PushOptions
from dagster_airbyte_proto.loads.plan_query import PlannedField
from dagster_airbyte_proto.loads.push import PushPosition, RowForm, SealedPlan, push_basis
from dagster_airbyte_proto.model import TransformSpec
from dagster_airbyte_proto.transforms.transform_choice import described_transforms


class RowForms(NamedTuple):
    """The forms that rows of the same content may have: today's `own`, and the one of earlier releases. The digests of
    the mapping are empty without one."""

    own: RowForm
    earlier: RowForm
    mapping: str
    earlier_mapping: str

    def after(self, position: PushPosition | None) -> RowForm:
        """Returns the form in which rows are compared: that of the rows which were delivered up to a position."""
        if position is None:
            return self.own
        # Positions from before there was a basis do not say what they are of.
        return self.like(position.fingerprint or self.earlier.fingerprint, position.form) or self.own

    def like(self, fingerprint: str, form: RowForm | None) -> RowForm | None:
        """Returns the form of rows that were hashed with this fingerprint; None if their content is another."""
        known = (self.own, self.earlier) if form is None else (form,)
        fitting = (each for each in known if each.fingerprint == fingerprint and each.content == self.own.content)
        return next(fitting, None)

    def is_of(self, plan: SealedPlan) -> bool:
        """True if a plan sends what one of these forms is of, in whatever order."""
        return self.like(plan.fingerprint, plan.form) is not None

    def has_basis(self, options: PushOptions, form: RowForm, basis: str) -> bool:
        """True if a plan with this basis has the same mode, content and mapping."""
        mappings = (self.mapping, self.earlier_mapping)
        return basis in [push_basis(options.mode, form.fingerprint, mapping) for mapping in mappings]


def row_forms(options: PushOptions, given: pa.Schema, fields: pa.Schema, specs: Sequence[TransformSpec]) -> RowForms:
    """Returns the forms of rows with these fields. `given` are those before the transforms, of which a hash is."""
    content = _digest({**_described(options, sorted(_typed(fields)), specs), "order": "names"})
    own = RowForm(content, tuple(sorted(given.names)), content)
    earlier = RowForm(_digest(_described(options, _typed(fields), specs)), tuple(given.names), content)
    mapped = planned_fields(options)
    if not mapped:
        return RowForms(own, earlier, "", "")
    return RowForms(own, earlier, _digest(sorted(mapped, key=lambda each: each.name)), _digest(mapped))


def planned_fields(options: PushOptions) -> tuple[PlannedField, ...]:
    """Returns the fields of a mapping, in its order."""
    fields = []
    for name, mapped in (options.map or {}).items():
        if isinstance(mapped, ConstantColumn):
            fields.append(PlannedField(name, constant=mapped.value))
        elif isinstance(mapped, ExpressionColumn):
            fields.append(PlannedField(name, sql=mapped.sql))
        else:
            fields.append(PlannedField(name, column=mapped))
    return tuple(fields)


def _described(
    options: PushOptions, fields: Sequence[tuple[str, str]], specs: Sequence[TransformSpec]
) -> dict[str, Any]:
    """All that the destination gets. Its digest is in every hash, and in stored plans and positions: it has to stay."""
    return {
        "fields": fields,
        "keys": options.key,
        "options": options.options,
        "nulls": options.nulls or "send",
        **({"transforms": described_transforms(specs)} if specs else {}),
    }


def _typed(fields: pa.Schema) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in fields]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
