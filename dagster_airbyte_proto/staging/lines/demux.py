"""From chunks of a connector's output to runs of record lines of one stream, and single other lines. Does no I/O.

Nothing happens in Python for a line of a run. Where lines begin, and how many bytes each has in common with the one
before it, is found for all lines of a chunk at once; the protocol's expression then looks at the first line of a run
alone, and says how many bytes the others must share with it. What it told is blanked in all lines of the run: spaces
cost the parser next to nothing. Where streams take turns, the lines of each come as one run: heads that were met before
are looked for in all lines at once. Whose records came between its own matters to no stream; where a line stands that
is no record does. A line longer than a chunk is kept as the pieces it came in, so that its cost stays linear in its
length.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from operator import eq
from typing import Final, NamedTuple

import numpy as np

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.protocols.wire import RecordShape

MAX_LINE_BYTES = 256 << 20
_HEAD_BYTES = 1 << 16
_NEWLINE: Final = ord("\n")
_Places = np.ndarray[tuple[int], np.dtype[np.int64]]
_Named = Sequence[tuple[bytes, bytes | None]]
# So many bytes of a line are compared with the line before, or as many as the heads met so far needed.
_REACH = 64
_LONGEST_REACH = 1024
# Of so many heads lines are known again by them, where runs are as short as that and so many lines come.
_MOST_HEADS = 16
_SHORT_RUN, _MANY_LINES = 4, 32
_UNKNOWN = -1
_BLANKED_HEADS = 4096

Lines = bytes | bytearray
"""Whole lines, each with its newline."""


StreamOf = Callable[[bytes, bytes | None], Hashable | None]
"""Of which stream records are whose heads have these as stream and namespace; None where that is not certain."""


class Run(NamedTuple):
    """Whole record lines of one stream, blanked of what their head told. `stream` and `namespace` are JSON text; None:
    the head does not say."""

    stream: bytes
    namespace: bytes | None
    lines: Lines
    records: int


class Demux:
    """Feed it chunks, then `finish`. Each line comes out once: the records of a stream in the order they came in, and
    any other behind all records that came before it."""

    def __init__(
        self, shape: RecordShape, stream_of: StreamOf = lambda *head: head, *, max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        self._shape = shape
        self._blanked = lru_cache(_BLANKED_HEADS)(lambda head: np.void(shape.blanked(head)))
        self._heads = _Heads(stream_of)
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
        line, turns = 0, None
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
            stream, namespace = head["stream"], head["namespace"] if self._has_namespace else None
            blanked = self._blanked(head[0])
            if not self._shape.settles(head):
                line = first + self._shape.ending_right(text, places[first : line + 1])
            elif line - first < _SHORT_RUN and len(newlines) - first >= _MANY_LINES:
                if self._heads.note(head[0], blanked, stream, namespace) or turns is None:
                    turns = self._heads.turns(text, starts, self._reach)
                if (behind := turns.end(first)) is not None:
                    yield from turns.runs(places, first, behind)
                    line = behind
                    continue
            lines = bytearray(memoryview(text)[places[first] : places[line]])
            _overwrite(lines, starts[first:line] - places[first], blanked)
            yield Run(stream, namespace, lines, line - first)


class _Heads:
    """Of streams that take turns: how their lines begin."""

    def __init__(self, stream_of: StreamOf) -> None:
        self._stream_of = stream_of
        self._met: set[bytes] = set()
        self._heads: list[tuple[bytes, np.void, int]] = []
        self._streams: dict[Hashable, int] = {}
        self._named: list[tuple[bytes, bytes | None]] = []

    def note(self, head: bytes, blanked: np.void, stream: bytes, namespace: bytes | None) -> bool:
        """Whether lines are known by one more."""
        if head in self._met or len(self._met) == _MOST_HEADS:
            return False
        self._met.add(head)
        if (of := self._stream_of(stream, namespace)) is None:
            return False
        number = self._streams.setdefault(of, len(self._streams))
        if number == len(self._named):
            self._named.append((stream, namespace))
        self._heads.append((head, blanked, number))
        return True

    def turns(self, text: bytes, starts: _Places, reach: int) -> "_Turns":
        lines = bytearray(text)
        heads = _beginnings(text, starts[:-1], reach)
        kinds = np.full(len(starts) - 1, _UNKNOWN, np.int8)
        for head, blanked, kind in self._heads:
            if len(head) <= reach:
                its = np.flatnonzero((heads[:, : len(head)] == np.frombuffer(head, np.uint8)).all(axis=1))
                kinds[its] = kind
                _overwrite(lines, starts[its], blanked)
        return _Turns(lines, kinds, self._named)


class _Turns:
    """The lines of a text, blanked where it is known whose they are: a number for each stream."""

    def __init__(self, text: bytearray, kinds: np.ndarray[tuple[int], np.dtype[np.int8]], named: _Named) -> None:
        self._text = text
        self._kinds = kinds
        self._named = named
        self._unknown = [*np.flatnonzero(kinds == _UNKNOWN).tolist(), len(kinds)]

    def end(self, first: int) -> int | None:
        """Behind the last line from the first on that is known, if they are many and take turns."""
        end = self._unknown[bisect_left(self._unknown, first)]
        if end - first < _MANY_LINES:
            return None
        kinds = self._kinds[first:end]
        return end if np.count_nonzero(kinds[1:] != kinds[:-1]) * _SHORT_RUN > end - first else None

    def runs(self, places: Sequence[int], first: int, end: int) -> Iterator[Run]:
        """Of each stream one."""
        kinds = self._kinds[first:end]
        for kind, (stream, namespace) in enumerate(self._named):
            lines = (np.flatnonzero(kinds == kind) + first).tolist()
            if lines:
                yield Run(
                    stream, namespace, b"".join([self._text[places[at] : places[at + 1]] for at in lines]), len(lines)
                )


def _shared(text: bytes, starts: _Places, reach: int) -> _Places:
    """How many bytes, up to `reach`, each line has in common with the one before it; the first has none."""
    shared = np.zeros(len(starts), np.int64)
    each = _beginnings(text, starts, reach)
    whole = len(each)
    if whole > 1:
        differs = np.ones((whole - 1, reach + 1), bool)
        np.not_equal(each[1:], each[:-1], out=differs[:, :reach])
        shared[1:whole] = differs.argmax(axis=1)
    for line in range(max(whole, 1), len(starts)):  # The text ends before their reach does.
        before, this = (text[at : at + reach] for at in starts[line - 1 : line + 1])
        shared[line] = sum(takewhile(bool, map(eq, before, this)))
    return shared


def _beginnings(text: bytes, starts: _Places, reach: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """The first bytes of each line, but of those before whose reach the text ends."""
    whole = int(np.searchsorted(starts, len(text) - reach, side="right"))
    if not whole:
        return np.empty((0, reach), np.uint8)
    heads = np.ndarray(len(text) - reach + 1, f"V{reach}", text, strides=1)[starts[:whole]]
    return heads.view(np.uint8).reshape(whole, reach)


def _overwrite(text: bytearray, places: _Places, head: np.void) -> None:
    """Puts the head at each of these places, in no time of Python's for any."""
    np.ndarray(len(text) - head.nbytes + 1, head.dtype, text, strides=1)[places] = head


def _end_of_alike(shared: _Places, line: int, length: int) -> int:
    """Behind the last of the lines from `line` on that have their first `length` bytes in common."""
    line += 1
    if line == len(shared) or shared[line] < length:  # So it is, mostly, where streams take turns.
        return line
    differs = shared[line:] < length
    return line + int(differs.argmax()) if differs.any() else len(shared)
