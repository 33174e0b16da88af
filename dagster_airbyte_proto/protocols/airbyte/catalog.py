"""Airbyte's catalogs: what `discover` offers, and what `read` is told to do with it.

A stream's own JSON is kept as it came and put, byte for byte, into the configured catalog: connectors look there for
fields that no version of the protocol's text names.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.model import Catalog, FieldPath, PlannedStream, ReadMode, Stream, StreamId, WriteMode
from dagster_airbyte_proto.protocols.catalogs import catalog_message, catalog_of, violation
from dagster_airbyte_proto.protocols.raw_json import members

# A source needs to know no more than this of what becomes of its records. Models refuse what they do not know, and
# `overwrite_dedup` is in none of the CDK's.
_WIRE_MODES = {
    WriteMode.APPEND: "append",
    WriteMode.OVERWRITE: "overwrite",
    WriteMode.APPEND_DEDUP: "append_dedup",
    WriteMode.OVERWRITE_DEDUP: "overwrite",
    WriteMode.SOFT_DELETE: "append_dedup",
}


def parse_catalog(message: bytes) -> Catalog:
    """A catalog from its own JSON, or from a whole CATALOG message. Raises ProtocolViolation."""
    parts = members(message) or {}
    if "streams" not in parts:
        parts = members(parts.get("catalog", b"null")) or {}
    return catalog_of(parts.get("streams", b"null"), _stream, name="name")


def configured_catalog(streams: tuple[PlannedStream, ...], *, sync_id: int) -> bytes:
    return catalog_message(_configured(planned, sync_id) for planned in streams)


def _configured(planned: PlannedStream, sync_id: int) -> bytes:
    configured: dict[str, Any] = {
        "sync_mode": planned.read.value,
        "destination_sync_mode": _WIRE_MODES[planned.write],
        "cursor_field": planned.cursor,
        "primary_key": planned.primary_key,
        "generation_id": planned.generation_id,
        "minimum_generation_id": planned.minimum_generation_id,
        "sync_id": sync_id,
    }
    if planned.stream.is_file_based:
        configured["include_files"] = True
    return b'{"stream":' + planned.stream.raw + b"," + msgspec.json.encode(configured)[1:]


def _stream(fields: Mapping[str, Any], raw: bytes) -> Stream | None:
    if not isinstance(fields.get("name"), str):
        return None
    namespace = fields.get("namespace")
    stream = StreamId.of(fields["name"], namespace if isinstance(namespace, str) else None)
    # `schema` is how the older text's examples spell it.
    schema = fields.get("json_schema", fields.get("schema")) or {}
    if not isinstance(schema, dict):
        raise violation(f"its schema is {json.dumps(schema)[:40]}, not an object", stream=stream)
    return Stream(
        id=stream,
        json_schema=schema,
        read_modes=_read_modes(fields.get("supported_sync_modes")),
        primary_key=_paths(fields.get("source_defined_primary_key")),
        cursor=_path(fields.get("default_cursor_field")),
        is_cursor_fixed=fields.get("source_defined_cursor") is True,
        is_resumable=fields.get("is_resumable") is True,
        is_file_based=fields.get("is_file_based") is True,
        raw=raw,
    )


def _read_modes(offered: Any) -> tuple[ReadMode, ...]:
    """No mode, or none that we know, means full refresh: every source can do that."""
    named = offered if isinstance(offered, list) else []
    return tuple(mode for mode in ReadMode if mode.value in named) or (ReadMode.FULL_REFRESH,)


def _paths(raw: Any) -> tuple[FieldPath, ...]:
    paths = raw if isinstance(raw, list) else []
    return tuple(path for path in map(_path, paths) if path)


def _path(raw: Any) -> FieldPath:
    """A path, also where a connector writes a bare name for a path of one."""
    steps = [raw] if isinstance(raw, str) else raw
    return tuple(step for step in steps if isinstance(step, str)) if isinstance(steps, list) else ()
