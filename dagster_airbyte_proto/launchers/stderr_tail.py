"""The last lines of a connector's stderr, in bounded memory whatever it writes."""

from collections import deque
from collections.abc import Callable

from dagster_airbyte_proto.masking import cut_text

_KEPT_LINES = 50
_KEPT_CHARACTERS = 2000
_MAX_LINE_BYTES = 16 * 1024
_HELD_BYTES = _MAX_LINE_BYTES + 1
"""One more says that the line is longer."""


class StderrTail:
    """Splits chunks into lines, passes them to `on_line` (without newline, cut at 16 KiB) and keeps the last fifty."""

    def __init__(self, on_line: Callable[[bytes], None] | None = None) -> None:
        self._on_line = on_line
        self._lines: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._unfinished = b""
        self.failure: Exception | None = None

    def receive(self, chunk: bytes) -> None:
        """Takes a chunk, or b"" at the end of the stream. Never raises.

        An error of `on_line` is stored as `failure`, and later lines are dropped. The draining thread must not stop: a
        connector whose stderr nobody reads blocks.
        """
        if self.failure is not None:
            return
        try:
            if chunk:
                self.feed(chunk)
            else:
                self.end()
        except Exception as error:  # noqa: BLE001 - the edge of the draining thread: `wait` raises it again
            self.failure = error

    def feed(self, chunk: bytes) -> None:
        first, *rest = chunk.split(b"\n")
        self._unfinished = (self._unfinished + first[:_HELD_BYTES])[:_HELD_BYTES]
        if not rest:
            return
        self._add_lines([self._unfinished, *rest[:-1]])
        self._unfinished = rest[-1][:_HELD_BYTES]

    def end(self) -> None:
        """Ends the stream: text without a newline counts as a line."""
        if self._unfinished:
            self._add_lines([self._unfinished])
            self._unfinished = b""

    def lines(self) -> tuple[str, ...]:
        return tuple(cut_text(line.decode(errors="replace"), _KEPT_CHARACTERS) for line in self._lines)

    def _add_lines(self, lines: list[bytes]) -> None:
        if self._on_line is None:
            lines = lines[-_KEPT_LINES:]  # without a listener, a flood of lines costs no work per line
        for line in lines:
            text = _cut(line.removesuffix(b"\r"))
            self._lines.append(text)
            if self._on_line is not None:
                self._on_line(text)


def _cut(line: bytes) -> bytes:
    if len(line) <= _MAX_LINE_BYTES:
        return line
    return cut_text(line.decode("latin-1"), _MAX_LINE_BYTES).encode("latin-1")
