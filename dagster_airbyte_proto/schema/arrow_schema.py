"""Describes the Arrow schema of a stream as JSON Schema, from which its columns are derived like those of any stream.

So keys, the user's type choices, shaping and evolution have one form of schema. Each Arrow type becomes the JSON Schema
of the value type that holds all of its values, or nearly all: decimals keep nine digits behind the point, and times
keep microseconds. A type without such a value type, such as a map, is free-form JSON.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import DECIMAL_SCALE

_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_LISTS_OF = {
    pa.types.is_list: pa.list_,
    pa.types.is_large_list: pa.large_list,
    pa.types.is_list_view: pa.list_view,
    pa.types.is_large_list_view: pa.large_list_view,
}
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


def is_text(kind: pa.DataType) -> bool:
    return any(claim(kind) for claim in _TEXTS)


def layout_of(kind: pa.DataType) -> pa.DataType:
    """Returns a type of the same layout to which all values are valid: numbers for days in milliseconds (Date64) and
    times of day, bytes for text and decimals. Of these Arrow calls some values invalid."""
    return _mapped(kind, _layout_of_leaf)


def without_views(kind: pa.DataType) -> pa.DataType:
    """Returns the type with text and bytes in the place of views of these, which few functions of Arrow take."""
    return _mapped(kind, _written_out_view)


def with_widest_decimals(kind: pa.DataType) -> pa.DataType:
    """Returns a type of the same layout whose decimals have as many digits as their bytes can hold."""
    return _mapped(kind, _widest)


def _mapped(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Returns the type with another one for each type in it that has no parts."""

    def within(field: pa.Field) -> pa.Field:
        return field.with_type(_mapped(field.type, leaf))

    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _mapped(kind.value_type, leaf), kind.ordered)
    if pa.types.is_run_end_encoded(kind):
        return pa.run_end_encoded(kind.run_end_type, _mapped(kind.value_type, leaf))
    if pa.types.is_struct(kind):
        return pa.struct([within(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(within(kind.key_field), within(kind.item_field), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(within(kind.value_field), kind.list_size)
    for claim, made in _LISTS_OF.items():
        if claim(kind):
            return made(within(kind.value_field))
    return leaf(kind)


def _layout_of_leaf(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return layout_of(kind.storage_type)
    if pa.types.is_date64(kind) or pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if is_text(kind):
        return {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(kind, pa.binary_view())
    return kind


def _written_out_view(kind: pa.DataType) -> pa.DataType:
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def _widest(kind: pa.DataType) -> pa.DataType:
    """Not of decimals in 32 and 64 bits: Arrow has few functions for those."""
    if pa.types.is_decimal128(kind):
        return pa.decimal128(38, kind.scale)
    return pa.decimal256(76, kind.scale) if pa.types.is_decimal256(kind) else kind


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
    if is_text(kind):
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
