"""The input of a running destination: batches that wait for it, and the positions of ours after them.

The component counts records. A position is proved once so many are in as came before it, whoever cut the batches.
"""

from collections import deque
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.errors import ConnectorError, ProtocolViolation
from dagster_airbyte_proto.protocols.rapidbyte.messages import BATCH, INPUT_LINE, POSITION, ProvedPosition

ROOM_BYTES = 16 << 20
_MAX_LINE_BYTES = 64 << 10
_DOING = "reading what is written to a component"


class _Batch(NamedTuple):
    rows: int
    content: bytes | memoryview


class _Position(NamedTuple):
    rows_before: int
    """The rows of this run that come before it."""

    plan: str
    rows: int


class Inbox:
    """The input, as it comes in pieces. `is_closed` once no more will come, `is_over` once nobody takes any more."""

    def __init__(self, *, is_closed: bool = False) -> None:
        self.is_closed, self.is_over = is_closed, False
        self._batches: deque[_Batch] = deque()
        self._positions: deque[_Position] = deque()
        self._line = b""
        self._pieces: list[bytes | memoryview] = []
        self._missing = self._rows = 0  # Of the batch that is coming in.
        self._waiting_bytes = 0
        self._came = self._taken = self._proved = 0  # Rows of this run.

    @property
    def has_room(self) -> bool:
        return self._waiting_bytes < ROOM_BYTES

    @property
    def is_waited_for(self) -> bool:
        """True if there is nothing to take, and something may still come."""
        return not self._batches and not (self.is_closed or self.is_over)

    @property
    def has_untaken(self) -> bool:
        """True if a batch is there, or on its way, that nobody has taken."""
        return bool(self._batches or self._missing)

    def feed(self, data: bytes | memoryview) -> int:
        """Takes a piece of input. Returns its length. Raises ProtocolViolation; and ConnectorError for a batch once the
        run is over."""
        rest = memoryview(data).cast("B")
        while rest:
            if self._missing:
                rest = rest[self._fed_content(rest) :]
                continue
            head, newline, _ = bytes(rest[:_MAX_LINE_BYTES]).partition(b"\n")
            self._line += head
            rest = rest[len(head) + len(newline) :]
            if newline:
                self._take_line()
            elif len(self._line) > _MAX_LINE_BYTES:
                raise ProtocolViolation(_DOING, f"a line of over {_MAX_LINE_BYTES} bytes")
        return len(data)

    def next(self) -> bytes | memoryview | None:
        """The next batch, which the component has from now on; None if there is none."""
        if not self._batches:
            return None
        batch = self._batches.popleft()
        self._waiting_bytes -= len(batch.content)
        self._taken += batch.rows
        return batch.content

    def is_ahead(self, records: int) -> bool:
        """True if the component never got so many records."""
        return records > self._taken

    def proved(self, records: int) -> ProvedPosition | None:
        """The last position before which at most so many records come, if one is proved by that."""
        self._proved = max(self._proved, records)
        return self._moved(self._proved)

    def proved_by_end(self, written: int, failed: int, shown: int) -> ProvedPosition | None:
        """The position that a run proves which ended well, by its own counts. `shown` are the records that it rejected
        and showed."""
        took_all = self.is_closed and not self.has_untaken
        if not took_all or written + failed != self._taken or self._proved < written:
            return None
        found = self._moved(self._taken)
        hidden = max(0, failed - shown)
        return None if found is None else msgspec.structs.replace(found, failed=hidden)

    def _moved(self, records: int) -> ProvedPosition | None:
        found = None
        while self._positions and self._positions[0].rows_before <= records:
            found = self._positions.popleft()
        return None if found is None else ProvedPosition(found.plan, found.rows)

    def _fed_content(self, rest: memoryview) -> int:
        # Whoever writes what is read-only leaves it as it is: so a batch that comes whole is not copied.
        piece = rest[: self._missing] if rest.readonly else bytes(rest[: self._missing])
        self._pieces.append(piece)
        self._missing -= len(piece)
        if not self._missing:
            content = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces = []
            self._batches.append(_Batch(self._rows, content))
            self._waiting_bytes += len(content)
            self._came += self._rows
        return len(piece)

    def _take_line(self) -> None:
        line, self._line = self._line, b""
        try:
            found = INPUT_LINE.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProtocolViolation(_DOING, f"a line is no message: {error}") from error
        if found.type == BATCH and found.bytes > 0:
            if self.is_over:
                raise ConnectorError("writing to the component", "its run has ended, and it takes no more rows")
            self._rows, self._missing = found.rows, found.bytes
        elif found.type == POSITION:
            self._positions.append(_Position(self._came, found.plan, found.rows))


def records_processed(checkpoint: dict[str, Any]) -> int:
    """The records that a checkpoint says are in; 0 if it does not say."""
    payload = checkpoint.get("payload")
    found = (payload if isinstance(payload, dict) else checkpoint).get("records_processed")
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0
