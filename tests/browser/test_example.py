"""The example project as a person uses it: `dg dev -w workspace.yaml`, and then all in the UI.

Steps run as users have them, each in processes of its own with a Spark of its own. Every test may run alone.
"""

import csv
import re
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from playwright.sync_api import Locator, expect

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from tests.browser.dagster_server import DagsterServer, until
from tests.browser.dagster_ui import DagsterUI
from tests.browser.projects import TICKETS, Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.browser, pytest.mark.spark]

CUSTOMERS = ("customers", "customers")
ORDERS = ("orders", "orders")
TICKETS_ASSET, CALLS_ASSET = ("support", "tickets"), ("support", "calls")
ASSETS = (
    "customers",
    "orders",
    "orders_by_country",
    "sales",
    "users",
    "purchases",
    "products",
    "reviews",
    "top_buyers",
    "leads",
)
SENSOR = ("example_project", "new_customers")
FIVE_DAYS = [f"2026-11-0{day}" for day in range(1, 6)]
NUMBERS = (
    "emitted",
    "committed",
    "rejected",
    "changed",
    "deleted",
    "bytes",
    "generation",
    "loads",
    "seconds",
    "version_before",
)
MARK_OF_TIMELINE = re.compile(r"^\w{3} \d+, \d+:\d\d [AP]M$")
MOST_SECONDS_TO_STOP = 10.0
# Dagster's own advice to use another command.
WARNINGS_OF_OTHERS = ("SupersessionWarning",)


def test_a_stream_is_materialized_and_its_events_tell_what_is_in_the_table(
    server: DagsterServer, ui: DagsterUI, project: Project, spark: "SparkSession"
) -> None:
    run_id = ui.materialize(CUSTOMERS)
    server.wait_for_run(run_id, "SUCCESS")
    ui.sees_end_of(run_id, step="customers")
    ui.take_picture("run")

    lines = written(project.data / "customers.csv")
    rows = table(spark, project, *CUSTOMERS, columns=("id", "name", "country"))
    assert rows == sorted((int(line["id"]), line["name"], line["country"]) for line in lines)
    events = ui.open_events(CUSTOMERS)
    for label in ("airbyte_proto/emitted", "airbyte_proto/committed", "dagster/row_count"):
        expect(value(events, label)).to_have_text(f"{len(rows)}")
    expect(value(events, "dagster/table_name")).to_have_text("lake.orders.customers")

    ui.open_asset(CUSTOMERS)
    ui.sees("Row count")
    ui.sees("primary key")
    ui.take_picture("asset-overview")


@pytest.mark.nightly
def test_a_changed_file_makes_the_sensor_sync_it(server: DagsterServer, ui: DagsterUI, project: Project) -> None:
    ui.turn_sensor_on(*SENSOR)
    wait_for_sensor_run(server, 1)
    with (project.data / "customers.csv").open("a") as file:
        file.write("21,Katherine,US\n")
    run_id = wait_for_sensor_run(server, 2)
    events = ui.open_events(CUSTOMERS)
    expect(value(events, "dagster/row_count")).to_have_text("21")
    ui.open_sensor(*SENSOR)
    ui.sees(run_id[:8])
    ui.sees(MARK_OF_TIMELINE)
    ui.take_picture("sensor")


@pytest.mark.nightly
def test_numbers_are_plotted_over_the_runs(server: DagsterServer, ui: DagsterUI) -> None:
    while len(server.materializations(CUSTOMERS)) < 2:
        server.wait_for_run(ui.materialize(CUSTOMERS), "SUCCESS")
    ui.open_plots(CUSTOMERS, ["dagster/row_count", *(f"airbyte_proto/{number}" for number in NUMBERS)])
    ui.take_picture("asset-plots")


@pytest.mark.nightly
def test_one_stream_is_materialized_without_the_others(
    server: DagsterServer, ui: DagsterUI, project: Project, spark: "SparkSession"
) -> None:
    others = len(server.materializations(CALLS_ASSET))
    run_id = ui.materialize(TICKETS_ASSET)
    server.wait_for_run(run_id, "SUCCESS")
    assert run_id in server.materializations(TICKETS_ASSET)
    assert len(server.materializations(CALLS_ASSET)) == others
    assert table(spark, project, *TICKETS_ASSET, columns=("id",)) == [(number,) for number in range(TICKETS)]


