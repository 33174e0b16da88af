"""The tables for people, at the widths of terminals that people have."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from dagster_airbyte_proto.cli.call import Call
from dagster_airbyte_proto.cli.commands.machine.envs import environments_table
from dagster_airbyte_proto.cli.commands.push import report_parts as push_parts
from dagster_airbyte_proto.cli.commands.status import status_parts
from dagster_airbyte_proto.cli.commands.sync import report_parts
from dagster_airbyte_proto.cli.output import Answer, Grid, draw
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.diagnosis.connection_status import ConnectionStatus
from dagster_airbyte_proto.launchers.packages.installed import InstalledEnvironment
from dagster_airbyte_proto.sync.push_report import PushReport
from dagster_airbyte_proto.sync.report import SyncReport
from tests.cli.conftest import USERS, Place

WIDTHS = (80, 100, 160)
SNAPSHOTS = Path(__file__).parent / "snapshots"

REPORT: dict[str, Any] = {
    "connection": "shopify",
    "status": "partial",
    "run_id": "20261126T113410-2e08a82ff9",
    "recovered_loads": 0,
    "streams": {
        "customers": {
            "status": "complete",
            "table": "lake.shopify_production.customers",
            "emitted": 1_250_000,
            "committed": 1_250_000,
            "load_ids": ["a", "b"],
            "state": {"updated_at": "2026-11-26T11:34:10Z"},
        },
        "order_items_history": {
            "status": "failed",
            "table": "lake.shopify_production.order_items_history",
            "emitted": 7_012,
            "committed": 7_000,
            "rejected": 12,
            "rejections": {"every part of the key is null": 12},
            "error": "reading from the connector (stream order_items_history): exited with code 1: KeyError: 'count'",
            "bytes": 2_100_000,
            "load_ids": ["b"],
        },
    },
    "loads": 3,
    "lines": {},
    "connector": {},
    "seconds": {"total": 61.25},
    "log": "/home/me/shop/.airbyte-proto/logs/shopify/20261126T113410-2e08a82ff9.log",
}
PUSHED: dict[str, Any] = {
    "connection": "crm_production",
    "status": "partial",
    "run_id": "20261126T113410-2e08a82ff9",
    "recovered_loads": 1,
    "streams": {
        "contacts": {
            "status": "complete",
            "from": "lake.shopify_production.customers",
            "planned": {"added": 1_200, "changed": 35, "removed": 4, "unchanged": 1_248_765},
            "sent": 1_239,
            "acknowledged": 1_237,
            "rejected": 2,
            "rejections": {"email_address: is no address": 2},
        },
        "order_items_history": {
            "status": "failed",
            "from": "a query",
            "planned": {"added": 70_120, "changed": None, "removed": None, "unchanged": None},
            "sent": 10_000,
            "acknowledged": 9_000,
            "unknown": 1_000,
            "resumed": 20_000,
            "error": "sending rows to the destination (stream order_items_history): exited with code 1: quota exceeded",
        },
    },
    "seconds": 61.25,
    "log": "/home/me/shop/.airbyte-proto/logs/crm_production/20261126T113410-2e08a82ff9.log",
}
NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
QUERIED = Grid(
    ("id", "year", "name", "address", "note"),
    [
        (1000001, 2026, "Ada Lovelace", "12 St James's Square, London SW1Y 4JH", None),
        (
            1000002,
            2025,
            "李清照",
            "济南市历下区",
            "first line\nsecond line, which is so long that it does not fit eighty columns",
        ),
    ],
)


def drawn(parts: Sequence[str | Grid], width: int) -> str:
    console = Console(file=StringIO(), width=width, highlight=False, emoji=False)
    with console.capture() as capture:
        draw(parts, console)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().strip("\n").splitlines())


def assert_is_as_saved(name: str, parts: Sequence[str | Grid]) -> None:
    """Compares the text at each width with its file; a file that is missing is written, and the test fails."""
    for width in WIDTHS:
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-11-26 11:34:12", drawn(parts, width))
        text = re.sub(r"\b20\d{6}T\d{6}-[0-9a-f]{10}\b", "20261126T113412-0123456789", text)
        text = re.sub(r"(?<=-0123456789-)[0-9a-f]{12}\b", "0123456789ab", text)
        file = SNAPSHOTS / f"{name}-{width}.txt"
        if not file.exists():
            file.write_text(text)
            pytest.fail(f"{file} is new: read it")
        assert text == file.read_text(), f"{name} at {width} columns"
        tables = [part for part in parts if isinstance(part, Grid)]
        assert max(cell_len(line) for line in drawn(tables, width).splitlines()) <= width


def answer(*words: str) -> Answer:
    found = program.main(list(words), prog_name="airbyte-proto", obj=Call(), standalone_mode=False)
    assert isinstance(found, Answer)
    return found


def test_the_report_of_a_sync_fits_a_terminal() -> None:
    assert_is_as_saved("sync", report_parts(msgspec.convert(REPORT, SyncReport)))


def test_a_report_in_which_all_is_well_has_no_columns_of_zeros() -> None:
    streams = {"customers": REPORT["streams"]["customers"]}
    report = msgspec.convert({**REPORT, "status": "complete", "streams": streams}, SyncReport)
    table, line = report_parts(report)
    assert isinstance(table, Grid) and table.columns == ["stream", "status", "table", "emitted", "committed"]
    assert line == "shopify: complete, 2 loads, 0 B, 61.2 s", "loads with rows, as Dagster counts them"


def test_the_streams_of_a_connector_fit_a_terminal(place: Place) -> None:
    streams = {"users": {"records": 1}, "subscription_change_events": {"records": 1, "incremental": False}}
    assert_is_as_saved("discover", [*answer("discover", place.connect({"streams": streams})).parts])


def test_the_states_of_a_connection_fit_a_terminal(place: Place) -> None:
    answer("sync", place.connect(USERS))
    assert_is_as_saved("state", [*answer("state", "show", "shop").parts])


def test_the_report_of_a_push_fits_a_terminal() -> None:
    assert_is_as_saved("push", push_parts(msgspec.convert(PUSHED, PushReport)))


def test_the_plan_of_a_push_fits_a_terminal() -> None:
    streams = {
        name: {"status": "complete", "from": each["from"], "planned": each["planned"]}
        for name, each in PUSHED["streams"].items()
    }
    added = {"id": 1000001, "email_address": "ada@example.org", "name": "Ada Lovelace", "address": QUERIED.rows[0][3]}
    streams["contacts"]["samples"] = {"added": [added], "removed": [dict.fromkeys(added) | {"id": 1000002}]}
    plan = {**PUSHED, "status": "complete", "plan": True, "recovered_loads": 0, "streams": streams}
    assert_is_as_saved("push-plan", push_parts(msgspec.convert(plan, PushReport)))


def test_the_status_of_connections_fits_a_terminal() -> None:
    times = {"customers": NOON - timedelta(hours=1), "order_items_history": NOON - timedelta(hours=26)}
    partial = ConnectionStatus(
        "shopify_production",
        "partial",
        started_at=NOON - timedelta(minutes=75),
        ended_at=NOON - timedelta(hours=1),
        rows=1_257_000,
        rejected=12,
        uncommitted=5,
        unfinished_loads=1,
        failing={"order_items_history": REPORT["streams"]["order_items_history"]["error"]},
        complete_at=times["order_items_history"],
        stream_complete_at=times,
        rows_by_run=(1_000, 250_000, 0, None, 1_250_000, 1_257_000),
    )
    complete = ConnectionStatus(
        "crm",
        "complete",
        started_at=NOON - timedelta(seconds=90),
        ended_at=NOON - timedelta(seconds=50),
        rows=29,
        complete_at=NOON - timedelta(seconds=50),
        stream_complete_at={"contacts": NOON - timedelta(seconds=50)},
        rows_by_run=(29,) * 10,
    )
    assert_is_as_saved("status", status_parts([complete, partial, ConnectionStatus("later", "never")], NOON))


def test_the_loads_of_a_connection_fit_a_terminal(place: Place) -> None:
    for records in (25, 30):
        answer("sync", place.connect({"streams": {"users": {"records": records}, "orders": {"records": records}}}))
    assert_is_as_saved("loads", [*answer("loads", "list", "shop").parts])


def test_installed_environments_fit_a_terminal() -> None:
    def installed(name: str, package: str, interpreter: str, *users: str) -> InstalledEnvironment:
        return InstalledEnvironment(Path(name), Path(f"{name}.build-x"), package, interpreter, users, NOON)

    faker = installed("airbyte-source-faker-7.2.1-cp311-0123456789ab", "airbyte-source-faker==7.2.1", "python 3.11.9",
                      "shopify_production", "shop")  # fmt: skip
    geo = installed("@acme+geo@1.2.0-node20-0123456789ab", "@acme/geo@1.2.0", "node 20.20.2", "crm_production")
    remains = installed("tap-csv-1.0-cp311-0123456789ab", "", "")
    rows = [(faker, 380 << 20, True), (geo, 2_100_000, False), (remains, 4_096, False)]
    assert_is_as_saved("envs", [environments_table(rows)])


def test_the_rows_of_a_query_fit_a_terminal() -> None:
    assert_is_as_saved("query", [QUERIED, "2 rows"])


def test_wide_rows_become_records_and_only_counts_get_separators() -> None:
    assert drawn([QUERIED], 80).splitlines()[:3] == [
        f"-[ 1 ]{'-' * 69}",
        "id      | 1000001",
        "year    | 2026",
    ]
    assert "1,000" in drawn([Grid(("rows", "id"), [(1000, 1000)], counts=("rows",))], 80)


def test_a_table_without_rows_that_is_too_wide_is_a_list_of_its_columns() -> None:
    names = [f"a_column_with_a_long_name_{number}" for number in range(5)]
    assert drawn([Grid(names, [])], 80).split() == [*(f"{name}," for name in names[:-1]), names[-1]]


@pytest.mark.parametrize("width", [1, 7, 20])
def test_a_word_that_is_wider_than_the_terminal_loses_nothing(width: int) -> None:
    text = "an_identifier/with.parts 中文中文中文中文 " + "x" * 90
    shown = drawn([Grid(("name",), [(text,)])], width)
    lines = shown.splitlines()[1:]
    assert "".join("".join(line.partition("|")[2].split()) for line in lines) == "".join(text.split())
