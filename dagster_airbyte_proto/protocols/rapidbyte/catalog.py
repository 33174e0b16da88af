"""Catalogs of Rapidbyte: the JSON that `discover` returns, with columns of Arrow's types."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dagster_airbyte_proto.model import Catalog, FieldPath, ReadMode, Stream, StreamId
from dagster_airbyte_proto.protocols.catalog_json import parse_streams
from dagster_airbyte_proto.protocols.rapidbyte.changes import CDC
from dagster_airbyte_proto.protocols.rapidbyte.stream_context import schema_columns
from dagster_airbyte_proto.protocols.raw_json import members

_INTEGER: Mapping[str, Any] = {"type": "integer"}
_NUMBER: Mapping[str, Any] = {"type": "number"}
_TEXT: Mapping[str, Any] = {"type": "string"}
_BYTES: Mapping[str, Any] = {"type": "string", "contentEncoding": "base64"}
_DATE: Mapping[str, Any] = {"type": "string", "format": "date"}
_TIMESTAMP: Mapping[str, Any] = {
    "type": "string",
    "format": "date-time",
    "airbyte_type": "timestamp_without_timezone",
}
_SCHEMAS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "Boolean": {"type": "boolean"},
        **dict.fromkeys(("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32"), _INTEGER),
        "UInt64": {"type": "integer", "airbyte_type": "big_integer"},
        **dict.fromkeys(("Float16", "Float32", "Float64"), _NUMBER),
        **dict.fromkeys(("Utf8", "LargeUtf8"), _TEXT),
        **dict.fromkeys(("Binary", "LargeBinary"), _BYTES),
        **dict.fromkeys(("Date32", "Date64"), _DATE),
        **dict.fromkeys(("TimestampMillis", "TimestampMicros", "TimestampNanos"), _TIMESTAMP),
        "Decimal128": {"type": "number", "multipleOf": 1e-9},
        "Json": {},
    }
)
"""The JSON Schema of each type of column, as `schema.arrow_schema` has it for the Arrow type. Another type is free-form
JSON, which takes any value."""


def parse_catalog(message: bytes) -> Catalog:
    """Parses what `discover` returned. Raises ProtocolViolation."""
    return parse_streams((members(message) or {}).get("streams", b"null"), _stream, name_member="name")


def _stream(fields: Mapping[str, Any], raw: bytes) -> Stream | None:
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        return None
    modes = fields.get("supported_sync_modes")
    supported = modes if isinstance(modes, list) else []
    cursor = fields.get("source_defined_cursor")
    return Stream(
        StreamId.of(name),
        {"type": "object", "properties": {each["name"]: _schema(each) for each in schema_columns(fields)}},
        read_modes=_read_modes(supported),
        primary_key=_key(fields.get("source_defined_primary_key")),
        cursor=(cursor,) if isinstance(cursor, str) and cursor else (),
        is_cursor_fixed=isinstance(cursor, str) and bool(cursor),
        supports_log_replication=CDC in supported,
        raw=raw,
    )


def _schema(column: Mapping[str, Any]) -> Mapping[str, Any]:
    return _SCHEMAS.get(str(column.get("data_type")), {})


def _read_modes(supported: list[Any]) -> tuple[ReadMode, ...]:
    found = tuple(mode for mode in ReadMode if mode.value in supported)
    if CDC in supported and ReadMode.INCREMENTAL not in found:
        found = (*found, ReadMode.INCREMENTAL)
    return found or (ReadMode.FULL_REFRESH,)


def _key(named: Any) -> tuple[FieldPath, ...]:
    return tuple((each,) for each in named if isinstance(each, str)) if isinstance(named, list) else ()
