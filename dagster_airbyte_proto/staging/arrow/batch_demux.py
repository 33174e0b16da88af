"""Splits the output of a connector that sends Arrow: lines, and the batches between them. Does no I/O.

A batch is a line that says how many bytes follow, then these bytes: a stream of Arrow's IPC format, with one schema and
any number of record batches. Nothing of it is copied where it comes in one chunk, as a component's launcher gives it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.rapidbyte.messages import batch_head

MAX_LINE_BYTES = 64 << 20
MAX_BATCH_BYTES = 512 << 20
_DOING = "reading the connector's output"


class ArrowContent(NamedTuple):
    """Batches of one stream as they came, for `record_batches` to read: one that is broken harms its stream alone."""

    stream: StreamId
    content: bytes


class BatchDemux:
    """Gives lines, and the batches of streams."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._batch: tuple[StreamId, int] | None = None

    def feed(self, chunk: bytes) -> Iterator[ArrowContent | bytes]:
        """The lines and batches that this chunk ends. Raises ProtocolViolation."""
        rest = memoryview(chunk)
        while rest:
            if self._batch is not None:
                rest = self._keep(rest, self._batch[1])
                if self._size == self._batch[1]:
                    (stream, _), self._batch = self._batch, None
                    yield ArrowContent(stream, self._whole())
                continue
            end = chunk.find(b"\n", len(chunk) - len(rest)) + 1
            rest = self._keep(rest, self._size + (end - len(chunk) + len(rest) if end else len(rest)))
            if self._size > MAX_LINE_BYTES:
                raise ProtocolViolation(_DOING, f"a line is longer than {MAX_LINE_BYTES} bytes")
            if end:
                yield from self._line()

    def finish(self) -> Iterator[ArrowContent | bytes]:
        """The last line, which may lack its newline. Raises ProtocolViolation if a batch is cut off."""
        if self._batch is not None:
            stream, size = self._batch
            found = f"a batch ends after {self._size} of {size} bytes"
            raise ProtocolViolation(_DOING, found, stream=str(stream))
        if self._size:
            yield from self._line()

    def _line(self) -> Iterator[bytes]:
        line = self._whole()
        self._batch = batch_head(line)
        if self._batch is None:
            yield line
        elif not 0 < self._batch[1] <= MAX_BATCH_BYTES:
            raise ProtocolViolation(_DOING, f"a batch of {self._batch[1]} bytes", stream=str(self._batch[0]))

    def _keep(self, rest: memoryview, wanted: int) -> memoryview:
        """Keeps bytes until there are as many as wanted. Returns what is left."""
        count = min(wanted - self._size, len(rest))
        # A whole chunk keeps its own bytes: only a part is copied.
        self._pieces.append(rest.obj if count == len(rest.obj) else bytes(rest[:count]))  # type: ignore[arg-type]  # of bytes
        self._size += count
        return rest[count:]

    def _whole(self) -> bytes:
        whole = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return whole
