"""The progress of a sync while it runs."""

from io import StringIO

import pytest
from rich.console import Console

from dagster_airbyte_proto.cli.output import Answer, Grid, json_text, plain, show
from dagster_airbyte_proto.cli.progress import LiveTable, ProgressLines, size_text
from dagster_airbyte_proto.model import PlannedStream, ReadMode, Stream, StreamId, TableName, WriteMode
from dagster_airbyte_proto.protocols.events import StreamStatus
from dagster_airbyte_proto.sync.stream_run import StreamRun


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def runs(*names: str) -> dict[StreamId, StreamRun]:
    made = {}
    for name in names:
        stream = Stream(StreamId.of(name), {})
        made[stream.id] = StreamRun(
            PlannedStream(stream, TableName("shop", name), ReadMode.FULL_REFRESH, WriteMode.APPEND)
        )
    return made


def drawn(table: LiveTable, width: int = 100) -> list[str]:
    console = Console(file=StringIO(), width=width)
    with console.capture() as capture:
        console.print(table.drawn())
    return [line.strip() for line in capture.get().splitlines() if line.strip()]


def test_quiet_lines_come_with_a_phase_and_every_ten_seconds() -> None:
    clock, lines = Clock(), list[str]()
    quiet = ProgressLines("shop", lines.append, clock)
    streams = runs("users")
    run = streams[StreamId.of("users")]
    quiet.run_started("r1", streams)
    quiet.progressed()
    assert lines == ["shop: run r1, 1 stream"]
    run.reported_status, run.counts.emitted, run.counts.bytes = StreamStatus.RUNNING, 50, 2048
    quiet.progressed()
    assert len(lines) == 1, "it looks five times a second, not at every chunk"
    clock.now = 5.0
    quiet.progressed()
    assert lines[1:] == ["shop.users: reading, 50 rows"]
    clock.now = 10.0
    run.outcome.committed = 40
    quiet.progressed()
    assert lines[2:] == ["shop: 50 rows, 40 committed, 5 rows/s, 2.0 KiB, 10 s"]
    run.is_complete = True
    quiet.ended()
    assert lines[3:] == ["shop.users: complete, 50 rows"]


def test_only_loud_lines_of_the_connector_are_passed_on_and_cannot_steer_the_terminal() -> None:
    lines: list[str] = []
    quiet = ProgressLines("shop", lines.append)
    quiet.connector_logged("INFO", "all is well")
    quiet.connector_logged("WARN", "\x1b[2Jmind the gap")
    assert lines == ["shop: WARN �[2Jmind the gap"]


def test_the_live_table_has_a_line_a_stream_and_one_for_all() -> None:
    clock = Clock()
    table = LiveTable("shop", lambda: 40, print, clock)
    assert drawn(table) == ["shop: starting, 0 s"]
    streams = runs("users", "orders")
    users = streams[StreamId.of("users")]
    table.run_started("r1", streams)
    drawn(table)
    users.reported_status = StreamStatus.RUNNING
    users.counts.emitted, users.counts.bytes, users.counts.states = 3000, 1 << 20, 2
    users.outcome.committed = 2500
    clock.now = 2.0
    drawn(table)
    clock.now = 3.0
    lines = drawn(table)
    assert lines[2].split() == ["users", "3,000", "2,500", "1,000", "1.0", "MiB", "1", "s", "ago", "reading"]
    assert lines[3].split()[0] == "orders" and lines[3].endswith("waiting")
    assert lines[-1].split()[:3] == ["all", "3,000", "2,500"]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_live_table_fits_and_cuts_only_names(width: int) -> None:
    table = LiveTable("shop", lambda: 40, print)
    streams = runs("subscription_change_events_of_all_customers_and_of_their_orders_of_all_years_ever_so_long")
    table.run_started("r1", streams)
    for run in streams.values():
        run.reported_status = StreamStatus.RUNNING
        run.counts.emitted, run.outcome.committed, run.counts.bytes = 12_345_678, 12_000_000, 987 << 20
    lines = drawn(table, width)
    assert max(map(len, lines)) <= width and len(lines) == 4
    assert lines[2].split()[1:] == ["12,345,678", "12,000,000", "0", "987.0", "MiB", "reading"]
    assert lines[2].startswith("subs") and (lines[2].split()[0].endswith("…") or width == 160)


@pytest.mark.parametrize(
    ("width", "numbers"),
    [
        (60, ["40,000", "39,900", "0", "5.0", "MiB"]),
        (50, ["40,000", "39,900", "0"]),
        (44, ["40,000", "39,900"]),
        (40, ["40,000"]),
        (32, ["40,000"]),
    ],
)
def test_the_live_table_leaves_out_columns_before_it_cuts_a_number(width: int, numbers: list[str]) -> None:
    table = LiveTable("shop", lambda: 40, print)
    streams = runs("subscription_change_events")
    table.run_started("r1", streams)
    for run in streams.values():
        run.reported_status = StreamStatus.RUNNING
        run.counts.emitted, run.outcome.committed, run.counts.bytes = 40_000, 39_900, 5 << 20
    lines = drawn(table, width)
    assert lines[2].startswith("subscriptio") and lines[2].split()[1:] == [*numbers, "reading"]
    assert max(map(len, lines)) <= width and len(lines) == 4


def test_more_streams_than_lines_are_summed_up_with_those_at_work_on_top() -> None:
    table = LiveTable("shop", lambda: 10, print)
    streams = runs(*(f"s{number}" for number in range(100)))
    streams[StreamId.of("s77")].reported_status = StreamStatus.RUNNING
    table.run_started("r1", streams)
    lines = drawn(table)
    assert lines[2].startswith("s77")
    assert "… 96 more streams" in lines


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")])
def test_sizes_read_well(size: int, text: str) -> None:
    assert size_text(size) == text


def test_json_has_no_numbers_that_json_lacks() -> None:
    assert json_text({"a": [float("nan"), 1.5], "b": 2**70}) == '{"a": [null, 1.5], "b": 1180591620717411303424}'
    assert json_text("é\ud800") == '"\\u00e9\\ud800"'


def test_tables_are_not_cut_where_stdout_is_no_terminal() -> None:
    out = StringIO()
    show(Answer({}, (Grid(("a", "b"), [("x" * 1500, 7), ("[bold]y", None)]),)), out, as_json=False)
    assert "x" * 1500 + "  7" in out.getvalue()
    assert "[bold]y" in out.getvalue()


def test_text_from_elsewhere_has_an_end() -> None:
    assert plain("a" * 10, max_characters=4) == "aaaa…"
