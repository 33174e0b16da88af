"""The JSON that a connector gets with each run: the stream, its mode, where to go on, limits and policies.

Everything that a connector may ask for is there, also what it mostly leaves alone: a field that is missing stops the
kits that are strict.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.model import FieldPath, PlannedStream, PushMode, ReadMode, SchemaPolicy, State
from dagster_airbyte_proto.protocols.destination import PushedStream
from dagster_airbyte_proto.protocols.rapidbyte.changes import CDC, sends_changes
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
        **dict.fromkeys(("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"), "int64"),
        **dict.fromkeys(("Utf8", "LargeUtf8"), "utf8"),
        "TimestampMillis": "timestamp_millis",
        "TimestampMicros": "timestamp_micros",
        "Decimal128": "decimal",
        "Json": "json",
    }
)
"""The types of cursors, by the type of the column. The protocol has none for dates, for floats, which an integer would
cut, nor for nanoseconds: those are text (`utf8`), as its own host has all cursors, or what the component's last value
says."""
_ANY_CURSOR = "utf8"


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


class SchemaEvolution(msgspec.Struct, frozen=True):
    """The answer to a batch whose columns are not those of the schema: an added column, one that lacks, one of another
    type, and nulls where none were to come. None leaves it to the stream's schema policy."""

    new_column: str | None = None
    removed_column: str | None = None
    type_change: str | None = None
    nullability_change: str | None = None

    def over(self, policy: SchemaPolicy) -> "SchemaEvolution":
        """All four answers, those of the policy where there is no other."""
        given = {name: each for name, each in msgspec.structs.asdict(self).items() if each is not None}
        return msgspec.structs.replace(_EVOLUTION[policy], **given)


_EVOLUTION = MappingProxyType(
    {
        SchemaPolicy.EVOLVE: SchemaEvolution("add", "ignore", "coerce", "allow"),
        SchemaPolicy.FREEZE: SchemaEvolution("fail", "ignore", "fail", "allow"),
        SchemaPolicy.DISCARD_COLUMN: SchemaEvolution("ignore", "ignore", "null", "allow"),
        SchemaPolicy.DISCARD_ROW: SchemaEvolution("ignore", "ignore", "coerce", "allow"),
    }
)


class SourcePolicies(msgspec.Struct, frozen=True):
    """The user's answers to batches of another schema, and to records that are at fault: reject, skip or fail."""

    evolution: SchemaEvolution = SchemaEvolution()
    on_error: str = "reject"

    def context(self, policy: SchemaPolicy) -> Mapping[str, Any]:
        """The policies as a context has them."""
        evolution = msgspec.to_builtins(self.evolution.over(policy))
        return {"on_data_error": _DATA_ERRORS[self.on_error], "schema_evolution": evolution}


_NO_POLICIES = SourcePolicies()


class SourceHints(NamedTuple):
    """The user's words for a source: how fast, and what where something is at fault."""

    overrides: Overrides = Overrides()
    policies: SourcePolicies = _NO_POLICIES
    checkpoint_bytes: int = _LIMITS["checkpoint_interval_bytes"]


def stream_context(
    planned: PlannedStream, state: State | None, fields: frozenset[str] | None, hints: SourceHints
) -> Mapping[str, Any]:
    """The context of one stream's read. `fields` are the only ones to read, if it is not None."""
    declared = _object(planned.stream.raw)
    columns = schema_columns(declared)
    selected = {} if fields is None else {"selected_columns": [each for each in map(_name, columns) if each in fields]}
    return {
        "stream_name": planned.id.name,
        "source_stream_name": planned.id.name,
        "schema": {"format": "columns", "data": columns},
        "sync_mode": CDC if sends_changes(planned) else planned.read.value,
        "limits": {**_LIMITS, "checkpoint_interval_bytes": hints.checkpoint_bytes},
        "policies": hints.policies.context(planned.schema_policy),
        **_cursor_info(planned, columns, state),
        **selected,
        **msgspec.to_builtins(hints.overrides),
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
        "policies": SourcePolicies(on_error=on_error).context(SchemaPolicy.EVOLVE),
        "write_mode": {"mode": mode, "primary_key": [*stream.keys]},
        **msgspec.to_builtins(overrides),
    }


def checkpoint_cursor(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a context that says where a connector goes on which has no cursor but that of its own checkpoint."""
    field, last = checkpoint.get("cursor_field"), checkpoint.get("cursor_value")
    if not isinstance(field, str) or not isinstance(last, dict):
        return {}
    return {"cursor_info": {"cursor_field": field, "cursor_type": _type_of(last), "last_value": last}}


def lost_place(planned: PlannedStream, state: State, cursor: FieldPath) -> str:
    """The column by which a stream of changes was read before, with this `cursor`, if its state is of that: it is no
    place in a log. Empty where the stream can go on from its state."""
    column = ".".join(cursor)
    is_lost = bool(column) and sends_changes(planned) and checkpoint_of(state).payload.get("cursor_field") == column
    return column if is_lost else ""


def declared_columns(raw: bytes) -> list[Mapping[str, Any]]:
    """The columns that a connector declared for a stream."""
    return schema_columns(_object(raw))


def schema_columns(stream: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The columns in the JSON of a stream; what is no column with a name is left out."""
    schema = stream.get("schema")
    data = schema.get("data") if isinstance(schema, dict) else schema
    return [each for each in data if isinstance(each, dict) and _name(each)] if isinstance(data, list) else []


def _name(column: Mapping[str, Any]) -> str:
    name = column.get("name")
    return name if isinstance(name, str) else ""


def _cursor_info(planned: PlannedStream, columns: list[Mapping[str, Any]], state: State | None) -> Mapping[str, Any]:
    if planned.read is not ReadMode.INCREMENTAL:
        return {}
    checkpoint = checkpoint_of(state).payload
    field = ".".join(planned.cursor) or checkpoint.get("cursor_field")
    if not field:
        return {}
    kinds = {_name(each): str(each.get("data_type")) for each in columns}
    # A state of another cursor says nothing of this one: the stream is read from its beginning.
    last = checkpoint.get("cursor_value") if checkpoint.get("cursor_field") in (None, field) else None
    # A cursor of the connector's own, such as a place in a log, is no column.
    kind = _CURSOR_TYPES.get(kinds.get(field, "")) or _type_of(last)
    info = {"cursor_field": field, "cursor_type": kind}
    return {"cursor_info": info if last is None else {**info, "last_value": last}}


def _type_of(last: Any) -> str:
    """The type that the value of a cursor says."""
    kind = last.get("type") if isinstance(last, dict) else None
    return kind if isinstance(kind, str) and kind != "null" else _ANY_CURSOR


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        found = value(raw)
    except MemberError:
        return {}
    return found if isinstance(found, dict) else {}
