"""Derives the columns of a table from its stream's JSON Schema (draft 7, as Airbyte uses it).

- Nothing here fails on an odd schema. Only a key or a cursor that the schema does not declare is refused, and a key
  that is a list or a struct. Where the source itself names such a key, no setting is at fault (`source_key_fault`).
- A relayed stream about whose fields the user chose nothing is staged as one column of JSON text, and sent as it came,
  byte for byte. Any other is staged in columns as for a table, and only declared fields are sent; and of rows with keys
  the marks of those that are deleted, also where a tap does not declare them.
- If a schema declares no fields at all, each record lands whole, as JSON text in one column. Its key and cursor, and
  the fields that a user selects or excludes, are then inside of that column.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.json_references import branches_in, names_in
from dagster_airbyte_proto.model import DEDUPLICATING, FieldPath, PlannedStream, PushMode, RelayTarget, WriteMode
from dagster_airbyte_proto.schema.columns import (
    DELETION_FIELDS,
    METADATA,
    SDC,
    SDC_DELETED_AT,
    WHOLE_RECORD,
    Column,
    Columns,
    RecordForm,
    ValueKind,
    ValueType,
    member_at,
)
from dagster_airbyte_proto.schema.names import (
    MAX_COLUMN_NAME_BYTES,
    RESERVED_COLUMNS,
    case_folded,
    column_name,
    unique_names,
)
from dagster_airbyte_proto.schema.shaping import PLAN_COLUMNS, apply_shaping, named_fields
from dagster_airbyte_proto.schema.value_types import JSON, Schema, declared_properties, field_types, value_type

_UNKEYED_MODES = (WriteMode.APPEND, WriteMode.OVERWRITE)
_PLAN_KEYS = "planning the keys"
_ANOTHER_KEY = "Set another `primary_key`; of an object it may be a field: [[address, id]]."
_OR_NO_KEY = "Or use write: append or overwrite, which need no key."


def table_columns(planned: PlannedStream) -> Columns:
    """Returns the columns of the stream's table.

    Raises ConfigError for a key or cursor that the schema does not declare.
    """
    is_schemaless = not declared_properties(planned.stream.json_schema, planned.stream.json_schema)
    if is_schemaless:
        planned = _as_schemaless(planned)
    elif planned.sdc_columns:
        planned = _with_deletion_field(planned)
    root = planned.stream.json_schema
    planned = _without_unusable_keys(planned, root)
    properties = declared_properties(root, root)
    if (fault := _source_key_fault(planned, root)) is not None:
        raise fault
    for path in (*planned.primary_key, *([planned.cursor] if planned.cursor else [])):
        _check_declared(planned, root, path, "plan keys and cursor")
    for path in named_fields(planned):
        _check_declared(planned, root, path[:1], PLAN_COLUMNS)
        # For structs, and lists of structs, `schema/members.py` checks the rest of the path by their type.
        if value_type(_schema_at(root, path[:1]), root, planned.types).kind is not ValueKind.STRUCT:
            _check_declared(planned, root, path, PLAN_COLUMNS)
    names = unique_names(
        ((column_name(source, planned.naming), source) for source in properties),
        taken=(*METADATA.names, *RESERVED_COLUMNS),
        assigned={_identity(kept.path): kept.name for kept in planned.column_names if len(kept.path) == 1},
        max_bytes=MAX_COLUMN_NAME_BYTES,
        follow_case_changes=True,
    )
    top = [
        Column(name, (source,), kind, _comment(schema, source, name))
        for name, kind, (source, schema) in zip(
            names, field_types(properties, planned), properties.items(), strict=True
        )
    ]
    by_path = {column.path: column for column in top}
    nested = _key_columns(planned, by_path, {*METADATA.names, *names})
    by_path.update({column.path: column for column in nested})
    keys = tuple(by_path[path].name for path in planned.primary_key)
    for path in planned.primary_key:
        kind = by_path[path].type
        if not _is_single(kind):
            raise ConfigError(
                _PLAN_KEYS,
                _not_a_key(path, kind),
                remedy=_ANOTHER_KEY,
                stream=str(planned.id),
            )
    shaped_columns = apply_shaping(Columns((*top, *nested), keys, planned.cursor, is_schemaless=is_schemaless), planned)
    made = _with_sdc(shaped_columns) if planned.sdc_columns else shaped_columns
    if is_schemaless:
        return made
    if planned.relay is not None:
        return _with_sent_marks(_with_undeclared_marks(made, properties)) if _has_marks(planned.relay) else made
    removes_rows = planned.write in DEDUPLICATING and not planned.keeps_deleted
    return _with_undeclared_marks(made, properties) if removes_rows else made


def _comment(schema: Any, source: str, name: str) -> str:
    """Returns the source's description of a field, with the source's name if the column has another."""
    text = schema.get("description") if isinstance(schema, Mapping) else None
    own = "" if source == name else f"the source calls it {json.dumps(source, ensure_ascii=False)}"
    return "; ".join(part for part in (text if isinstance(text, str) else "", own) if part)


def _schema_at(root: Schema, path: FieldPath) -> Any:
    schema: Any = root
    for step in path:
        schema = declared_properties(schema, root).get(step, {})
    return schema


def _without_unusable_keys(planned: PlannedStream, root: Schema) -> PlannedStream:
    """Drops a key or cursor that the source names and its schema does not declare, if the table can do without it; a
    key also if it is a list or a struct.

    Write modes without a key need none. Any cursor can go, because rows are ordered by their time of emission too.
    """
    offered, key, cursor = planned.stream, planned.primary_key, planned.cursor
    needs_no_key = planned.write in _UNKEYED_MODES and key == offered.primary_key
    if needs_no_key and any(_undeclared_step(root, path) is not None for path in key):
        key = ()
    # The destination of a relay may need it.
    kinds = (value_type(_schema_at(root, path), root, planned.types) for path in key)
    if needs_no_key and planned.relay is None and not all(map(_is_single, kinds)):
        key = ()
    if cursor == offered.cursor and _undeclared_step(root, cursor) is not None:
        cursor = ()
    return msgspec.structs.replace(planned, primary_key=key, cursor=cursor)


def source_key_fault(planned: PlannedStream) -> ConfigError | None:
    """Returns the error of a stream that needs a key, and whose source names one that cannot be one.

    No setting is at fault then. The next catalog of the source may have another key.
    """
    root = planned.stream.json_schema
    if not declared_properties(root, root):
        return None
    return _source_key_fault(_without_unusable_keys(planned, root), root)


def _source_key_fault(planned: PlannedStream, root: Schema) -> ConfigError | None:
    if planned.is_key_configured or planned.primary_key != planned.stream.primary_key:
        return None
    for path in planned.primary_key:
        depth = _undeclared_step(root, path)
        kind = value_type(_schema_at(root, path), root, planned.types)
        if depth is not None:
            near = _suggestion(path[depth], declared_properties(_schema_at(root, path[:depth]), root))
            found = f"the schema has no field {'.'.join(path)}, which the source names as its key"
            remedy = f"{near} Set `primary_key` for the stream. {_OR_NO_KEY}"
            return ConfigError(_PLAN_KEYS, found, remedy=remedy, stream=str(planned.id))
        if not _is_single(kind):
            found = f"{_not_a_key(path, kind)}, and the source names it as one"
            return ConfigError(_PLAN_KEYS, found, remedy=f"{_ANOTHER_KEY} {_OR_NO_KEY}", stream=str(planned.id))
    return None


def _is_single(kind: ValueType) -> bool:
    """True for values that are neither lists nor structs, which cannot be keys."""
    return not kind.depth and kind.kind is not ValueKind.STRUCT


def _not_a_key(path: FieldPath, kind: ValueType) -> str:
    return f"{'.'.join(path)} is {'an array' if kind.depth else 'an object'}, which cannot be a key"


def _as_schemaless(planned: PlannedStream) -> PlannedStream:
    """Returns the stream as if each record had one field that holds all of it."""
    comment = "The whole record as JSON: the source declares no fields"
    schema = {"type": "object", "properties": {WHOLE_RECORD: {"description": comment}}}
    needs_key = planned.write not in _UNKEYED_MODES or planned.primary_key != planned.stream.primary_key
    return msgspec.structs.replace(
        planned,
        stream=msgspec.structs.replace(planned.stream, json_schema=schema),
        primary_key=tuple((WHOLE_RECORD, *path) for path in planned.primary_key) if needs_key else (),
        cursor=(WHOLE_RECORD, *planned.cursor) if planned.cursor else (),
    )


def _with_deletion_field(planned: PlannedStream) -> PlannedStream:
    """Returns the stream as if it declared the field that marks deleted rows."""
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
    """Adds the SDC columns whose names no other column has."""
    taken = {case_folded(column.name) for column in columns.all}
    return msgspec.structs.replace(columns, sdc=tuple(name for name in SDC.names if case_folded(name) not in taken))


def _with_undeclared_marks(columns: Columns, declared: Iterable[str]) -> Columns:
    """Adds the fields that mark deleted rows where the schema lacks them: taps send `_sdc_deleted_at` undeclared."""
    missing = _undeclared_marks(declared)
    taken = (column.name for column in (*columns.all, *columns.parsed_columns))
    names = unique_names(((field, field) for field in missing), taken=taken)
    # As text, which takes any value: Arrow's parser reads it at no cost where no record has the field.
    text = ValueType(ValueKind.STRING)
    marks = tuple(Column(name, (field,), text) for name, field in zip(names, missing, strict=True))
    return msgspec.structs.replace(columns, undeclared_marks=marks)


def _undeclared_marks(declared: Iterable[str]) -> list[str]:
    return sorted(set(DELETION_FIELDS).difference(declared))


def _has_marks(target: RelayTarget) -> bool:
    """True if the destination has one row of a key, so that it may remove one."""
    return bool(target.keys) and target.mode is not PushMode.APPEND


def _with_sent_marks(columns: Columns) -> Columns:
    """Returns the columns of a relay with the undeclared marks among what is sent: without its mark, the record of a
    deleted row would be one of a living row. Where the user calls another field so, that is the mark."""
    sent = tuple(mark for mark in columns.undeclared_marks if mark.name == mark.path[0])
    return msgspec.structs.replace(columns, sent_marks=sent)


def _check_declared(planned: PlannedStream, root: Schema, path: FieldPath, doing: str) -> None:
    depth = _undeclared_step(root, path)
    if depth is not None:
        raise ConfigError(
            doing,
            f"the schema has no field {'.'.join(path)}",
            remedy=_suggestion(path[depth], declared_properties(_schema_at(root, path[:depth]), root)),
            stream=str(planned.id),
        )


def _undeclared_step(root: Schema, path: FieldPath) -> int | None:
    """Returns the index of the first step of a path that is not declared.

    An object without declared properties may hold anything, a key too.
    """
    for depth, step in enumerate(path):
        known = declared_properties(_schema_at(root, path[:depth]), root)
        if step in known:
            continue
        if depth and not known and value_type(_schema_at(root, path[:depth]), root) == JSON:
            return None
        return depth
    return None


def _suggestion(step: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(step, list(known), n=1, cutoff=0.0)
    return f"The nearest field is {near[0]}." if near else "The stream declares no fields."


def _identity(path: FieldPath) -> str:
    """Returns a path as one string. For a top-level field that is its name."""
    return "\x1f".join(path)


def _key_columns(planned: PlannedStream, top: Mapping[FieldPath, Column], taken: Iterable[str]) -> list[Column]:
    paths = [path for path in planned.primary_key if len(path) > 1]
    names = unique_names(
        ((column_name(f"_airbyte_key_{'_'.join(path)}"), _identity(path)) for path in paths),
        taken=taken,
        assigned={_identity(kept.path): kept.name for kept in planned.column_names if len(kept.path) > 1},
        max_bytes=MAX_COLUMN_NAME_BYTES,
    )
    return [
        Column(name, path, _key_type(planned, top[path[:1]], path), f"the key {'.'.join(path)}")
        for name, path in zip(names, paths, strict=True)
    ]


def _key_type(planned: PlannedStream, owner: Column, path: FieldPath) -> ValueType:
    """Returns the type of a key: that of the struct's member, or by the schema if the object is read as JSON text."""
    reached, beyond = member_at(owner.type, path[1:])
    root = planned.stream.json_schema
    return value_type(_schema_at(root, path), root, planned.types) if beyond else reached


