"""The condition of a filter as a tree of values.

`filters.py` parses a user's text to it, and `truth_values` evaluates it on whole columns. Nulls follow SQL's
three-valued logic: a comparison with null is null, `not` of null is null, and a row passes only if the condition is
true.
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


class InList(NamedTuple):
    field: str
    values: pa.Array


class IsNull(NamedTuple):
    """True if the field is null."""

    field: str


class Not(NamedTuple):
    inner: "Condition"


class And(NamedTuple):
    parts: tuple["Condition", ...]


class Or(NamedTuple):
    parts: tuple["Condition", ...]


Condition = Union[Comparison, InList, IsNull, Not, And, Or]  # noqa: UP007 - the parts refer to it by a string


def condition_fields(condition: Condition) -> frozenset[str]:
    """Returns the fields that the condition reads."""
    return frozenset(_fields_of(condition))


def truth_values(condition: Condition, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Returns true, false or null for each row."""
    match condition:
        case Comparison(field, operator, value):
            return COMPARISONS[operator](columns[field], value)
        case InList(field, values):
            # Arrow's is_in gives false for a null, and `not in` would make it true. SQL wants null for both.
            column = columns[field]
            return pc.if_else(column.is_valid(), pc.is_in(column, value_set=values), pa.scalar(None, pa.bool_()))
        case IsNull(field):
            return columns[field].is_null()
        case Not(inner):
            return pc.invert(truth_values(inner, columns))
        case And(parts):
            return reduce(pc.and_kleene, (truth_values(part, columns) for part in parts))
        case Or(parts):
            return reduce(pc.or_kleene, (truth_values(part, columns) for part in parts))


def _fields_of(condition: Condition) -> Iterator[str]:
    match condition:
        case Not(inner):
            yield from _fields_of(inner)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _fields_of(part)
        case _:
            yield condition.field
