"""The hash of Iceberg's `bucket` transform: murmur3, x86, 32 bits, with seed 0. Hashes whole columns at a time.

- By Iceberg's specification, numbers, dates and times are hashed as 64-bit integers, text as UTF-8, and decimals as the
  fewest bytes that hold their unscaled value.
- The names of functions and constants follow the reference implementation of murmur3 (mix_k1, mix_h1, fmix). Functions
  with `_words` in their name do the same for numpy arrays.
- numpy is slow for few values. So the few texts that are much longer than the others are hashed one by one.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

_Words = np.ndarray[tuple[int], np.dtype[np.uint32]]
_Hashes = np.ndarray[tuple[int], np.dtype[np.int32]]
_Positions = np.ndarray[tuple[int], np.dtype[np.int64]]
_Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

_C1, _C2, _M, _N = 0xCC9E2D51, 0x1B873593, 5, 0xE6546B64
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35
_MASK = 0xFFFFFFFF
_MIN_VECTORIZED = 24


def murmur3_hashes(values: pa.Array) -> _Hashes:
    """Returns the hash of each value. The hash of a null is any number."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_texts(values)
    if pa.types.is_decimal(kind):
        unsigned = np.fromiter(map(murmur3_hash, _unscaled_bytes(values)), np.uint32, len(values))
        return unsigned.view(np.int32)
    whole = (values.cast(pa.int32()) if pa.types.is_date32(kind) else values).cast(pa.int64())
    return _hash_longs(np.frombuffer(whole.buffers()[1] or b"", np.int64, len(whole), 8 * whole.offset))


def murmur3_hash(value: bytes) -> int:
    """Returns the hash of one value, as an unsigned number."""
    state, whole = 0, len(value) & ~3
    for at in range(0, whole, 4):
        state ^= _mix_k1(int.from_bytes(value[at : at + 4], "little"))
        state = (_rotate_left(state, 13) * _M + _N) & _MASK
    if tail := value[whole:]:
        state ^= _mix_k1(int.from_bytes(tail, "little"))
    state ^= len(value)
    state = ((state ^ (state >> 16)) * _F1) & _MASK
    state = ((state ^ (state >> 13)) * _F2) & _MASK
    return state ^ (state >> 16)


def _hash_longs(numbers: _Positions) -> _Hashes:
    words = numbers.view(np.uint32).reshape(-1, 2)  # Arrow is little-endian.
    state = np.zeros(len(numbers), np.uint32)
    for half in (0, 1):
        state = _mix_h1_words(state, words[:, half])
    return _fmix_words(state, np.full(len(numbers), 8, np.uint32)).view(np.int32)


def _hash_texts(values: pa.Array) -> _Hashes:
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer or bytes(4), np.int32, len(values) + 1, 4 * values.offset).astype(np.int64)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    state = np.zeros(len(values), np.uint32)
    # Longest first, so that the texts that still have a word are always in front.
    order = np.argsort(-lengths, kind="stable")
    words = lengths[order] // 4
    at, in_front = 0, int(np.count_nonzero(words))
    while in_front > _MIN_VECTORIZED:
        rows = order[:in_front]
        state[rows] = _mix_h1_words(state[rows], _words(data, starts[rows] + 4 * at, 4))
        at += 1
        in_front = int(np.count_nonzero(words > at))
    long, others = order[:in_front], order[in_front:]
    result = np.zeros(len(values), np.uint32)
    result[others] = _fmix_words(_mix_tails(state, data, starts, lengths, others), lengths[others].astype(np.uint32))
    for row in long:
        result[row] = murmur3_hash(data[starts[row] : starts[row] + lengths[row]].tobytes())
    return result.view(np.int32)


def _mix_tails(state: _Words, data: _Bytes, starts: _Positions, lengths: _Positions, rows: _Positions) -> _Words:
    """Mixes in the last one to three bytes after the whole words, and returns the state of these rows."""
    for tail_bytes in (1, 2, 3):
        rows_with_tail = rows[lengths[rows] % 4 == tail_bytes]
        tail_starts = starts[rows_with_tail] + lengths[rows_with_tail] - tail_bytes
        state[rows_with_tail] ^= _mix_k1_words(_words(data, tail_starts, tail_bytes))
    return state[rows]


def _words(data: _Bytes, places: _Positions, size: int) -> _Words:
    word = np.zeros(len(places), np.uint32)
    for byte in range(size):
        word |= data[places + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _mix_h1_words(state: _Words, word: _Words) -> _Words:
    state = state ^ _mix_k1_words(word)
    return _rotate_left_words(state, 13) * np.uint32(_M) + np.uint32(_N)


def _mix_k1_words(word: _Words) -> _Words:
    return _rotate_left_words(word * np.uint32(_C1), 15) * np.uint32(_C2)


def _rotate_left_words(word: _Words, by: int) -> _Words:
    return (word << np.uint32(by)) | (word >> np.uint32(32 - by))


def _fmix_words(state: _Words, lengths: _Words) -> _Words:
    state = state ^ lengths
    state = (state ^ (state >> np.uint32(16))) * np.uint32(_F1)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(_F2)
    return state ^ (state >> np.uint32(16))


def _mix_k1(word: int) -> int:
    return (_rotate_left((word * _C1) & _MASK, 15) * _C2) & _MASK


def _rotate_left(word: int, by: int) -> int:
    return ((word << by) | (word >> (32 - by))) & _MASK


def _unscaled_bytes(values: pa.Array) -> Iterator[bytes]:
    """Yields the unscaled value of each decimal in the bytes of Java's `BigInteger.toByteArray`."""
    buffer = values.buffers()[1]
    data = b"" if buffer is None else buffer.to_pybytes()[16 * values.offset :]
    for at in range(0, 16 * len(values), 16):
        number = int.from_bytes(data[at : at + 16], "little", signed=True)
        yield number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
