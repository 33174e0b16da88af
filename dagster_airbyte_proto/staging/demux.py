"""From chunks of a connector's output to runs of record lines of one stream, and single other lines. Does no I/O.

One match of the protocol's expression finds a whole run (1 to 1.5 GB/s; counting the newlines that the run's first
bytes follow is slower), and nothing happens in Python for a line of it. A line longer than a chunk is kept as the
pieces it came in, so that its cost stays linear in its length.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from dagster_airbyte_proto.errors import ProtocolViolation

MAX_LINE_BYTES = 256 << 20
_HEAD_BYTES = 1 << 16


class Run(NamedTuple):
    """Whole record lines of one stream. `stream` and `namespace` are JSON text; None: the line's head does not say."""

    stream: bytes
    namespace: bytes | None
    lines: bytes


class Demux:
    """Feed it chunks, then `finish`. Everything comes out in the order it came in, each byte once.

    `run` is a protocol's `RecordShape.run`.
    """

    def __init__(self, run: re.Pattern[bytes], max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._run = run
        self._has_namespace = "namespace" in run.groupindex
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
        match = self._run.match(head + b"\n")
        return ProtocolViolation(
            "read the connector's output",
            f"a line of more than {self._max_line_bytes} bytes ({self._held_bytes} so far, and no end)",
            remedy="Raise the limit on a line's length if records of that size are meant.",
            stream=match["stream"].strip(b'"').decode(errors="replace") if match else None,
        )

    def _split(self, text: bytes, at: int, end: int) -> Iterator[Run | bytes]:
        match_run = self._run.match
        while at < end:
            match = match_run(text, at, end)
            if match is None:
                line_end = text.find(b"\n", at) + 1
                yield text[at:line_end]
                at = line_end
            else:
                yield Run(match["stream"], match["namespace"] if self._has_namespace else None, match[0])
                at = match.end()
