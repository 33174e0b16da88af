"""Makes rows that fit the JSON Schema of an object with fields of its own: such a destination takes no others."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_FORMATS = {
    "email": "certify{n}@example.com",
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:00:00Z",
    "time": "12:00:00Z",
    "uri": "https://example.com/{n}",
    "uuid": "00000000-0000-4000-8000-{n:012}",
}
_MAX_DEPTH = 8


def fitting_rows(schema: Mapping[str, Any], start: int, count: int) -> pa.RecordBatch:
    """Rows with a value for each property, always the same for the same numbers. Whether they fit is for the schema to
    say: patterns and conditions are not followed."""
    rows = [_object(schema, number, 0) for number in range(start, start + count)]
    return pa.RecordBatch.from_pylist(rows)


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
    text = _FORMATS.get(str(schema.get("format")), "certify {n}").format(n=number)
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", len(text))
    return text.ljust(shortest, "x")[: max(longest, shortest)]
