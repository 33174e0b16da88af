"""What is free goes back to the system, also where it lies between what is not."""

import psutil
import pyarrow as pa

from dagster_airbyte_proto.staging.memory import release_free_memory

_PIECE, _PIECES = 64 << 10, 2000


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def test_what_is_freed_in_pieces_goes_back() -> None:
    kept = [bytes([number % 256]) * _PIECE for number in range(_PIECES)]
    held = _resident()
    del kept[:-1]  # The last one stands at the heap's end, which is all that it shrinks at by itself.
    release_free_memory()
    assert _resident() < held - _PIECE * _PIECES // 2


def test_what_arrow_freed_goes_back() -> None:
    column = pa.repeat(1.5, _PIECE * _PIECES // 8)
    held = _resident()
    del column
    release_free_memory()
    assert _resident() < held - _PIECE * _PIECES // 2
