"""From a stream's JSON Schema (draft 7, as Airbyte uses it) to the columns of its table.

Nothing here fails on a schema that is odd; only a key or a cursor that the schema does not have is refused.

Where a schema declares no field at all, nobody knows what its records have: each lands whole, as JSON text in one
column. Its key and its cursor lie inside then, and so does what a user selects or excludes.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import FieldPath, PlannedStream, WriteMode
from dagster_airbyte_proto.schema.columns import (
    METADATA,
    SDC,
    SDC_DELETED_AT,
    WHOLE_RECORD,
    Column,
    Columns,
    Kind,
    ValueType,
    member_at,
)
from dagster_airbyte_proto.schema.names import LONGEST_COLUMN_BYTES, RESERVED_COLUMNS, column_name, folded, unique_names
from dagster_airbyte_proto.schema.shaping import SHAPING, named_fields, shaped
from dagster_airbyte_proto.schema.value_types import JSON, Schema, declared_properties, value_type

_UNKEYED = (WriteMode.APPEND, WriteMode.OVERWRITE)


def table_columns(planned: PlannedStream) -> Columns:
    """The columns of the stream's table. Raises ConfigError for a key or cursor that the schema does not have."""
    is_whole = not declared_properties(planned.stream.json_schema, planned.stream.json_schema)
    if is_whole:
        planned = _of_whole_records(planned)
    elif planned.sdc_columns:
        planned = _with_deletions(planned)
    root = planned.stream.json_schema
    planned = _with_what_is_needed(planned, root)
    properties = declared_properties(root, root)
    for path in (*planned.primary_key, *([planned.cursor] if planned.cursor else [])):
        _require(planned, root, path, "plan keys and cursor")
    for path in named_fields(planned):
        _require(planned, root, path[:1], SHAPING)
        # Of a struct, or a list of them, it is known by its type what there is to choose (`schema/members.py`).
        if value_type(_at(root, path[:1]), root, planned.types).kind is not Kind.STRUCT:
            _require(planned, root, path, SHAPING)
    names = unique_names(
        ((column_name(source), source) for source in properties),
        taken=(*METADATA.names, *RESERVED_COLUMNS),
        kept={_identity(kept.path): kept.name for kept in planned.names if len(kept.path) == 1},
        longest_bytes=LONGEST_COLUMN_BYTES,
        hands_on=True,
    )
    top = [
        Column(name, (source,), value_type(schema, root, planned.types), _comment(schema, source, name))
        for name, (source, schema) in zip(names, properties.items(), strict=True)
    ]
    by_path = {column.path: column for column in top}
    nested = _key_columns(planned, by_path, {*METADATA.names, *names})
    by_path.update({column.path: column for column in nested})
    keys = tuple(by_path[path].name for path in planned.primary_key)
    for path in planned.primary_key:
        kind = by_path[path].type
        if kind.depth or kind.kind in (Kind.STRUCT, Kind.VARIANT):
            what = "an array" if kind.depth else "an object"
            raise ConfigError("plan the keys", f"{'.'.join(path)} is {what}, and no key", stream=str(planned.id))
    made = shaped(Columns((*top, *nested), keys, planned.cursor, is_whole=is_whole), planned)
    _refuse_cursor(planned, made)
    return _with_sdc(made) if planned.sdc_columns else made


def _comment(schema: Any, source: str, name: str) -> str:
    """What the source says of a field, and what it calls it where the column has another name."""
    text = schema.get("description") if isinstance(schema, Mapping) else None
    own = "" if source == name else f"the source calls it {json.dumps(source, ensure_ascii=False)}"
    return "; ".join(part for part in (text if isinstance(text, str) else "", own) if part)


def _at(root: Schema, path: FieldPath) -> Any:
    schema: Any = root
    for step in path:
        schema = declared_properties(schema, root).get(step, {})
    return schema


def _with_what_is_needed(planned: PlannedStream, root: Schema) -> PlannedStream:
    """Without a key or a cursor that the source names, and its schema does not have, where rows can do without: a key
    where they are not told apart, and any cursor, for they are ordered by when they were emitted too."""
    offered, key, cursor = planned.stream, planned.primary_key, planned.cursor
    needs_no_key = planned.write in _UNKEYED and key == offered.primary_key
    if needs_no_key and any(_undeclared(root, path) is not None for path in key):
        key = ()
    if cursor == offered.cursor and _undeclared(root, cursor) is not None:
        cursor = ()
    return msgspec.structs.replace(planned, primary_key=key, cursor=cursor)


