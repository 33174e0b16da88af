"""The JSON that a connector gets with each run: the stream, its mode, where to go on, limits and policies.

Everything that a connector may ask for is there, also what it mostly leaves alone: a field that is missing stops the
kits that are strict.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from dagster_airbyte_proto.model import PlannedStream, PushMode, ReadMode, SchemaPolicy, State
from dagster_airbyte_proto.protocols.destination import PushedStream
from dagster_airbyte_proto.protocols.rapidbyte.states import checkpoint_of
from dagster_airbyte_proto.protocols.raw_json import MemberError, value

MAX_BATCH_BYTES = 64 << 20
_LIMITS = MappingProxyType(
    {
        "max_batch_bytes": MAX_BATCH_BYTES,
        "max_record_bytes": 16 << 20,
        "max_inflight_batches": 16,
        "max_parallel_requests": 1,
        "checkpoint_interval_bytes": 64 << 20,
        "checkpoint_interval_rows": 0,
        "checkpoint_interval_seconds": 0,
    }
)
_CURSOR_TYPES = MappingProxyType(
    {
        "Utf8": "utf8",
        "LargeUtf8": "utf8",
        "TimestampMillis": "timestamp_millis",
        "TimestampMicros": "timestamp_micros",
        "Decimal128": "decimal",
        "Json": "json",
    }
)
"""The types of cursors that are not `int64`, by the type of the column."""


WRITE_MODES = MappingProxyType(
    {
        PushMode.APPEND: "append",
        PushMode.INSERT: "append",
        PushMode.UPSERT: "upsert",
        PushMode.OVERWRITE: "replace",
    }
)
_DATA_ERRORS = MappingProxyType({"reject": "dlq", "skip": "skip", "fail": "fail"})


class Overrides(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hints for how fast to read, not for what. None leaves a connector its own choice."""

    effective_parallelism: int | None = None
    partition_strategy: str | None = None
    copy_flush_bytes_override: int | None = None


def stream_context(
    planned: PlannedStream, state: State | None, fields: frozenset[str] | None, overrides: Overrides
) -> Mapping[str, Any]:
    """The context of one stream's read. `fields` are the only ones to read, if it is not None."""
    declared = _object(planned.stream.raw)
    columns = schema_columns(declared)
    selected = {} if fields is None else {"selected_columns": [each for each in map(_name, columns) if each in fields]}
    return {
        "stream_name": planned.id.name,
        "source_stream_name": planned.id.name,
        "schema": {"format": "columns", "data": columns},
        "sync_mode": _sync_mode(planned, declared),
        "limits": dict(_LIMITS),
        "policies": _policies(planned.schema_policy),
        **_cursor_info(planned, columns, state),
        **selected,
        **msgspec.to_builtins(overrides),
    }


def written_stream_context(stream: PushedStream, on_error: str, overrides: Overrides) -> Mapping[str, Any]:
    """The context of one stream's write: its columns are those of the batches that come."""
    mode = WRITE_MODES[stream.mode]
    columns = [{"name": each.name, "data_type": each.kind, "nullable": each.is_nullable} for each in stream.columns]
    return {
        "stream_name": str(stream.id),
        "source_stream_name": str(stream.id),
        "schema": {"format": "columns", "data": columns},
        "sync_mode": "full_refresh" if mode == "replace" else "incremental",
        "limits": dict(_LIMITS),
        "policies": {**_policies(SchemaPolicy.EVOLVE), "on_data_error": _DATA_ERRORS.get(on_error, "dlq")},
        "write_mode": {"mode": mode, "primary_key": [*stream.keys]},
        **msgspec.to_builtins(overrides),
    }


def checkpoint_cursor(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a context that says where a connector goes on which has no cursor but that of its own checkpoint."""
    field, last = checkpoint.get("cursor_field"), checkpoint.get("cursor_value")
    if not isinstance(field, str) or not isinstance(last, dict):
        return {}
    return {"cursor_info": {"cursor_field": field, "cursor_type": last.get("type", "utf8"), "last_value": last}}


def schema_columns(stream: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The columns in the JSON of a stream; what is no column with a name is left out."""
    schema = stream.get("schema")
    data = schema.get("data") if isinstance(schema, dict) else schema
    return [each for each in data if isinstance(each, dict) and _name(each)] if isinstance(data, list) else []


def _name(column: Mapping[str, Any]) -> str:
    name = column.get("name")
    return name if isinstance(name, str) else ""


def _sync_mode(planned: PlannedStream, declared: Mapping[str, Any]) -> str:
    modes = declared.get("supported_sync_modes")
    if planned.read is ReadMode.INCREMENTAL and not planned.cursor and isinstance(modes, list) and "cdc" in modes:
        return "cdc"
    return planned.read.value


def _cursor_info(planned: PlannedStream, columns: list[Mapping[str, Any]], state: State | None) -> Mapping[str, Any]:
    if planned.read is not ReadMode.INCREMENTAL:
        return {}
    checkpoint = checkpoint_of(state).payload
    field = ".".join(planned.cursor) or checkpoint.get("cursor_field")
    if not field:
        return {}
    kinds = {_name(each): str(each.get("data_type")) for each in columns}
    info = {"cursor_field": field, "cursor_type": _CURSOR_TYPES.get(kinds.get(field, ""), "int64")}
    last = checkpoint.get("cursor_value")
    # A state of another cursor says nothing of this one: the stream is read from its beginning.
    is_same = checkpoint.get("cursor_field") in (None, field)
    return {"cursor_info": {**info, **({"last_value": last} if last is not None and is_same else {})}}


def _policies(schema_policy: SchemaPolicy) -> Mapping[str, Any]:
    """Our own intake takes what a schema did not announce, so a connector never has to fail over it."""
    new_column = "fail" if schema_policy is SchemaPolicy.FREEZE else "add"
    return {
        "on_data_error": "dlq",
        "schema_evolution": {
            "new_column": new_column,
            "removed_column": "ignore",
            "type_change": "coerce",
            "nullability_change": "allow",
        },
    }


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        found = value(raw)
    except MemberError:
        return {}
    return found if isinstance(found, dict) else {}
