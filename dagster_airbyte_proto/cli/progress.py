"""A sync to look at while it runs: a line a stream on a terminal, a few quiet lines anywhere else. All on stderr.

The reading thread calls `progressed` for every chunk, so that does next to nothing: the live view is drawn by a thread
of rich's own, and the quiet lines look at the clock first. Both only look at the streams, which the reading thread
owns, and a number that is a moment old does no harm.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from dagster_airbyte_proto.cli.output import counted, plain
from dagster_airbyte_proto.model import StreamId

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from dagster_airbyte_proto.sync.stream_run import StreamRun

Runs = Mapping[StreamId, "StreamRun"]
Clock = Callable[[], float]

_DRAWN_A_SECOND = 5
_LOOK_SECONDS = 0.2
_LINE_SECONDS = 10.0
_LOUD = frozenset({"NOTE", "WARN", "ERROR", "FATAL"})
_LINES_AROUND = 6
_PHASE_ORDER = ("reading", "failed", "waiting", "complete")
_KIB = 1024.0


class View(Protocol):
    """A Watcher that also answers whether the connector is being read."""

    is_reading: bool

    def began(self, run_id: str, runs: Runs) -> None: ...

    def progressed(self) -> None: ...

    def said(self, level: str, text: str) -> None: ...


@contextmanager
def view(connection: str) -> Iterator[View]:
    """The view that fits stderr, until the block ends."""
    if not sys.stderr.isatty():
        lines = QuietLines(connection, _write_line)
        yield lines
        lines.ended()
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, emoji=False)
    table = LiveTable(connection, lambda: console.height, lambda text: console.print(text, markup=False))
    drawing = Live(
        console=console,
        get_renderable=table.drawn,
        refresh_per_second=_DRAWN_A_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with drawing:
        yield table


class QuietLines:
    """For logs and pipes: a line when a stream's phase changes, and one every ten seconds."""

    def __init__(self, connection: str, write: Callable[[str], None], clock: Clock = time.monotonic) -> None:
        self._connection = connection
        self._write = write
        self._clock = clock
        self._runs: Runs = {}
        self._phases: dict[StreamId, str] = {}
        self._looked = self._began = self._told = clock()
        self._rows_told = 0
        self.is_reading = False

    def began(self, run_id: str, runs: Runs) -> None:
        self._runs = runs
        self._phases = dict.fromkeys(runs, "waiting")
        self._write(f"{self._connection}: run {run_id}, {counted(len(runs), 'stream')}")
        self.is_reading = True

    def progressed(self) -> None:
        now = self._clock()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        self._tell_phases()
        if now - self._told >= _LINE_SECONDS:
            self._tell_total(now)

    def said(self, level: str, text: str) -> None:
        if level in _LOUD:
            self._write(f"{self._connection}: {level} {plain(text)}")

    def ended(self) -> None:
        self._tell_phases()

    def _tell_phases(self) -> None:
        for stream, run in self._runs.items():
            if self._phases[stream] != run.phase:
                self._phases[stream] = run.phase
                rows = f", {counted(run.emitted, 'row')}" if run.emitted or run.phase != "reading" else ""
                self._write(f"{self._connection}.{stream}: {run.phase.value}{rows}")

    def _tell_total(self, now: float) -> None:
        rows = sum(run.emitted for run in self._runs.values())
        size = sum(run.bytes for run in self._runs.values())
        rate = (rows - self._rows_told) / (now - self._told)
        self._told, self._rows_told = now, rows
        seconds = now - self._began
        self._write(
            f"{self._connection}: {counted(rows, 'row')}, {rate:.0f} rows/s, {size_text(size)}, {seconds:.0f} s"
        )


class _Seen:
    """What drawing remembers of a stream (or of all) between two looks, for its rate and the age of its state."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=2 * _DRAWN_A_SECOND)
        self._states = 0
        self._state_at: float | None = None

    def rate(self, now: float, rows: int) -> float:
        """Rows a second over the last two seconds."""
        self._samples.append((now, rows))
        then, rows_then = self._samples[0]
        return (rows - rows_then) / (now - then) if now > then else 0.0

    def state_text(self, now: float, states: int) -> str:
        if states != self._states:
            self._states, self._state_at = states, now
        return "" if self._state_at is None else f"{states} ({now - self._state_at:.0f} s ago)"


class LiveTable:
    """For terminals. Shows as many streams as there is height for, those at work first, and a line for all."""

    def __init__(
        self,
        connection: str,
        height: Callable[[], int],
        print_above: Callable[[str], Any],
        clock: Clock = time.monotonic,
    ) -> None:
        self._connection = connection
        self._height = height
        self._print_above = print_above
        self._clock = clock
        self._began = clock()
        self._runs: Runs = {}
        self._seen: dict[StreamId | None, _Seen] = {}
        self._drawing = threading.Lock()
        self.is_reading = False

    def began(self, run_id: str, runs: Runs) -> None:  # noqa: ARG002 - the report has the run's id
        with self._drawing:
            self._runs = runs
            self._seen = {stream: _Seen() for stream in (None, *runs)}
        self.is_reading = True

    def progressed(self) -> None: ...

    def said(self, level: str, text: str) -> None:
        if level in _LOUD:
            self._print_above(f"{level} {plain(text)}")

    def drawn(self) -> "RenderableType":
        with self._drawing:
            if not self._runs:
                return f"{self._connection}: starting, {self._clock() - self._began:.0f} s"
            return self._table(self._clock())

    def _table(self, now: float) -> "Table":
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in (self._connection, "rows", "rows/s", "bytes", "states", "phase"):
            table.add_column(name, justify="right" if name in ("rows", "rows/s", "bytes") else "left", no_wrap=True)
        lines = [(stream, run, self._line(now, stream, run)) for stream, run in self._runs.items()]
        lines.sort(key=lambda line: _PHASE_ORDER.index(line[1].phase.value))
        room = max(1, self._height() - _LINES_AROUND)
        for _, _, line in lines[:room]:
            table.add_row(*line)
        if len(lines) > room:
            table.add_row(f"… {counted(len(lines) - room, 'more stream')}")
        table.add_section()
        table.add_row(*self._total(now))
        return table

    def _line(self, now: float, stream: StreamId, run: "StreamRun") -> tuple[str, ...]:
        seen = self._seen[stream]
        rate = f"{seen.rate(now, run.emitted):,.0f}"
        states = seen.state_text(now, run.states_seen)
        return (plain(str(stream)), f"{run.emitted:,}", rate, size_text(run.bytes), states, run.phase.value)

    def _total(self, now: float) -> tuple[str, ...]:
        runs = self._runs.values()
        rows = sum(run.emitted for run in runs)
        rate = f"{self._seen[None].rate(now, rows):,.0f}"
        size = size_text(sum(run.bytes for run in runs))
        return ("all", f"{rows:,}", rate, size, "", f"{now - self._began:.0f} s")


def size_text(size_bytes: float) -> str:
    """`1.5 MiB`, as people read it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < _KIB:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= _KIB
    return f"{size_bytes:.1f} TiB"


def _write_line(text: str) -> None:
    """One write, for lines come from several threads."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