def stream_columns(planned: PlannedStream) -> Columns:
    """Returns the columns in which the stream is staged. Raises ConfigError as `table_columns` does."""
    if planned.relay is None:
        return table_columns(planned)
    if planned.shaping is None and not planned.relay.by_columns:
        return _whole_records(planned, planned.relay)
    columns = table_columns(planned)
    if _has_whole_records(columns) and not planned.relay.by_columns:
        form = RecordForm(planned.relay, planned.stream.json_schema, record_column=WHOLE_RECORD)
        return msgspec.structs.replace(columns, record_form=form)
    return with_record_form(columns, planned, planned.relay)


def _has_whole_records(columns: Columns) -> bool:
    """True if the source declares no field, and what is left of its records is in the column that holds them."""
    return columns.is_schemaless and any(each.name == WHOLE_RECORD and each.type == JSON for each in columns.all)


def _whole_records(planned: PlannedStream, target: RelayTarget) -> Columns:
    stream = msgspec.structs.replace(planned.stream, json_schema={}, primary_key=(), cursor=())
    columns = table_columns(msgspec.structs.replace(planned, stream=stream, primary_key=(), cursor=()))
    root = planned.stream.json_schema
    # Where the source declares nothing, a schema with the mark alone would leave out all else.
    declared = declared_properties(root, root) if _has_marks(target) else {}
    marks = tuple(_undeclared_marks(declared)) if declared else ()
    form = RecordForm(target, root, record_column=WHOLE_RECORD, marks=marks)
    return msgspec.structs.replace(columns, record_form=form)


