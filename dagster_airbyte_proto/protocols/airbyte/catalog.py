"""Airbyte's catalogs: the catalog that `discover` returns, and the configured catalog that `read` receives.

A stream's JSON is kept as it came and goes byte for byte into the configured catalog, because connectors look there
for fields that no version of the protocol documents.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.json_references import names_in
from dagster_airbyte_proto.model import Catalog, FieldPath, PlannedStream, ReadMode, Stream, StreamId, WriteMode
from dagster_airbyte_proto.protocols.catalog_json import UnreadableSchema, catalog_message, parse_streams
from dagster_airbyte_proto.protocols.raw_json import members

# The modes as the CDK spells them. Its models refuse unknown modes, and no version of the CDK knows `overwrite_dedup`
# or `soft_delete`. The nearest known mode does: a source needs to know no more about the destination.
_WIRE_MODES = {
    WriteMode.APPEND: "append",
    WriteMode.OVERWRITE: "overwrite",
    WriteMode.APPEND_DEDUP: "append_dedup",
    WriteMode.OVERWRITE_DEDUP: "overwrite",
    WriteMode.SOFT_DELETE: "append_dedup",
}


def parse_catalog(message: bytes) -> Catalog:
    """Parses a catalog from its own JSON or from a whole CATALOG message. Raises ProtocolViolation."""
    parts = members(message) or {}
    if "streams" not in parts:
        parts = members(parts.get("catalog", b"null")) or {}
    return parse_streams(parts.get("streams", b"null"), _parse_stream, name_member="name")


def configured_catalog(streams: tuple[PlannedStream, ...], *, sync_id: int) -> bytes:
    return catalog_message(_configured_stream(planned, sync_id) for planned in streams)


def _configured_stream(planned: PlannedStream, sync_id: int) -> bytes:
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


def _parse_stream(fields: Mapping[str, Any], raw: bytes) -> Stream | None:
    if not isinstance(fields.get("name"), str):
        return None
    namespace = fields.get("namespace")
    stream = StreamId.of(fields["name"], namespace if isinstance(namespace, str) else None)
    # The examples of the older specification call it `schema`.
    schema = fields.get("json_schema", fields.get("schema")) or {}
    if not isinstance(schema, dict):
        raise UnreadableSchema
    return Stream(
        id=stream,
        json_schema=schema,
        read_modes=_read_modes(fields.get("supported_sync_modes")),
        primary_key=_paths(fields.get("source_defined_primary_key")),
        cursor=names_in(fields.get("default_cursor_field")),
        is_cursor_fixed=fields.get("source_defined_cursor") is True,
        is_resumable=fields.get("is_resumable") is True,
        is_file_based=fields.get("is_file_based") is True,
        raw=raw,
    )


def _read_modes(supported: Any) -> tuple[ReadMode, ...]:
    """The modes of a stream. A stream without a known mode gets full refresh, which every source can do."""
    named = supported if isinstance(supported, list) else []
    return tuple(mode for mode in ReadMode if mode.value in named) or (ReadMode.FULL_REFRESH,)


def _paths(raw: Any) -> tuple[FieldPath, ...]:
    # Some connectors write a bare name instead of a path with one step.
    paths = raw if isinstance(raw, list) else []
    return tuple(path for path in map(names_in, paths) if path)
