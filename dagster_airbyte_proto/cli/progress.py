"""Shows the progress of a sync on stderr: a live table on a terminal, a few lines anywhere else.

The reading thread calls `progressed` for every chunk, so it must cost almost nothing: rich draws the live table in a
thread of its own, and the lines check the clock first. Both only read the counters of the streams, which the reading
thread owns; a number that is a moment old does no harm.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dagster_airbyte_proto.cli.output import plain
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.plurals import counted
from dagster_airbyte_proto.stack_traces import brief_log_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text

    from dagster_airbyte_proto.sync.stream_run import StreamRun

Runs = Mapping[StreamId, "StreamRun"]
Clock = Callable[[], float]

_DRAWN_A_SECOND = 5
_NUMBERS = ("rows", "committed", "rows/s", "bytes", "last state")
_PHASE = "phase"
_FIRST_TO_GO = ("last state", "bytes", "rows/s", "committed")
"""The columns that a narrow terminal does without, the first one first."""
_LEAST_NAME = 12
# rich draws one space at each edge and two between two columns.
_EDGES, _GAP = 2, 2
_CHECK_SECONDS = 0.2
_LINE_SECONDS = 10.0
_LINES_AROUND = 6
_PHASE_ORDER = ("reading", "failed", "cancelled", "waiting", "complete")
_KIB = 1024.0
_MAX_VERBOSE_CHARACTERS = 64 << 10


class ProgressView(Protocol):
    """A ProgressListener that also answers whether the connector is being read."""

    is_reading: bool

    def run_started(self, run_id: str, runs: Runs) -> None: ...

    def progressed(self) -> None: ...

    def connector_logged(self, level: str, text: str) -> None: ...


@contextmanager
def progress_view(connection: str, *, is_verbose: bool = False) -> Iterator[ProgressView]:
    """Opens the view that suits stderr, until the block ends."""
    if not sys.stderr.isatty():
        lines = ProgressLines(connection, write_line, is_verbose=is_verbose)
        yield lines
        lines.ended()
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, emoji=False)
    table = LiveTable(
        connection, lambda: console.height, lambda text: console.print(text, markup=False), is_verbose=is_verbose
    )
    drawing = Live(
        console=console,
        get_renderable=table.drawn,
        refresh_per_second=_DRAWN_A_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with drawing:
        yield table


def _name(stream: str) -> "Text":
    """A stream's name, cut where the column is too narrow."""
    from rich.text import Text

    return Text(plain(stream), no_wrap=True, overflow="ellipsis")


class ProgressLines:
    """Progress for logs and pipes: a line when a stream's phase changes, and one every ten seconds."""

    def __init__(
        self,
        connection: str,
        write: Callable[[str], None],
        clock: Clock = time.monotonic,
        *,
        is_verbose: bool = False,
    ) -> None:
        self._connection = connection
        self._is_verbose = is_verbose
        self._write = write
        self._clock = clock
        self._runs: Runs = {}
        self._phases: dict[StreamId, str] = {}
        self._checked_at = self._started_at = self._reported_at = clock()
        self._reported_rows = 0
        self.is_reading = False

    def run_started(self, run_id: str, runs: Runs) -> None:
        self._runs = runs
        self._phases = dict.fromkeys(runs, "waiting")
        self._write(f"{self._connection}: run {run_id}, {counted(len(runs), 'stream')}")
        self.is_reading = True

    def progressed(self) -> None:
        now = self._clock()
        if now - self._checked_at < _CHECK_SECONDS:
            return
        self._checked_at = now
        self._write_phases()
        if now - self._reported_at >= _LINE_SECONDS:
            self._write_total(now)

    def connector_logged(self, level: str, text: str) -> None:
        if line := log_line(level, text, is_verbose=self._is_verbose):
            self._write(f"{self._connection}: {line}")

    def ended(self) -> None:
        self._write_phases()

    def _write_phases(self) -> None:
        for stream, run in self._runs.items():
            if self._phases[stream] != run.phase:
                self._phases[stream] = run.phase
                rows = f", {counted(run.counts.emitted, 'row')}" if run.counts.emitted or run.phase != "reading" else ""
                self._write(f"{self._connection}.{stream}: {run.phase.value}{rows}")

    def _write_total(self, now: float) -> None:
        rows = sum(run.counts.emitted for run in self._runs.values())
        committed = sum(run.outcome.committed for run in self._runs.values())
        size = sum(run.counts.bytes for run in self._runs.values())
        rate = (rows - self._reported_rows) / (now - self._reported_at)
        self._reported_at, self._reported_rows = now, rows
        seconds = now - self._started_at
        self._write(
            f"{self._connection}: {counted(rows, 'row')}, {committed:,} committed, {rate:,.0f} rows/s, "
            f"{size_text(size)}, {seconds:.0f} s"
        )


