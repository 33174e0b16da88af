"""Splits chunks of a connector's output into runs of record lines of one stream, and single other lines. Does no I/O.

No Python code runs for a single line of a run:

- The starts of lines, and the number of bytes that each line shares with the line before it, are found for all lines of
  a chunk at once.
- The protocol's expression `head` is matched against the first line of a run only. Lines that share the bytes of its
  head belong to the same run.
- The members that the head made known are overwritten with spaces in all lines of the run: spaces cost the parser next
  to nothing.
- Where lines of several streams alternate, runs would be short. There the heads seen so far are compared with all lines
  at once, and the lines of each stream come as one run. This changes the order of records of different streams, which
  means nothing; a line that is no record keeps its position between records.
- A line longer than a chunk is kept as the pieces in which it came, so that its cost stays linear in its length.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from operator import eq
from typing import Final, NamedTuple

import numpy as np

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.protocols.wire import RecordWire

MAX_LINE_BYTES = 256 << 20
_HEAD_BYTES = 1 << 16
_NEWLINE: Final = ord("\n")
_Offsets = np.ndarray[tuple[int], np.dtype[np.int64]]
_NamedStreams = Sequence[tuple[bytes, bytes | None]]
# The number of bytes of a line that are compared with the line before. It grows to the longest head seen, up to the
# maximum; lines with a longer head come as runs of one.
_PREFIX_BYTES = 64
_MAX_PREFIX_BYTES = 1024
# Interleaved streams are looked for where a run is shorter than `_SHORT_RUN_LINES` and at least
# `_MIN_INTERLEAVED_LINES` lines are left, for at most `_MAX_PREFIXES` different heads.
_MAX_PREFIXES = 16
_SHORT_RUN_LINES, _MIN_INTERLEAVED_LINES = 4, 32
_UNKNOWN = -1
_CACHED_HEADS = 4096

Lines = bytes | bytearray
"""Whole lines, each with its newline."""


StreamOf = Callable[[bytes, bytes | None], Hashable | None]
"""Returns the stream of records whose head has this stream and namespace; None where that is not certain."""


class RecordLines(NamedTuple):
    """A run of whole record lines of one stream, with spaces for the members that their head made known.

    `stream` and `namespace` are JSON texts. `namespace` is None where the head does not have it.
    """

    stream: bytes
    namespace: bytes | None
    lines: Lines
    records: int


class Demux:
    """Splits a connector's output. Call `feed` with each chunk, then `finish`.

    Each line comes out once: the records of a stream in the order in which they came, and any other line after all
    records that came before it.
    """

    def __init__(
        self, record_wire: RecordWire, stream_of: StreamOf = lambda *head: head, *, max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        self._record_wire = record_wire
        self._blanked = lru_cache(_CACHED_HEADS)(lambda head: np.void(record_wire.blank_known_members(head)))
        self._prefixes = _KnownPrefixes(stream_of)
        self._has_namespace = "namespace" in record_wire.head.groupindex
        self._prefix_bytes = _PREFIX_BYTES
        self._max_line_bytes = max_line_bytes
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[RecordLines | bytes]:
        """Yields what this chunk completes; lines keep their newline. Raises ProtocolViolation for a line that is too
        long."""
        start = chunk.find(b"\n") + 1 if self._pieces else 0
        end = chunk.rfind(b"\n") + 1
        if end and start:
            line = b"".join([*self._pieces, chunk[:start]])
            self._pieces, self._held_bytes = [], 0
            yield from self._split_lines(line, 0, len(line))
        if end:
            yield from self._split_lines(chunk, start, end)
        self._hold(chunk[end:])

    def finish(self) -> Iterator[RecordLines | bytes]:
        """Yields a last line that came without a newline, and gives it one."""
        if self._held_bytes:
            yield from self.feed(b"\n")

    def _hold(self, piece: bytes) -> None:
        if not piece:
            return
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > self._max_line_bytes:
            raise self._line_too_long()

    def _line_too_long(self) -> ProtocolViolation:
        head = b"".join(piece[:_HEAD_BYTES] for piece in self._pieces[:64])[:_HEAD_BYTES]
        match = self._record_wire.head.match(head)
        return ProtocolViolation(
            "reading the connector's output",
            f"a line of more than {self._max_line_bytes} bytes ({self._held_bytes} so far, and no end)",
            remedy="Leave out the stream, or have the connector leave out the field that is so large.",
            stream=match["stream"].strip(b'"').decode(errors="replace") if match else None,
        )

    def _split_lines(self, text: bytes, at: int, end: int) -> Iterator[RecordLines | bytes]:
        """Splits the whole lines of `text[at:end]`, which ends with a newline."""
        newlines = np.flatnonzero(np.frombuffer(text, np.uint8, end - at, at) == _NEWLINE)
        starts = np.concatenate(([at], newlines + (at + 1)))
        offsets, shared = starts.tolist(), _shared_prefix_lengths(text, starts[:-1], self._prefix_bytes)
        line, interleaved = 0, None
        while line < len(newlines):
            head = self._record_wire.match_head(text, offsets[line], offsets[line + 1])
            if head is None:
                yield text[offsets[line] : offsets[line + 1]]
                line += 1
                continue
            length = head.end() - head.start()
            if self._prefix_bytes < length <= _MAX_PREFIX_BYTES:
                self._prefix_bytes = length
                shared = _shared_prefix_lengths(text, starts[:-1], length)
            first, line = line, _end_of_shared_prefix(shared, line, length)
            stream, namespace = head["stream"], head["namespace"] if self._has_namespace else None
            blanked = self._blanked(head[0])
            if not self._record_wire.is_conclusive(head):
                line = first + self._record_wire.count_complete(text, offsets[first : line + 1])
            elif line - first < _SHORT_RUN_LINES and len(newlines) - first >= _MIN_INTERLEAVED_LINES:
                if self._prefixes.add(head[0], blanked, stream, namespace) or interleaved is None:
                    interleaved = self._prefixes.match_lines(text, starts, self._prefix_bytes)
                if (end_of_lines := interleaved.end_of_interleaved(first)) is not None:
                    yield from interleaved.record_lines(offsets, first, end_of_lines)
                    line = end_of_lines
                    continue
            lines = bytearray(memoryview(text)[offsets[first] : offsets[line]])
            _overwrite(lines, starts[first:line] - offsets[first], blanked)
            yield RecordLines(stream, namespace, lines, line - first)


class _KnownPrefixes:
    """The heads seen so far of interleaved streams, by which their lines are recognized."""

    def __init__(self, stream_of: StreamOf) -> None:
        self._stream_of = stream_of
        self._seen: set[bytes] = set()
        self._prefixes: list[tuple[bytes, np.void, int]] = []
        self._streams: dict[Hashable, int] = {}
        self._streams_named: list[tuple[bytes, bytes | None]] = []

    def add(self, head: bytes, blanked: np.void, stream: bytes, namespace: bytes | None) -> bool:
        """Adds a head; False if it is known already, of no certain stream, or one too many."""
        if head in self._seen or len(self._seen) == _MAX_PREFIXES:
            return False
        self._seen.add(head)
        if (stream_key := self._stream_of(stream, namespace)) is None:
            return False
        number = self._streams.setdefault(stream_key, len(self._streams))
        if number == len(self._streams_named):
            self._streams_named.append((stream, namespace))
        self._prefixes.append((head, blanked, number))
        return True

    def match_lines(self, text: bytes, starts: _Offsets, prefix_bytes: int) -> "_Interleaved":
        lines = bytearray(text)
        heads = _line_prefixes(text, starts[:-1], prefix_bytes)
        stream_numbers = np.full(len(starts) - 1, _UNKNOWN, np.int8)
        for head, blanked, number in self._prefixes:
            if len(head) <= prefix_bytes:
                matching = np.flatnonzero((heads[:, : len(head)] == np.frombuffer(head, np.uint8)).all(axis=1))
                stream_numbers[matching] = number
                _overwrite(lines, starts[matching], blanked)
        return _Interleaved(lines, stream_numbers, self._streams_named)


class _Interleaved:
    """The lines of a text with the number of their stream, if a known head matched; those lines are blanked."""

    def __init__(
        self, text: bytearray, stream_numbers: np.ndarray[tuple[int], np.dtype[np.int8]], streams_named: _NamedStreams
    ) -> None:
        self._text = text
        self._stream_numbers = stream_numbers
        self._streams_named = streams_named
        self._unknown = [*np.flatnonzero(stream_numbers == _UNKNOWN).tolist(), len(stream_numbers)]

    def end_of_interleaved(self, first: int) -> int | None:
        """Returns the end of the recognized lines from `first` on; None if they are few, or hardly alternate."""
        end = self._unknown[bisect_left(self._unknown, first)]
        if end - first < _MIN_INTERLEAVED_LINES:
            return None
        stream_numbers = self._stream_numbers[first:end]
        changes = np.count_nonzero(stream_numbers[1:] != stream_numbers[:-1])
        return end if changes * _SHORT_RUN_LINES > end - first else None

    def record_lines(self, offsets: Sequence[int], first: int, end: int) -> Iterator[RecordLines]:
        """Yields one run for each stream."""
        stream_numbers = self._stream_numbers[first:end]
        for number, (stream, namespace) in enumerate(self._streams_named):
            lines = (np.flatnonzero(stream_numbers == number) + first).tolist()
            if lines:
                yield RecordLines(
                    stream, namespace, b"".join([self._text[offsets[at] : offsets[at + 1]] for at in lines]), len(lines)
                )


def _shared_prefix_lengths(text: bytes, starts: _Offsets, prefix_bytes: int) -> _Offsets:
    """Returns how many bytes, up to `prefix_bytes`, each line shares with the one before it; 0 for the first."""
    shared = np.zeros(len(starts), np.int64)
    each = _line_prefixes(text, starts, prefix_bytes)
    whole = len(each)
    if whole > 1:
        differs = np.ones((whole - 1, prefix_bytes + 1), bool)
        np.not_equal(each[1:], each[:-1], out=differs[:, :prefix_bytes])
        shared[1:whole] = differs.argmax(axis=1)
    for line in range(max(whole, 1), len(starts)):  # The text ends within `prefix_bytes` bytes of these starts.
        before, this = (text[at : at + prefix_bytes] for at in starts[line - 1 : line + 1])
        shared[line] = sum(takewhile(bool, map(eq, before, this)))
    return shared


def _line_prefixes(text: bytes, starts: _Offsets, prefix_bytes: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Returns the first `prefix_bytes` bytes from each start, but not of the last lines, which are too short."""
    whole = int(np.searchsorted(starts, len(text) - prefix_bytes, side="right"))
    if not whole:
        return np.empty((0, prefix_bytes), np.uint8)
    heads = np.ndarray(len(text) - prefix_bytes + 1, f"V{prefix_bytes}", text, strides=1)[starts[:whole]]
    return heads.view(np.uint8).reshape(whole, prefix_bytes)


def _overwrite(text: bytearray, offsets: _Offsets, head: np.void) -> None:
    """Writes the head at each of these places, in one numpy call."""
    np.ndarray(len(text) - head.nbytes + 1, head.dtype, text, strides=1)[offsets] = head


def _end_of_shared_prefix(shared: _Offsets, line: int, length: int) -> int:
    """Returns the end of the lines from `line` on that share their first `length` bytes."""
    line += 1
    if line == len(shared) or shared[line] < length:  # The usual case where streams alternate.
        return line
    differs = shared[line:] < length
    return line + int(differs.argmax()) if differs.any() else len(shared)
