"""Makes rows that fit the JSON Schema of an object with fields of its own: such a destination takes no others."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dagster_airbyte_proto.errors import ConnectorError

_FORMATS = {
    "email": "certify{n}@example.com",
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:00:00Z",
    "time": "12:00:00Z",
    "uri": "https://example.com/{n}",
    "uuid": "00000000-0000-4000-8000-{n:012}",
}
_MAX_DEPTH = 8
_MAX_TEXT = 100_000
_MAX_WHY = 300
# A schema may hold anything: no type of a value in it is sure, and Arrow takes no list of numbers and texts.
UNFIT = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, pa.ArrowException)


def fitting_rows(schema: Mapping[str, Any], start: int, count: int) -> pa.RecordBatch:
    """Rows with a value for each property, always the same for the same numbers. Whether they fit is for the schema to
    say: patterns and conditions are not followed. Raises ConnectorError if no rows can be made of it."""
    try:
        rows = [_object(schema, number, 0) for number in range(start, start + count)]
        return pa.RecordBatch.from_pylist(rows)
    except UNFIT as error:
        raise no_fitting_rows(str(error)) from error


def no_fitting_rows(why: str) -> ConnectorError:
    """The error where certify has no rows for an object."""
    why = why.partition("\n")[0][:_MAX_WHY]
    return ConnectorError("writing to the destination", f"certify has no rows that fit the schema of its object: {why}")


def _object(schema: Mapping[str, Any], number: int, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    declared = properties if isinstance(properties, Mapping) else {}
    return {name: _value(part, number, depth + 1) for name, part in declared.items() if isinstance(part, Mapping)}


def _value(schema: Mapping[str, Any], number: int, depth: int) -> Any:
    for word in ("const", "default"):
        if word in schema:
            return schema[word]
    for word in ("enum", "examples"):
        if isinstance(schema.get(word), list) and schema[word]:
            return schema[word][0]
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list) and schema[word] and depth < _MAX_DEPTH:
            return _value(schema[word][0], number, depth + 1)
    written = schema.get("type", "string")
    kinds = [kind for kind in (written if isinstance(written, list) else [written]) if kind != "null"]
    kind = kinds[0] if kinds else "null"
    if kind in ("integer", "number"):
        return max(number, int(schema.get("minimum", number)))
    if kind == "string":
        return _text(schema, number)
    if kind == "object":
        return _object(schema, number, depth) if depth < _MAX_DEPTH else {}
    return {"boolean": True, "array": []}.get(kind)


def _text(schema: Mapping[str, Any], number: int) -> str:
    if schema.get("minLength", 0) > _MAX_TEXT:
        raise ValueError(f"it wants texts of over {_MAX_TEXT:,} letters")
    text = _FORMATS.get(str(schema.get("format")), "certify {n}").format(n=number)
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", len(text))
    return text.ljust(shortest, "x")[: max(longest, shortest)]
