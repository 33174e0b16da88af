"""The hash by which Iceberg's `bucket` parts rows: murmur3 in its 32-bit form for x86, of whole columns at a time.

Numbers, dates and times are hashed as 64-bit integers, text as its UTF-8, decimals as the fewest bytes that hold their
unscaled value. Few texts are much longer than the others, and numpy is slow at few: those are done one by one.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

_Words = np.ndarray[tuple[int], np.dtype[np.uint32]]
_Hashes = np.ndarray[tuple[int], np.dtype[np.int32]]
_Places = np.ndarray[tuple[int], np.dtype[np.int64]]
_Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

_C1, _C2, _M, _N = 0xCC9E2D51, 0x1B873593, 5, 0xE6546B64
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35
_MASK = 0xFFFFFFFF
_FEW = 24


def hashes(values: pa.Array) -> _Hashes:
    """The hash of each value; of a null it is any number."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_texts(values)
    if pa.types.is_decimal(kind):
        unsigned = np.fromiter(map(hash_of_bytes, _unscaled(values)), np.uint32, len(values))
        return unsigned.view(np.int32)
    whole = (values.cast(pa.int32()) if pa.types.is_date32(kind) else values).cast(pa.int64())
    return _of_longs(np.frombuffer(whole.buffers()[1] or b"", np.int64, len(whole), 8 * whole.offset))


def hash_of_bytes(value: bytes) -> int:
    """One value's hash, as an unsigned number."""
    state, whole = 0, len(value) & ~3
    for at in range(0, whole, 4):
        state ^= _scrambled(int.from_bytes(value[at : at + 4], "little"))
        state = (_rotated(state, 13) * _M + _N) & _MASK
    if tail := value[whole:]:
        state ^= _scrambled(int.from_bytes(tail, "little"))
    state ^= len(value)
    state = ((state ^ (state >> 16)) * _F1) & _MASK
    state = ((state ^ (state >> 13)) * _F2) & _MASK
    return state ^ (state >> 16)


def _of_longs(numbers: _Places) -> _Hashes:
    words = numbers.view(np.uint32).reshape(-1, 2)  # Arrow is little-endian.
    state = np.zeros(len(numbers), np.uint32)
    for half in (0, 1):
        state = _mixed(state, words[:, half])
    return _finished(state, np.full(len(numbers), 8, np.uint32)).view(np.int32)


def _of_texts(values: pa.Array) -> _Hashes:
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer or bytes(4), np.int32, len(values) + 1, 4 * values.offset).astype(np.int64)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    state = np.zeros(len(values), np.uint32)
    # Longest first: those that have a word more are always in front.
    order = np.argsort(-lengths, kind="stable")
    words = lengths[order] // 4
    at, in_front = 0, int(np.count_nonzero(words))
    while in_front > _FEW:
        rows = order[:in_front]
        state[rows] = _mixed(state[rows], _words(data, starts[rows] + 4 * at, 4))
        at += 1
        in_front = int(np.count_nonzero(words > at))
    long, others = order[:in_front], order[in_front:]
    result = np.zeros(len(values), np.uint32)
    result[others] = _finished(_with_tails(state, data, starts, lengths, others), lengths[others].astype(np.uint32))
    for row in long:
        result[row] = hash_of_bytes(data[starts[row] : starts[row] + lengths[row]].tobytes())
    return result.view(np.int32)


def _with_tails(state: _Words, data: _Bytes, starts: _Places, lengths: _Places, rows: _Places) -> _Words:
    """The state of these rows with the one to three bytes that are left behind their words."""
    for left in (1, 2, 3):
        some = rows[lengths[rows] % 4 == left]
        state[some] ^= _scrambled_words(_words(data, starts[some] + lengths[some] - left, left))
    return state[rows]


def _words(data: _Bytes, places: _Places, size: int) -> _Words:
    word = np.zeros(len(places), np.uint32)
    for byte in range(size):
        word |= data[places + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _mixed(state: _Words, word: _Words) -> _Words:
    state = state ^ _scrambled_words(word)
    return _rotated_words(state, 13) * np.uint32(_M) + np.uint32(_N)


def _scrambled_words(word: _Words) -> _Words:
    return _rotated_words(word * np.uint32(_C1), 15) * np.uint32(_C2)


def _rotated_words(word: _Words, by: int) -> _Words:
    return (word << np.uint32(by)) | (word >> np.uint32(32 - by))


def _finished(state: _Words, lengths: _Words) -> _Words:
    state = state ^ lengths
    state = (state ^ (state >> np.uint32(16))) * np.uint32(_F1)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(_F2)
    return state ^ (state >> np.uint32(16))


def _scrambled(word: int) -> int:
    return (_rotated((word * _C1) & _MASK, 15) * _C2) & _MASK


def _rotated(word: int, by: int) -> int:
    return ((word << by) | (word >> (32 - by))) & _MASK


def _unscaled(values: pa.Array) -> Iterator[bytes]:
    """As Java's BigInteger writes itself."""
    buffer = values.buffers()[1]
    data = b"" if buffer is None else buffer.to_pybytes()[16 * values.offset :]
    for at in range(0, 16 * len(values), 16):
        number = int.from_bytes(data[at : at + 16], "little", signed=True)
        yield number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
