"""From a stream's JSON Schema (draft 7, as Airbyte uses it) to the columns of its table.

What a schema leaves open lands as JSON text: objects, unions, arrays of unknown items, anything unknown. Nothing here
fails on a schema that is odd; only a key or a cursor that the schema does not have is refused.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import FieldPath, PlannedStream, WriteMode
from dagster_airbyte_proto.schema.columns import METADATA, Column, Columns, Kind, ValueType
from dagster_airbyte_proto.schema.names import unique_names
from dagster_airbyte_proto.schema.shaping import SHAPING, named_fields, shaped

_Schema = Mapping[str, Any]
_UNKEYED = (WriteMode.APPEND, WriteMode.OVERWRITE)
_JSON = ValueType(Kind.JSON)
_STRING_FORMATS = {"date": Kind.DATE, "date-time": Kind.TIMESTAMP, "time": Kind.TIME}
_AIRBYTE_TYPES = {
    "timestamp_with_timezone": Kind.TIMESTAMP,
    "timestamp_without_timezone": Kind.LOCAL_TIMESTAMP,
    "time_with_timezone": Kind.TIME,
    "time_without_timezone": Kind.TIME,
    "integer": Kind.INTEGER,
    "big_integer": Kind.BIG_INTEGER,
}
# The protocol's version 1 refers to types by name instead of spelling them out.
_WELL_KNOWN = {
    "String": Kind.STRING,
    "BinaryData": Kind.BINARY,
    "Date": Kind.DATE,
    "TimestampWithTimezone": Kind.TIMESTAMP,
    "TimestampWithoutTimezone": Kind.LOCAL_TIMESTAMP,
    "TimeWithTimezone": Kind.TIME,
    "TimeWithoutTimezone": Kind.TIME,
    "Number": Kind.NUMBER,
    "Integer": Kind.INTEGER,
    "Boolean": Kind.BOOLEAN,
}
_DEEPEST_REFERENCE = 16


def table_columns(planned: PlannedStream) -> Columns:
    """The columns of the stream's table. Raises ConfigError for a key or cursor that the schema does not have."""
    root = planned.stream.json_schema
    planned = _with_what_is_needed(planned, root)
    properties = _properties(root, root)
    for path in (*planned.primary_key, *([planned.cursor] if planned.cursor else [])):
        _require(planned, root, path, "plan keys and cursor")
    for path in named_fields(planned):
        _require(planned, root, path, SHAPING)
    names = unique_names(((name, name) for name in properties), taken=METADATA.names)
    top = [
        Column(name, (source,), value_type(schema, root), _comment(schema))
        for name, (source, schema) in zip(names, properties.items(), strict=True)
    ]
    by_path = {column.path: column for column in top}
    nested = _key_columns(planned, {*METADATA.names, *names})
    by_path.update({column.path: column for column in nested})
    keys = tuple(by_path[path].name for path in planned.primary_key)
    for path in planned.primary_key:
        if by_path[path].type.depth:
            raise ConfigError("plan the keys", f"{'.'.join(path)} is an array, and no key", stream=str(planned.id))
    return shaped(Columns((*top, *nested), keys, planned.cursor), planned)


def value_type(schema: Any, root: _Schema) -> ValueType:
    """What the values of a (sub)schema are."""
    schema = _resolved(schema, root)
    known = _WELL_KNOWN.get(str(schema.get("$ref", "")).rpartition("/")[2])
    if known is not None:
        return ValueType(known)
    for union in ("oneOf", "anyOf"):
        if union in schema:
            alternatives = [one for one in schema[union] if _resolved(one, root).get("type") not in ("null", ["null"])]
            return value_type(alternatives[0], root) if len(alternatives) == 1 else _JSON
    match _types(schema):
        case ("string",):
            return ValueType(_string_kind(schema))
        case ("boolean",):
            return ValueType(Kind.BOOLEAN)
        case ("array",):
            return _array_type(schema, root)
        case ("integer",):
            return ValueType(_number_kind(schema, Kind.INTEGER))
        case ("number",) | ("integer", "number"):
            return ValueType(_number_kind(schema, Kind.NUMBER))
        case _:
            return _JSON


