"""What a stream's shape does to its rows, whole columns at a time: which are wanted, what is hashed or cut off."""

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import Columns, Shape
from dagster_airbyte_proto.schema.conditions import answers
from dagster_airbyte_proto.staging.rows.pruning import pruned

FILTERED = "left out by the filter"
_BLOCK = 64

Digest = Callable[[bytes], str]


class ShapedRows(NamedTuple):
    """`is_wanted` says of each row whether the filter lets it through, and never null; None: all of them."""

    arrays: dict[str, pa.Array]
    is_wanted: pa.Array | None


class Shaper:
    """Shapes the rows of one stream. Fields are compared as they are, and hashed after."""

    def __init__(self, shape: Shape, hash_key: str) -> None:
        self._shape = shape
        self._digest = digest(hash_key)
        self._called = {column.path[0]: column.name for column in shape.read}

    def shaped(self, arrays: Mapping[str, pa.Array]) -> ShapedRows:
        """Rows of the columns that were read, by their names."""
        is_wanted = self._is_wanted(arrays)
        made = dict(arrays)
        for name, pruning in self._shape.pruned.items():
            made[name] = pruned(arrays[name], pruning)
        for name in self._shape.hashed:
            made[name] = hashed(made[name], self._digest)
        return ShapedRows(made, is_wanted)

    def _is_wanted(self, arrays: Mapping[str, pa.Array]) -> pa.Array | None:
        condition = self._shape.condition
        if condition is None:
            return None
        is_wanted = pc.fill_null(
            answers(condition, {field: arrays[name] for field, name in self._called.items()}), False
        )
        return None if pc.all(is_wanted).as_py() else is_wanted


def shaper_of(columns: Columns, hash_key: str) -> Shaper | None:
    """None where rows are as they are read."""
    return None if columns.shape is None else Shaper(columns.shape, hash_key)


def digest(key: str) -> Digest:
    """HMAC-SHA-256 in hexadecimal digits. The key is taken in once: Python's own way does it for each value."""
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


def hashed(values: pa.Array, digest: Digest) -> pa.Array:
    """The digest of each value, of a list's each element; null stays null. A value that comes again costs nothing."""
    if pa.types.is_list(values.type):
        return pa.ListArray.from_arrays(values.offsets, hashed(values.values, digest), mask=values.is_null())
    encoded = values.dictionary_encode()
    plain = _as_bytes(encoded.dictionary).to_pylist()
    return pa.array([digest(value) for value in plain], pa.string()).take(encoded.indices)


def _as_bytes(values: pa.Array) -> pa.Array:
    """What is hashed of a value: its text, so that the number 5 and the text 5 are one. Times are of UTC."""
    if pa.types.is_timestamp(values.type):
        mark = "" if values.type.tz is None else "Z"
        text = pc.strftime(values.cast(pa.timestamp(values.type.unit)), format="%Y-%m-%dT%H:%M:%S")
        return pc.binary_join_element_wise(text, mark, "").cast(pa.binary())
    return values if pa.types.is_binary(values.type) else values.cast(pa.string()).cast(pa.binary())
