"""Shapes rows, whole columns at a time: filters rows, hashes columns, and prunes members of JSON objects."""

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import Columns, ShapingPlan
from dagster_airbyte_proto.schema.conditions import truth_values
from dagster_airbyte_proto.staging.rows.pruning import prune

FILTERED = "left out by the filter"
_BLOCK = 64

Digest = Callable[[bytes], str]


class ShapedRows(NamedTuple):
    """The shaped columns. `is_wanted` is a mask, without nulls, of the rows that the filter takes; None if all."""

    arrays: dict[str, pa.Array]
    is_wanted: pa.Array | None


class Shaper:
    """Shapes the rows of one stream. The filter compares fields before they are hashed."""

    def __init__(self, shape: ShapingPlan, hash_key: str) -> None:
        self._shape = shape
        self._digest = hmac_sha256(hash_key)
        self._column_names = {column.path[0]: column.name for column in shape.parsed_columns}

    def shape_rows(self, arrays: Mapping[str, pa.Array]) -> ShapedRows:
        """Shapes the parsed columns, given by their names."""
        is_wanted = self._is_wanted(arrays)
        made = dict(arrays)
        for name, pruning in self._shape.pruned.items():
            made[name] = prune(arrays[name], pruning)
        for name in self._shape.hashed:
            made[name] = hash_values(made[name], self._digest)
        return ShapedRows(made, is_wanted)

    def _is_wanted(self, arrays: Mapping[str, pa.Array]) -> pa.Array | None:
        condition = self._shape.condition
        if condition is None:
            return None
        is_wanted = pc.fill_null(
            truth_values(condition, {field: arrays[name] for field, name in self._column_names.items()}), False
        )
        return None if pc.all(is_wanted).as_py() else is_wanted


def shaper_of(columns: Columns, hash_key: str) -> Shaper | None:
    """Returns the shaper of a stream; None if its rows land as they are parsed."""
    return None if columns.shaping_plan is None else Shaper(columns.shaping_plan, hash_key)


def hmac_sha256(key: str) -> Digest:
    """Returns a function for HMAC-SHA-256 with this key, in hexadecimal digits."""
    # Python's `hmac` hashes the key again for each value. Here it is hashed once, as RFC 2104 allows.
    secret = key.encode()
    secret = hashlib.sha256(secret).digest() if len(secret) > _BLOCK else secret
    padded = secret.ljust(_BLOCK, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def hexadecimal(value: bytes) -> str:
        inside, outside = inner.copy(), outer.copy()
        inside.update(value)
        outside.update(inside.digest())
        return outside.hexdigest()

    return hexadecimal


def hash_values(values: pa.Array, digest: Digest) -> pa.Array:
    """Returns the digest of each value, or of each element of a list. Null stays null."""
    # By a dictionary, so that an equal value is hashed once.
    if pa.types.is_list(values.type):
        return pa.ListArray.from_arrays(values.offsets, hash_values(values.values, digest), mask=values.is_null())
    encoded = values.dictionary_encode()
    plain = _as_bytes(encoded.dictionary).to_pylist()
    return pa.array([digest(value) for value in plain], pa.string()).take(encoded.indices)


def _as_bytes(values: pa.Array) -> pa.Array:
    """Returns the bytes to hash of each value: its text, so that the number 5 and the text "5" hash to the same."""
    # Times are written in UTC.
    if pa.types.is_timestamp(values.type):
        mark = "" if values.type.tz is None else "Z"
        text = pc.strftime(values.cast(pa.timestamp(values.type.unit)), format="%Y-%m-%dT%H:%M:%S")
        return pc.binary_join_element_wise(text, mark, "").cast(pa.binary())
    return values if pa.types.is_binary(values.type) else values.cast(pa.string()).cast(pa.binary())