def _types(schema: _Schema) -> tuple[str, ...]:
    types = schema.get("type", ())
    return tuple(sorted({types} if isinstance(types, str) else {*map(str, types)} - {"null"}))


def _number_kind(schema: _Schema, plain: Kind) -> Kind:
    declared = _AIRBYTE_TYPES.get(str(schema.get("airbyte_type")), plain)
    return declared if declared in (Kind.INTEGER, Kind.BIG_INTEGER) else plain


def _string_kind(schema: _Schema) -> Kind:
    if schema.get("contentEncoding") == "base64":
        return Kind.BINARY
    by_format = _STRING_FORMATS.get(str(schema.get("format")), Kind.STRING)
    declared = _AIRBYTE_TYPES.get(str(schema.get("airbyte_type")), by_format)
    return by_format if declared is Kind.INTEGER else declared


def _array_type(schema: _Schema, root: _Schema) -> ValueType:
    items = schema.get("items")
    if not isinstance(items, Mapping) or not items:
        return _JSON
    item = value_type(items, root)
    return ValueType(item.kind, item.depth + 1)


def _resolved(schema: Any, root: _Schema) -> _Schema:
    for _ in range(_DEEPEST_REFERENCE):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        schema = root
        for step in reference[2:].split("/"):
            schema = schema.get(step.replace("~1", "/").replace("~0", "~"), {}) if isinstance(schema, Mapping) else {}
    return schema if isinstance(schema, Mapping) else {}


def _properties(schema: Any, root: _Schema) -> Mapping[str, Any]:
    properties = _resolved(schema, root).get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _comment(schema: Any) -> str:
    text = schema.get("description") if isinstance(schema, Mapping) else None
    return text if isinstance(text, str) else ""


def _at(root: _Schema, path: FieldPath) -> Any:
    schema: Any = root
    for step in path:
        schema = _properties(schema, root).get(step, {})
    return schema


def _with_what_is_needed(planned: PlannedStream, root: _Schema) -> PlannedStream:
    """Without a key or a cursor that the source names, and its schema does not have, where rows can do without: a key
    where they are not told apart, and any cursor, for they are ordered by when they were emitted too."""
    offered, key, cursor = planned.stream, planned.primary_key, planned.cursor
    needs_no_key = planned.write in _UNKEYED and key == offered.primary_key
    if needs_no_key and any(_undeclared(root, path) is not None for path in key):
        key = ()
    if cursor == offered.cursor and _undeclared(root, cursor) is not None:
        cursor = ()
    return msgspec.structs.replace(planned, primary_key=key, cursor=cursor)


def _require(planned: PlannedStream, root: _Schema, path: FieldPath, doing: str) -> None:
    depth = _undeclared(root, path)
    if depth is not None:
        raise ConfigError(
            doing,
            f"the schema has no field {'.'.join(path)}",
            remedy=_suggestion(path[depth], _properties(_at(root, path[:depth]), root)),
            stream=str(planned.id),
        )


def _undeclared(root: _Schema, path: FieldPath) -> int | None:
    """Which step of a path leads nowhere. An object that declares no properties may hold anything, a key too."""
    for depth, step in enumerate(path):
        known = _properties(_at(root, path[:depth]), root)
        if step in known:
            continue
        if depth and not known and value_type(_at(root, path[:depth]), root) == _JSON:
            return None
        return depth
    return None


def _suggestion(step: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(step, list(known), n=1, cutoff=0.0)
    return f"The nearest field is {near[0]}." if near else "The stream declares no fields."


def _key_columns(planned: PlannedStream, taken: Iterable[str]) -> list[Column]:
    paths = [path for path in planned.primary_key if len(path) > 1]
    names = unique_names(((f"_airbyte_key_{'_'.join(path)}", ".".join(path)) for path in paths), taken=taken)
    root = planned.stream.json_schema
    return [
        Column(name, path, value_type(_at(root, path), root), f"the key {'.'.join(path)}")
        for name, path in zip(names, paths, strict=True)
    ]
