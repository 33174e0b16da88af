"""Streams of which a source sends the changes (`sync_mode: cdc`): which these are, and how a deleted row looks.

Version 4 has no word for a deleted row. Two forms are known, and both become ours:

- `_rb_op`, a column that the schema of `discover` does not have. Rapidbyte's own source of PostgreSQL sends it with
  `insert`, `update` or `delete`, and of a deleted row little more than its key.
- `_ab_cdc_deleted_at`, a column of the schema that has a value in deleted rows alone.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.model import PlannedStream, ReadMode
from dagster_airbyte_proto.protocols.raw_json import MemberError, value

OPERATION, DELETE = "_rb_op", "delete"
DELETED_AT = "_ab_cdc_deleted_at"
CDC = "cdc"
_TIME: Mapping[str, Any] = {
    "type": ["null", "string"],
    "format": "date-time",
    "airbyte_type": "timestamp_with_timezone",
}


def sends_changes(planned: PlannedStream) -> bool:
    """True if the stream is read by `cdc`: incrementally, and by no cursor that the user or the source has chosen for
    an incremental read."""
    if planned.read is not ReadMode.INCREMENTAL or not planned.stream.supports_log_replication:
        return False
    modes = _supported_modes(planned.stream.raw)  # A tap that may read a log lists none.
    return CDC in modes and (not planned.cursor or ReadMode.INCREMENTAL.value not in modes)


def as_changes(planned: PlannedStream) -> PlannedStream:
    """Returns the stream as it is read, if that is by `cdc`: without a cursor, and as if it declared the column that
    marks deleted rows."""
    if not sends_changes(planned):
        return planned
    # Changes arrive in the order of the log. A column would give another order, in which a deleted row is the oldest:
    # little more than its key is known. Nor is a column the place from which the log is read on.
    stream, shaping = msgspec.structs.replace(planned.stream, cursor=()), planned.shaping
    properties = stream.json_schema.get("properties") or {}
    if properties and DELETED_AT not in properties:
        schema = {**stream.json_schema, "properties": {**properties, DELETED_AT: _TIME}}
        stream = msgspec.structs.replace(stream, json_schema=schema)
        if shaping is not None and shaping.select:
            shaping = msgspec.structs.replace(shaping, select=(*shaping.select, (DELETED_AT,)))
    return msgspec.structs.replace(planned, stream=stream, cursor=(), shaping=shaping)


def _supported_modes(raw: bytes) -> list[Any]:
    try:
        found = value(raw)
    except MemberError:
        return []
    modes = found.get("supported_sync_modes") if isinstance(found, dict) else None
    return modes if isinstance(modes, list) else []
