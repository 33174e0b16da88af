"""From chunks of a connector's output to runs of record lines of one stream, and single other lines. Does no I/O.

Nothing happens in Python for a line of a run. Where lines begin, and how many bytes each has in common with the one
before it, is found for all lines of a chunk at once; the protocol's expression then looks at the first line of a run
alone, and says how many bytes the others must share with it. A line longer than a chunk is kept as the pieces it came
in, so that its cost stays linear in its length.
"""

from collections.abc import Iterator
from itertools import takewhile
from operator import eq
from typing import Final, NamedTuple

import numpy as np

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.protocols.session import RecordShape

MAX_LINE_BYTES = 256 << 20
_HEAD_BYTES = 1 << 16
_NEWLINE: Final = ord("\n")
_Places = np.ndarray[tuple[int], np.dtype[np.int64]]
# So many bytes of a line are compared with the line before, or as many as the heads met so far needed.
_REACH = 64
_LONGEST_REACH = 1024


class Run(NamedTuple):
    """Whole record lines of one stream. `stream` and `namespace` are JSON text; None: the line's head does not say."""

    stream: bytes
    namespace: bytes | None
    lines: bytes
    records: int


class Demux:
    """Feed it chunks, then `finish`. Everything comes out in the order it came in, each byte once."""

    def __init__(self, shape: RecordShape, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._shape = shape
        self._has_namespace = "namespace" in shape.head.groupindex
        self._reach = _REACH
        self._max_line_bytes = max_line_bytes
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[Run | bytes]:
        """What became whole with this chunk; lines keep their newline. Raises ProtocolViolation for an endless line."""
        start = chunk.find(b"\n") + 1 if self._pieces else 0
        end = chunk.rfind(b"\n") + 1
        if end and start:
            line = b"".join([*self._pieces, chunk[:start]])
            self._pieces, self._held_bytes = [], 0
            yield from self._split(line, 0, len(line))
        if end:
            yield from self._split(chunk, start, end)
        self._hold(chunk[end:])

    def finish(self) -> Iterator[Run | bytes]:
        """A last line that came without its newline; it gets one."""
        if self._held_bytes:
            yield from self.feed(b"\n")

    def _hold(self, piece: bytes) -> None:
        if not piece:
            return
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > self._max_line_bytes:
            raise self._endless_line()

    def _endless_line(self) -> ProtocolViolation:
        head = b"".join(piece[:_HEAD_BYTES] for piece in self._pieces[:64])[:_HEAD_BYTES]
        match = self._shape.head.match(head)
        return ProtocolViolation(
            "read the connector's output",
            f"a line of more than {self._max_line_bytes} bytes ({self._held_bytes} so far, and no end)",
            remedy="Raise the limit on a line's length if records of that size are meant.",
            stream=match["stream"].strip(b'"').decode(errors="replace") if match else None,
        )

    def _split(self, text: bytes, at: int, end: int) -> Iterator[Run | bytes]:
        """The whole lines of `text[at:end]`, which ends with a newline."""
        newlines = np.flatnonzero(np.frombuffer(text, np.uint8, end - at, at) == _NEWLINE)
        starts = np.concatenate(([at], newlines + (at + 1)))
        places, shared = starts.tolist(), _shared(text, starts[:-1], self._reach)
        line = 0
        while line < len(newlines):
            head = self._shape.head_of(text, places[line], places[line + 1])
            if head is None:
                yield text[places[line] : places[line + 1]]
                line += 1
                continue
            length = head.end() - head.start()
            if self._reach < length <= _LONGEST_REACH:
                self._reach = length
                shared = _shared(text, starts[:-1], length)
            first, line = line, _end_of_alike(shared, line, length)
            if not self._shape.settles(head):
                line = first + self._shape.ending_right(text, places[first : line + 1])
            namespace = head["namespace"] if self._has_namespace else None
            yield Run(head["stream"], namespace, text[places[first] : places[line]], line - first)


def _shared(text: bytes, starts: _Places, reach: int) -> _Places:
    """How many bytes, up to `reach`, each line has in common with the one before it; the first has none."""
    shared = np.zeros(len(starts), np.int64)
    whole = int(np.searchsorted(starts, len(text) - reach, side="right"))
    if whole > 1:
        heads = np.ndarray(len(text) - reach + 1, f"V{reach}", text, strides=1)[starts[:whole]]
        each = heads.view(np.uint8).reshape(whole, reach)
        differs = np.ones((whole - 1, reach + 1), bool)
        np.not_equal(each[1:], each[:-1], out=differs[:, :reach])
        shared[1:whole] = differs.argmax(axis=1)
    for line in range(max(whole, 1), len(starts)):  # The text ends before their reach does.
        before, this = (text[at : at + reach] for at in starts[line - 1 : line + 1])
        shared[line] = sum(takewhile(bool, map(eq, before, this)))
    return shared


def _end_of_alike(shared: _Places, line: int, length: int) -> int:
    """Behind the last of the lines from `line` on that have their first `length` bytes in common."""
    line += 1
    if line == len(shared) or shared[line] < length:  # So it is, mostly, where streams take turns.
        return line
    differs = shared[line:] < length
    return line + int(differs.argmax()) if differs.any() else len(shared)