def with_record_form(columns: Columns, planned: PlannedStream, target: RelayTarget) -> Columns:
    """Returns the columns with the form of records that have a field for each of them."""
    root = planned.stream.json_schema
    declared = declared_properties(root, root)
    sent = [column for column in columns.all if not column.is_nested]
    names = {column.path[0]: column.name for column in sent}
    keys, cursor = tuple(names.get(key, key) for key in target.keys), names.get(target.cursor or "")
    hashed = _hashed_fields(columns)
    properties = {}
    for column in sent:
        field = column.path[0]
        schema = _field_schema(column, declared.get(field, {}), root, is_hashed=field in hashed)
        properties[column.name] = schema if column.name in keys else _or_null(schema)
    form = RecordForm(
        msgspec.structs.replace(target, keys=keys, cursor=cursor),
        {**{name: part for name, part in root.items() if name != "required"}, "properties": properties},
        columns=tuple(properties),
        json_columns=frozenset(column.name for column in sent if column.type.kind is ValueKind.JSON),
        marks=tuple(mark.name for mark in columns.sent_marks),
    )
    return msgspec.structs.replace(columns, record_form=form)


def _hashed_fields(columns: Columns) -> frozenset[str]:
    """The fields of the source of whose values hashes are sent."""
    plan = columns.as_parsed.shaping_plan
    if plan is None:
        return frozenset()
    return frozenset(column.path[0] for column in plan.parsed_columns if column.name in plan.hashed)


def _field_schema(column: Column, declared: Any, root: Schema, *, is_hashed: bool) -> Any:
    """The schema of a field. A hashed one is text of no format or length, whatever it was; so are the elements of a
    hashed list."""
    was = value_type(declared, root)
    if column.type.kind is not ValueKind.STRING or (was.kind is ValueKind.STRING and not is_hashed):
        return declared
    schema: dict[str, Any] = {"type": ["null", "string"]}
    for _ in range(column.type.depth):
        schema = {"type": ["null", "array"], "items": schema}
    return schema


def _or_null(schema: Any) -> Any:
    """The schema of a field that may be null, as each is that a record lacks, or whose value did not fit its column.

    Singer targets hold records against it: one that is refused stops its stream for good.
    """
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    types, values = names_in(schema.get("type")), schema.get("enum")
    if types and "null" not in types:
        made["type"] = ["null", *types]
    if isinstance(values, list | tuple) and None not in values:
        made["enum"] = [*values, None]
    for union in ("anyOf", "oneOf"):
        kinds = [names_in(part.get("type")) for part in branches_in(schema.get(union))]
        if kinds and all(kinds) and not any("null" in each for each in kinds):
            made[union] = [*schema[union], {"type": "null"}]
    return made