@pytest.mark.nightly
def test_a_terminated_sync_leaves_no_connector_and_keeps_what_is_complete(
    server: DagsterServer, ui: DagsterUI, project: Project, spark: "SparkSession"
) -> None:
    run_id = ui.materialize_group("support", "support")
    wait_for_state(server, run_id, project, "calls")
    assert connectors(project) != []

    ui.terminate(run_id)
    asked_at = time.monotonic()
    until(lambda: connectors(project) == [] or None, "the connector to be gone", within_seconds=60)
    assert time.monotonic() - asked_at < MOST_SECONDS_TO_STOP
    server.wait_for_run(run_id, "CANCELED", within_seconds=60)

    assert run_id in server.materializations(TICKETS_ASSET)
    assert run_id not in server.materializations(CALLS_ASSET)
    assert table(spark, project, *TICKETS_ASSET, columns=("id",)) == [(number,) for number in range(TICKETS)]
    ui.sees_end_of(run_id, step="support")
    ui.sees("Canceled")
    ui.filter_events("type:ASSET_OBSERVATION")
    ui.sees("support / calls")
    ui.take_picture("run-canceled")
    ui.open_run(run_id)
    ui.filter_events("type:STEP_FAILURE")
    ui.sees("The sync of support was cancelled.")
    expect(ui.page.get_by_text("Stack Trace")).to_have_count(0)


@pytest.mark.nightly
def test_five_days_of_orders_are_backfilled(
    server: DagsterServer, ui: DagsterUI, project: Project, spark: "SparkSession"
) -> None:
    backfill_id = ui.backfill(ORDERS, f"[{FIVE_DAYS[0]}...{FIVE_DAYS[-1]}]", count=len(FIVE_DAYS))
    runs = server.wait_for_backfill(backfill_id)
    assert [run.status for run in runs] == ["SUCCESS"]
    days = {day: [int(line["id"]) for line in written(project.data / "orders" / f"{day}.csv")] for day in FIVE_DAYS}
    assert table(spark, project, *ORDERS, columns=("id",)) == sorted((each,) for day in days.values() for each in day)
    ui.open_backfill(backfill_id)
    ui.sees("100% completed")
    ui.take_picture("backfill")


def test_lineage_shows_the_streams_and_what_is_made_of_them(ui: DagsterUI) -> None:
    ui.open_lineage(ASSETS, selection='code_location:"example_project"')
    ui.take_picture("lineage")


def test_dg_dev_prints_no_warning_of_ours(server: DagsterServer) -> None:
    """Of its start, and of every run before this."""
    lines = server.log.read_text().splitlines()
    warnings = [line for line in lines if re.search(r"\bWARNING\b|Warning:", line)]
    assert [line for line in warnings if not any(known in line for known in WARNINGS_OF_OTHERS)] == []


def written(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def table(
    spark: "SparkSession", project: Project, connection: str, name: str, *, columns: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Its rows as Iceberg's own reader finds them, in order."""
    namespace = "orders" if connection == "customers" else connection
    found = spark.read.format("iceberg").load(str(project.table(namespace, name))).select(*columns)
    return sorted(tuple(row) for row in found.collect())


def value(events: Locator, label: str) -> Locator:
    return events.get_by_role("row", name=label).get_by_role("cell").nth(1)


def wait_for_sensor_run(server: DagsterServer, number: int) -> str:
    """The run that the sensor asked for as its `number`th, when it has succeeded."""

    def asked_for() -> str | None:
        runs = server.runs_tagged(dagster__sensor_name=SENSOR[1])
        return runs[-number].run_id if len(runs) >= number else None

    run_id = until(asked_for, f"run {number} of the sensor", within_seconds=300)
    server.wait_for_run(run_id, "SUCCESS")
    return run_id


def wait_for_state(server: DagsterServer, run_id: str, project: Project, stream: str) -> None:
    """Returns when the run of `support` has saved a state of the stream: what came before it is in the tables."""
    with closing(SqlStore(f"sqlite:///{project.home / 'state.db'}")) as store:

        def saved() -> bool | None:
            assert not server.has_ended(run_id), server.messages(run_id)
            known = [stored.state.stream for stored in store.states("support") if stored.run_id == run_id]
            return any(each is not None and each.name == stream for each in known) or None

        until(saved, f"a state of {stream}", within_seconds=300)


def connectors(project: Project) -> list[int]:
    """The processes of the connector that hangs."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(project.hanging_connector) in (process.info["cmdline"] or [])
    ]
