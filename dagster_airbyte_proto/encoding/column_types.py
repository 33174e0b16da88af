"""Tells by the types of columns alone that all rows fit a JSON Schema, where it asks for no more than types.

Most destinations describe their rows so: names, types, which fields have to be there. What the columns prove needs no
look at a row, which is half of what it costs to send one. Anything else that a schema says (a pattern, a length, a
choice of schemas) proves nothing: then each row is held against it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

_NOTES: Final = frozenset(
    ("$schema", "$id", "id", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly")
)
"""The words of JSON Schema that ask for nothing."""
_OF_OBJECTS: Final = _NOTES | {"type", "properties", "required", "additionalProperties"}
_OF_VALUES: Final = _NOTES | {"type"}


class PlainSchema(NamedTuple):
    """A schema of objects that asks for types of members, and that some be there. A member without types may be any."""

    types: Mapping[str, frozenset[str] | None]
    required: frozenset[str]
    allows_others: bool

    def fits(self, rows: pa.RecordBatch, *, omits_nulls: bool) -> bool:
        """True if the columns prove that each row fits, once it is JSON."""
        there = frozenset(rows.schema.names)
        if self.required - there or not (self.allows_others or there <= self.types.keys()):
            return False
        return all(
            self._fits_column(name, column, omits_nulls=omits_nulls)
            for name, column in zip(rows.schema.names, rows.columns, strict=True)
        )

    def _fits_column(self, name: str, column: pa.Array, *, omits_nulls: bool) -> bool:
        if omits_nulls and column.null_count and name in self.required:
            return False
        types = self.types.get(name)
        if types is None:
            return True
        fits_nulls = omits_nulls or "null" in types or not column.null_count
        return fits_nulls and (column.null_count == len(column) or not _json_types(column.type).isdisjoint(types))


def plain_schema(schema: Mapping[str, Any]) -> PlainSchema | None:
    """Returns a schema that asks for types alone; None if it asks for more."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    others = schema.get("additionalProperties", True)
    is_plain = schema.keys() <= _OF_OBJECTS and "object" in _types(schema, "object") and isinstance(others, bool)
    if not is_plain or not isinstance(properties, Mapping) or not isinstance(required, list):
        return None
    types: dict[str, frozenset[str] | None] = {}
    for name, described in properties.items():
        if described is True:
            types[name] = None
        elif isinstance(described, Mapping) and described.keys() <= _OF_VALUES:
            types[name] = frozenset(_types(described)) if "type" in described else None
        else:
            return None
    return PlainSchema(types, frozenset(required), allows_others=others)


def _types(schema: Mapping[str, Any], default: str = "") -> list[str]:
    found = schema.get("type", default)
    return found if isinstance(found, list) else [found]


def _json_types(kind: pa.DataType) -> frozenset[str]:
    """The types of JSON Schema that each value of a column has. None for nested values, whose members count too, and
    for a dictionary, which may hold a null that the column does not count."""
    if pa.types.is_boolean(kind):
        return frozenset(("boolean",))
    if pa.types.is_integer(kind):
        return frozenset(("integer", "number"))
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return frozenset(("number",))
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if is_text or pa.types.is_temporal(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return frozenset(("string",))
    return frozenset()
