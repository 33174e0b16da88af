"""The JSON Schema of Arrow columns, in the words of a protocol: the inverse of what `schema` reads from sources."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.destination import JsonDialect


def json_schema(schema: pa.Schema, dialect: JsonDialect, required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the schema of an object with these columns. All may be null but the `required` ones."""
    properties = {field.name: _type_schema(field.type, dialect, field.name) for field in schema}
    for name in required:
        properties[name] = {**properties[name], "type": [kind for kind in properties[name]["type"] if kind != "null"]}
    return {"type": "object", "properties": properties}


_WELL_KNOWN = {
    "String": {"type": "string"},
    "BinaryData": {"type": "string", "contentEncoding": "base64"},
    "Date": {"type": "string", "format": "date"},
    "TimestampWithTimezone": {"type": "string", "format": "date-time"},
    "TimestampWithoutTimezone": {"type": "string", "format": "date-time"},
    "TimeWithTimezone": {"type": "string", "format": "time"},
    "TimeWithoutTimezone": {"type": "string", "format": "time"},
    "Number": {"type": "number"},
    "Integer": {"type": "integer"},
    "Boolean": {"type": "boolean"},
}


def translated(schema: Any, dialect: JsonDialect) -> Any:
    """Returns a schema that a source declared, in the words of a destination's protocol.

    Airbyte's own words are no JSON Schema: a Singer target gets JSON Schema in their place. Airbyte takes any.
    """
    if dialect is JsonDialect.AIRBYTE:
        return schema
    if isinstance(schema, list):
        return [translated(part, dialect) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and "WellKnownTypes" in reference:
        return _WELL_KNOWN.get(reference.rpartition("/")[2], {})
    # A field may have this name too: then it has a schema, and no word.
    return {
        name: translated(part, dialect)
        for name, part in schema.items()
        if name != "airbyte_type" or not isinstance(part, str)
    }


_WITHOUT_ZONE = (
    "timestamp_without_timezone",
    "time_without_timezone",
    "TimestampWithoutTimezone",
    "TimeWithoutTimezone",
)


def checkable(schema: Any) -> Any:
    """Returns a schema of Airbyte's in the words of JSON Schema alone, for rows to be held against it.

    The times of JSON Schema's formats have a zone. Airbyte's without one keep the type text, and no format.
    """
    return translated(_without_zoneless_formats(schema), JsonDialect.PLAIN)


def _without_zoneless_formats(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_zoneless_formats(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    if schema.get("airbyte_type") in _WITHOUT_ZONE:
        return {name: part for name, part in schema.items() if name != "format"}
    if str(schema.get("$ref")).rpartition("/")[2] in _WITHOUT_ZONE:
        return {"type": "string"}
    return {name: _without_zoneless_formats(part) for name, part in schema.items()}


def _type_schema(kind: pa.DataType, dialect: JsonDialect, path: str) -> dict[str, Any]:
    if isinstance(kind, pa.JsonType):
        return {"type": ["null", "object", "array", "string", "number", "boolean"]}
    name, extra = _type(kind, dialect, path)
    return {"type": ["null", name], **extra}


def _type(kind: pa.DataType, dialect: JsonDialect, path: str) -> tuple[str, Mapping[str, Any]]:
    is_airbyte = dialect is JsonDialect.AIRBYTE
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type, dialect, path)
    if pa.types.is_boolean(kind):
        return "boolean", {}
    if pa.types.is_integer(kind):
        return "integer", {}
    if pa.types.is_floating(kind):
        return "number", {}
    if pa.types.is_decimal(kind):
        if is_airbyte:
            return "number", {"airbyte_type": "integer"} if kind.scale == 0 else {}
        # No narrower than the data: targets check it, and refuse a row that has more digits.
        return ("integer", {}) if kind.scale == 0 else ("number", {"multipleOf": float(f"1e-{kind.scale}")})
    if pa.types.is_timestamp(kind):
        zoned = "timestamp_with_timezone" if kind.tz else "timestamp_without_timezone"
        return "string", {"format": "date-time", **({"airbyte_type": zoned} if is_airbyte else {})}
    if pa.types.is_date(kind):
        return "string", {"format": "date"}
    if pa.types.is_time(kind):
        return "string", {"format": "time", **({"airbyte_type": "time_without_timezone"} if is_airbyte else {})}
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "string", {"contentEncoding": "base64"}
    if pa.types.is_struct(kind):
        return "object", {
            "properties": {each.name: _type_schema(each.type, dialect, f"{path}.{each.name}") for each in kind}
        }
    if pa.types.is_map(kind):
        _check_keys(kind, path)
        return "object", {"additionalProperties": _type_schema(kind.item_type, dialect, path)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return "array", {"items": _type_schema(kind.value_type, dialect, path)}
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return "string", {}
    raise ConfigError("describing the rows to the destination", f"field {path} is of type {kind}, which JSON has not")


def _check_keys(kind: pa.DataType, path: str) -> None:
    """Raises ConfigError for a map whose keys are no text, and have no text of their own."""
    keys = kind.key_type
    is_bytes = pa.types.is_binary(keys) or pa.types.is_large_binary(keys) or pa.types.is_fixed_size_binary(keys)
    if is_bytes or pa.types.is_nested(keys):
        raise ConfigError(
            "describing the rows to the destination",
            f"field {path} is a map with keys of type {keys}, and the keys of JSON are text",
            remedy="Cast the keys to text, or leave the field out of `map`.",
        )