def _of_whole_records(planned: PlannedStream) -> PlannedStream:
    """The stream as if each record was one field that has all of it inside."""
    comment = "the record as it came: its source tells of no fields"
    schema = {"type": "object", "properties": {WHOLE_RECORD: {"description": comment}}}
    is_needed = planned.write not in _UNKEYED or planned.primary_key != planned.stream.primary_key
    return msgspec.structs.replace(
        planned,
        stream=msgspec.structs.replace(planned.stream, json_schema=schema),
        primary_key=tuple((WHOLE_RECORD, *path) for path in planned.primary_key) if is_needed else (),
        cursor=(WHOLE_RECORD, *planned.cursor) if planned.cursor else (),
    )


def _with_deletions(planned: PlannedStream) -> PlannedStream:
    """The stream as if it told of the field by which rows are deleted."""
    stream, shaping = planned.stream, planned.shaping
    if SDC_DELETED_AT in declared_properties(stream.json_schema, stream.json_schema):
        return planned
    properties = {
        **declared_properties(stream.json_schema, stream.json_schema),
        SDC_DELETED_AT: {"type": ["null", "string"], "format": "date-time"},
    }
    if shaping is not None and shaping.select:
        shaping = msgspec.structs.replace(shaping, select=(*shaping.select, (SDC_DELETED_AT,)))
    stream = msgspec.structs.replace(stream, json_schema={**stream.json_schema, "properties": properties})
    return msgspec.structs.replace(planned, stream=stream, shaping=shaping)


def _with_sdc(columns: Columns) -> Columns:
    """With those that no column of the stream, or of the user's making, is called like."""
    taken = {folded(column.name) for column in columns.all}
    return msgspec.structs.replace(columns, sdc=tuple(name for name in SDC.names if folded(name) not in taken))


def _require(planned: PlannedStream, root: Schema, path: FieldPath, doing: str) -> None:
    depth = _undeclared(root, path)
    if depth is not None:
        raise ConfigError(
            doing,
            f"the schema has no field {'.'.join(path)}",
            remedy=_suggestion(path[depth], declared_properties(_at(root, path[:depth]), root)),
            stream=str(planned.id),
        )


def _refuse_cursor(planned: PlannedStream, columns: Columns) -> None:
    """A VARIANT is not looked into again once it is made."""
    column = columns.order_column
    if planned.write not in _UNKEYED and column is not None and column.type.kind is Kind.VARIANT:
        cursor = ".".join(planned.cursor)
        found = f"the cursor is {cursor}, and {column.name} lands as a VARIANT, which has no order"
        remedy = "Add types: {objects: json} to the stream's options."
        raise ConfigError("plan the cursor", found, remedy=remedy, stream=str(planned.id))


def _undeclared(root: Schema, path: FieldPath) -> int | None:
    """Which step of a path leads nowhere. An object that declares no properties may hold anything, a key too."""
    for depth, step in enumerate(path):
        known = declared_properties(_at(root, path[:depth]), root)
        if step in known:
            continue
        if depth and not known and value_type(_at(root, path[:depth]), root) == JSON:
            return None
        return depth
    return None


def _suggestion(step: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(step, list(known), n=1, cutoff=0.0)
    return f"The nearest field is {near[0]}." if near else "The stream declares no fields."


def _identity(path: FieldPath) -> str:
    """A path in one piece: the name itself, for a field of the record's own."""
    return "\x1f".join(path)


def _key_columns(planned: PlannedStream, top: Mapping[FieldPath, Column], taken: Iterable[str]) -> list[Column]:
    paths = [path for path in planned.primary_key if len(path) > 1]
    names = unique_names(
        ((column_name(f"_airbyte_key_{'_'.join(path)}"), _identity(path)) for path in paths),
        taken=taken,
        kept={_identity(kept.path): kept.name for kept in planned.names if len(kept.path) > 1},
        longest_bytes=LONGEST_COLUMN_BYTES,
    )
    return [
        Column(name, path, _key_type(planned, top[path[:1]], path), f"the key {'.'.join(path)}")
        for name, path in zip(names, paths, strict=True)
    ]


def _key_type(planned: PlannedStream, owner: Column, path: FieldPath) -> ValueType:
    """As the struct has it that the key lies in; by the schema where the object is read as JSON text."""
    reached, beyond = member_at(owner.type, path[1:])
    root = planned.stream.json_schema
    return value_type(_at(root, path), root, planned.types) if beyond else reached
