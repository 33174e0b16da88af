"""Describes the Arrow schema of a stream as JSON Schema, from which its columns are derived like those of any stream.

So keys, the user's type choices, shaping and evolution have one form of schema. Each Arrow type becomes the JSON Schema
of the value type that holds all of its values, or nearly all: decimals keep nine digits behind the point, and times
keep microseconds. A type without such a value type, such as a map, is free-form JSON.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import DECIMAL_SCALE

_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)


def json_schema_of(schema: pa.Schema) -> Mapping[str, Any]:
    """Returns the JSON Schema of a stream whose records come in Arrow batches of this schema."""
    return {"type": "object", "properties": {field.name: _field_schema(field) for field in schema}}


def is_list(kind: pa.DataType) -> bool:
    return any(claim(kind) for claim in _LISTS)


def is_bytes(kind: pa.DataType) -> bool:
    return any(claim(kind) for claim in _BYTES)


def written_out(array: pa.Array) -> pa.Array:
    """Returns an array with each of its values, where it names them by indices or by runs: Arrow has few functions for
    these."""
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_run_end_encoded(array.type) and not pa.types.is_nested(array.type.value_type):
        return pc.run_end_decode(array)
    return array


def clocks_as_numbers(kind: pa.DataType) -> pa.DataType:
    """Returns a type of the same layout, with numbers in the place of days in milliseconds (Date64) and of times of
    day: of these Arrow calls some values invalid."""
    if pa.types.is_date64(kind) or pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, clocks_as_numbers(kind.value_type), kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct([_with_clocks_as_numbers(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_with_clocks_as_numbers(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_with_clocks_as_numbers(kind.value_field))
    return kind


def _with_clocks_as_numbers(field: pa.Field) -> pa.Field:
    return field.with_type(clocks_as_numbers(field.type))


def _field_schema(field: pa.Field) -> Mapping[str, Any]:
    comment = (field.metadata or {}).get(b"comment")
    described = {"description": comment.decode(errors="replace")} if comment else {}
    return {**_type_schema(field.type), **described}


def _type_schema(kind: pa.DataType) -> Mapping[str, Any]:
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _type_schema(kind.value_type)
    if is_list(kind):
        return {"type": "array", "items": _type_schema(kind.value_type)}
    if pa.types.is_struct(kind):
        return {"type": "object", "properties": {field.name: _type_schema(field.type) for field in kind}}
    if pa.types.is_map(kind):
        return {"type": "object"}
    return _number_schema(kind) or _text_schema(kind)


def _number_schema(kind: pa.DataType) -> Mapping[str, Any]:
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if pa.types.is_uint64(kind):
        return {"type": "integer", "airbyte_type": "big_integer"}
    if pa.types.is_integer(kind):
        return {"type": "integer"}
    if pa.types.is_floating(kind):
        return {"type": "number"}
    if pa.types.is_decimal(kind):
        if kind.scale <= 0:
            return {"type": "integer", "airbyte_type": "big_integer"}
        return {"type": "number", "multipleOf": float(f"1e-{min(kind.scale, DECIMAL_SCALE)}")}
    return {}


def _text_schema(kind: pa.DataType) -> Mapping[str, Any]:
    if any(is_text(kind) for is_text in _TEXTS):
        return {"type": "string"}
    if is_bytes(kind):
        return {"type": "string", "contentEncoding": "base64"}
    if pa.types.is_date(kind):
        return {"type": "string", "format": "date"}
    if pa.types.is_time(kind):
        return {"type": "string", "format": "time"}
    if pa.types.is_timestamp(kind):
        zone = "timestamp_with_timezone" if kind.tz else "timestamp_without_timezone"
        return {"type": "string", "format": "date-time", "airbyte_type": zone}
    return {}
