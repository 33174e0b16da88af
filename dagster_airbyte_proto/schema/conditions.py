"""What a filter asks of a row: values only, made of a user's text by `filters.py` and answered for whole columns here.

As in SQL, what is asked of a null is not known, `not` leaves it so, and a row is wanted only where the answer is yes.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import NamedTuple, Union

import pyarrow as pa
import pyarrow.compute as pc

COMPARISONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Comparison(NamedTuple):
    field: str
    operator: str
    value: pa.Scalar


class Membership(NamedTuple):
    field: str
    values: pa.Array


class Absence(NamedTuple):
    """The field is null."""

    field: str


class Negation(NamedTuple):
    inner: "Condition"


class Every(NamedTuple):
    parts: tuple["Condition", ...]


class Either(NamedTuple):
    parts: tuple["Condition", ...]


Condition = Union[Comparison, Membership, Absence, Negation, Every, Either]  # noqa: UP007 - its parts are named as text


def fields_of(condition: Condition) -> frozenset[str]:
    """The fields that must be known to answer it."""
    return frozenset(_fields_of(condition))


def answers(condition: Condition, columns: Mapping[str, pa.Array]) -> pa.Array:
    """For each row yes, no, or null."""
    match condition:
        case Comparison(field, operator, value):
            return COMPARISONS[operator](columns[field], value)
        case Membership(field, values):
            # Arrow says no of a null, whose opposite would be yes.
            column = columns[field]
            return pc.if_else(column.is_valid(), pc.is_in(column, value_set=values), pa.scalar(None, pa.bool_()))
        case Absence(field):
            return columns[field].is_null()
        case Negation(inner):
            return pc.invert(answers(inner, columns))
        case Every(parts):
            return reduce(pc.and_kleene, (answers(part, columns) for part in parts))
        case Either(parts):
            return reduce(pc.or_kleene, (answers(part, columns) for part in parts))


def _fields_of(condition: Condition) -> Iterator[str]:
    match condition:
        case Negation(inner):
            yield from _fields_of(inner)
        case Every(parts) | Either(parts):
            for part in parts:
                yield from _fields_of(part)
        case _:
            yield condition.field