class _Samples:
    """The samples of a stream (or of all streams) between two drawings, for its rate and the age of its state."""

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
        return "" if self._state_at is None else f"{now - self._state_at:.0f} s ago"


class LiveTable:
    """Progress for terminals: as many streams as fit the height, active ones first, and a line for the total."""

    def __init__(
        self,
        connection: str,
        height: Callable[[], int],
        print_above: Callable[[str], Any],
        clock: Clock = time.monotonic,
        *,
        is_verbose: bool = False,
    ) -> None:
        self._connection = connection
        self._is_verbose = is_verbose
        self._height = height
        self._print_above = print_above
        self._clock = clock
        self._started_at = clock()
        self._runs: Runs = {}
        self._samples_of: dict[StreamId | None, _Samples] = {}
        self._drawing = threading.Lock()
        self.is_reading = False

    def run_started(self, run_id: str, runs: Runs) -> None:  # noqa: ARG002 - the report has the run's id
        with self._drawing:
            self._runs = runs
            self._samples_of = {stream: _Samples() for stream in (None, *runs)}
        self.is_reading = True

    def progressed(self) -> None: ...

    def connector_logged(self, level: str, text: str) -> None:
        if line := log_line(level, text, is_verbose=self._is_verbose):
            self._print_above(line)

    def drawn(self) -> "RenderableType":
        with self._drawing:
            if not self._runs:
                return f"{self._connection}: starting, {self._clock() - self._started_at:.0f} s"
            return self._table(self._clock())

    def _table(self, now: float) -> "_FittingTable":
        lines = [(stream, run, self._line(now, stream, run)) for stream, run in self._runs.items()]
        lines.sort(key=lambda line: _PHASE_ORDER.index(line[1].phase.value))
        room = max(1, self._height() - _LINES_AROUND)
        more = f"… {counted(len(lines) - room, 'more stream')}" if len(lines) > room else ""
        return _FittingTable(self._connection, [line for _, _, line in lines[:room]], more, self._total(now))

    def _line(self, now: float, stream: StreamId, run: "StreamRun") -> tuple[str, ...]:
        samples = self._samples_of[stream]
        rate = f"{samples.rate(now, run.counts.emitted):,.0f}"
        states = samples.state_text(now, run.counts.states)
        return (
            plain(str(stream)),
            f"{run.counts.emitted:,}",
            f"{run.outcome.committed:,}",
            rate,
            size_text(run.counts.bytes),
            states,
            run.phase.value,
        )

    def _total(self, now: float) -> tuple[str, ...]:
        runs = self._runs.values()
        rows = sum(run.counts.emitted for run in runs)
        rate = f"{self._samples_of[None].rate(now, rows):,.0f}"
        size = size_text(sum(run.counts.bytes for run in runs))
        committed = sum(run.outcome.committed for run in runs)
        return ("all", f"{rows:,}", f"{committed:,}", rate, size, "", f"{now - self._started_at:.0f} s")


class _FittingTable(NamedTuple):
    """The table in the width of the terminal that draws it: names are cut, and then columns left out. A number that is
    cut would be another."""

    title: str
    lines: Sequence[tuple[str, ...]]
    more: str
    total: tuple[str, ...]

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[Table]":
        yield self._table(self._columns_within(options.max_width))

    def _columns_within(self, width: int) -> list[int]:
        from rich.cells import cell_len

        widths = [
            max(map(cell_len, cells))
            for cells in zip((self.title, *_NUMBERS, _PHASE), *self.lines, self.total, strict=True)
        ]
        widths[0] = min(widths[0], _LEAST_NAME)
        kept = list(range(len(widths)))
        for name in _FIRST_TO_GO:
            if _EDGES + sum(widths[number] for number in kept) + _GAP * (len(kept) - 1) > width:
                kept.remove(1 + _NUMBERS.index(name))
        return kept

    def _table(self, columns: Sequence[int]) -> "Table":
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        names = (self.title, *_NUMBERS, _PHASE)
        for number in columns:
            if number == 0:
                table.add_column(self.title, overflow="ellipsis")
            else:
                table.add_column(names[number], justify="left" if names[number] == _PHASE else "right", no_wrap=True)
        for line in self.lines:
            table.add_row(_name(line[0]), *(line[number] for number in columns[1:]))
        if self.more:
            table.add_row(self.more)
        table.add_section()
        table.add_row(*(self.total[number] for number in columns))
        return table


def log_line(level: str, text: str, *, is_verbose: bool) -> str:
    """A line of the run's log, for people: without stack traces, and empty for one that only `is_verbose` shows."""
    if is_verbose:
        return f"{level} {plain(text, max_characters=_MAX_VERBOSE_CHARACTERS)}"
    return plain(brief_log_line(level, text))


def size_text(size_bytes: float) -> str:
    """A size as text: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < _KIB:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= _KIB
    return f"{size_bytes:.1f} TiB"


def write_line(text: str) -> None:
    """Writes the line in one call, because lines come from several threads."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
