"""Reset, rollback, refresh and care as jobs: launched with the values of their forms, on real connections."""

import json
import os
import signal
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.checkpoints.slot import Slot
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.automation.operations import build_connection_jobs
from dagster_airbyte_proto.dagster_defs.resources import ConnectorResource
from dagster_airbyte_proto.dagster_defs.tables.io_manager import SparkTableIOManager
from dagster_airbyte_proto.dagster_defs.tables.spark_resource import SparkSessionResource
from dagster_airbyte_proto.loads.load import Load
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.airbyte.states import AirbyteStates
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.testing.fake_source import command
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.folder_shop import Options, resources, shop_assets
from tests.dagster_defs.support.shop_runs import Run, Runs
from tests.sync.commit.test_unknown_outcomes import drop_table, left_announced
from tests.sync.shop import processes_of, until

TWO = {"streams": {"users": {"records": 12}, "orders": {"records": 4}}, "state_every": 5}


def launch(shop: Runs, kind: str, form: Mapping[str, Any], **connector: Any) -> Run:
    """The job of that kind, with what a form of the web server would send."""
    connection = Connection.from_file(shop.place.connection_file)
    assets = shop_assets(shop.place.connection_file, Options())
    jobs = {job.name: job for job in build_connection_jobs(connection, assets=assets)}
    return _run(jobs[f"{kind}_shop"], shop.instance, form, resources(shop.place.home, Options(connector=connector)))


def _run(job: dg.JobDefinition, instance: dg.DagsterInstance, form: Mapping[str, Any], using: Mapping[str, Any]) -> Run:
    [op] = [node.name for node in job.nodes]
    result = dg.Definitions(jobs=[job], resources=using).resolve_job_def(job.name).execute_in_process(
        run_config={"ops": {op: {"config": dict(form)}}}, instance=instance, raise_on_error=False
    )  # fmt: skip
    return Run(instance, result.run_id)


def test_a_reset_stream_is_read_from_nothing(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    run = launch(shop, "reset", {"streams": ["users"]})
    assert run.succeeded, run.failures
    assert shop.place.positions() == {"orders": 4}
    change = shop.place.store.history("shop", limit=1)[0]
    assert (change.why, change.who) == ("reset", f"dagster run {run.run_id}")
    report = shop.place.sync()
    assert {name: output.emitted for name, output in report.streams.items()} == {"users": 12, "orders": 0}


def test_a_form_that_is_left_empty_resets_the_whole(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    assert launch(shop, "reset", {}).succeeded
    assert shop.place.positions() == {}


def test_a_stream_that_is_not_there_is_reported_with_those_that_are(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    run = launch(shop, "reset", {"streams": ["uses"]})
    assert not run.succeeded
    assert "There are states of: orders, users" in run.descriptions[0]
    assert shop.place.positions() == {"users": 12, "orders": 4}


def test_one_stream_of_a_shared_state_is_reset_where_the_state_has_parts(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of({**TWO, "state": "global"})
    run = launch(shop, "reset", {"streams": ["users"]})
    assert run.succeeded, run.failures
    assert shop.place.positions() == {"orders": 4}

    shop.place.sync_of({**TWO, "state": "legacy"})
    run = launch(shop, "reset", {"streams": ["users"]})
    assert not run.succeeded
    assert "share one state" in run.descriptions[0]


def test_states_alone_go_back_where_the_form_says_so(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    version = shop.place.store.history("shop", limit=1)[0].version
    shop.place.sync_of({**TWO, "streams": {"users": {"records": 20}}})
    assert launch(shop, "rollback", {"version": version, "tables": False}).succeeded
    assert shop.place.positions() == {"users": 12, "orders": 4}
    assert len(shop.place.column("users")) == 20


def test_a_rollback_without_a_version_undoes_the_newest_run(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    shop.place.sync_of({**TWO, "streams": {"users": {"records": 20}}})
    assert launch(shop, "rollback", {"tables": False}).succeeded
    assert shop.place.positions() == {"users": 12, "orders": 4}
    # As a run retry does it, after tables that failed.
    assert launch(shop, "rollback", {"tables": False}).succeeded
    assert shop.place.positions() == {"users": 12, "orders": 4}


def test_a_rollback_without_a_version_does_not_go_forward(runs: OpenRuns) -> None:
    shop = runs()
    versions = []
    for users in (12, 20, 30):
        shop.place.sync_of({"streams": {"users": {"records": users}}})
        versions.append(shop.place.store.history("shop", limit=1)[0].version)
    version = versions[0]
    assert launch(shop, "rollback", {"version": version, "tables": False}).succeeded
    run = launch(shop, "rollback", {"tables": False})
    assert "to another version than the one before that run" in run.descriptions[0]
    assert shop.place.positions() == {"users": 12}


def test_a_rollback_of_streams_without_states_says_what_to_do(runs: OpenRuns) -> None:
    shop = runs(write="overwrite", read="full_refresh")
    shop.place.sync_of(TWO)
    for form in ({}, {"version": 3, "tables": False}):
        [said] = launch(shop, "rollback", form).descriptions
        assert "there are no versions to go back to" in said and "airbyte-proto table rollback" in said, form
    assert len(shop.place.column("users")) == 12


def test_a_rollback_without_a_version_undoes_no_part_of_a_run(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(TWO)
    store = shop.place.store
    leases = {
        key: store.acquire("shop", run_id=f"run-{key}", holder="h", seconds=30, slot=Slot(key, 2)) for key in ("a", "b")
    }
    store.note_protocol(leases["a"], "airbyte")
    for number, (key, stream) in enumerate((("a", "users"), ("b", "users"), ("b", "orders"), ("a", "orders"))):
        load = Load(f"load-{number}", "shop", f"run-{key}", (), ())
        store.announce(leases[key], load, partition=key)
        store.promote(leases[key], load, [AirbyteStates().from_value(StreamId.of(stream), {"next": 1})], [])
    for lease in leases.values():
        store.release(lease)
    [said] = launch(shop, "rollback", {"tables": False}).descriptions
    assert "run run-a worked side by side with runs of other partitions (b)" in said
    assert "name version 0, which undoes all of them" in said
    assert len(store.states("shop", partition=None)) == 4
    assert launch(shop, "rollback", {"version": 0, "tables": False}).succeeded
    assert store.states("shop", partition=None) == []


def test_each_job_starts_with_a_form_of_its_defaults() -> None:
    source = {"protocol": "airbyte", "launch": {"kind": "local", "command": command()}}
    jobs = build_connection_jobs(Connection.model_validate({"name": "shop", "connector": source}))
    assert {job.name: list(job.run_config["ops"].values()) for job in jobs if job.run_config} == {
        "reset_shop": [{"config": {"streams": [], "partition": ""}}],
        "rollback_shop": [{"config": {"version": None, "tables": True, "partition": ""}}],
        "refresh_shop": [{"config": {"streams": [], "merge": False}}],
        "care_shop": [
            {"config": {"tables": [], "compact": True, "expire": True, "keep_days": 7.0, "orphans_after_days": 3.0}}
        ],
        "resolve_load_shop": [{"config": {"load": "", "outcome": ""}}],
        "table_rollback_shop": [{"config": {"table": "", "snapshot": ""}}],
    }
    for job in jobs:
        assert dg.validate_run_config(job, job.run_config)


def test_a_load_of_which_nobody_knows_is_ended_by_the_word_of_a_person(runs: OpenRuns) -> None:
    shop = runs()
    left_announced(shop.place)
    drop_table(shop.place, "users")
    [load, *_] = shop.place.store.announced_loads("shop")
    open_form = launch(shop, "resolve_load", {})
    assert f"Set `outcome` to landed or lost. These loads wait: {load.load_id} (" in open_form.descriptions[0]
    run = launch(shop, "resolve_load", {"load": load.load_id, "outcome": "landed"})
    assert run.succeeded, run.failures
    assert load.load_id not in [each.load_id for each in shop.place.store.announced_loads("shop")]
    entry = shop.place.store.load(load.load_id)
    assert entry is not None and f"dagster run {run.run_id}" in str(entry.reason)


def test_tables_without_snapshots_are_refused_before_anything_moves(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    said = launch(shop, "rollback", {"version": 0}).descriptions[0]
    assert "only Iceberg and Delta tables" in said and "a table without a key has them twice" in said
    assert shop.place.positions() == {"users": 12, "orders": 4}


def test_a_refresh_reads_anew_and_is_recorded_as_materialized(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    shop.place.offer({**TWO, "streams": {"users": {"records": 7}, "orders": {"records": 4}}})
    run = launch(shop, "refresh", {"streams": ["users"]})
    assert run.succeeded, run.failures
    assert shop.place.column("users") == list(range(7))
    assert shop.place.positions() == {"users": 7, "orders": 4}
    assert run.materialized == ["users"]
    assert run.metadata("users")["airbyte_proto/committed"] == 7


def test_a_refresh_that_fails_says_it_in_the_connectors_words(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    shop.place.offer({**TWO, "failure": {"kind": "error", "message": "the tap is dry", "after": 3}})
    run = launch(shop, "refresh", {})
    assert not run.succeeded
    assert "the tap is dry" in run.descriptions[0]
    assert run.materialized == []
    assert shop.place.column("users") == list(range(12))


def test_a_refresh_that_is_interrupted_stops_the_connector_and_leaves_the_old_rows(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    shop.place.offer({**TWO, "failure": {"kind": "hang", "after": 3}})

    def interrupt() -> None:
        until(lambda: processes_of(shop.place.folder / "program.json") != [], "the connector runs")
        os.kill(os.getpid(), signal.SIGINT)

    waiting = threading.Thread(target=interrupt)
    waiting.start()
    run = launch(shop, "refresh", {})
    waiting.join()
    assert "was cancelled" in run.descriptions[0]
    assert run.stack_traces == run.descriptions[0]
    assert run.materialized == []
    assert shop.place.column("users") == list(range(12))
    assert shop.place.positions() == {"users": 12, "orders": 4}


def test_a_job_waits_for_the_run_that_holds_the_connection(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    stood: list[dict[str, int]] = []

    def hold() -> None:
        until(lambda: _is_waiting(shop.instance), "the job says that it waits")
        stood.append(shop.place.positions())
        keeper.__exit__(None, None, None)

    keeper = acquire_lease(shop.place.store, "shop", "another", 30).__enter__()
    holding = threading.Thread(target=hold)
    holding.start()
    run = launch(shop, "reset", {}, lease_wait_seconds=30.0)
    holding.join()
    assert run.succeeded, run.failures
    assert stood == [{"users": 12, "orders": 4}]
    assert shop.place.positions() == {}


@pytest.mark.parametrize(("kind", "when"), [("reset", "for the rest"), ("rollback", "before a sync reads rows twice")])
def test_a_job_that_is_interrupted_says_so_in_a_sentence(runs: OpenRuns, kind: str, when: str) -> None:
    shop = runs()
    shop.place.sync_of(TWO)

    def interrupt() -> None:
        until(lambda: _is_waiting(shop.instance), "the job says that it waits")
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    with acquire_lease(shop.place.store, "shop", "another", 30):
        interrupting.start()
        run = launch(shop, kind, {}, lease_wait_seconds=30.0)
    interrupting.join()
    assert run.stack_traces == f"The {kind} of shop was cancelled. What is done stays: launch the job again {when}."
    assert shop.place.positions() == {"users": 12, "orders": 4}


def _is_waiting(instance: dg.DagsterInstance) -> bool:
    texts = [entry.user_message for run in instance.get_runs() for entry in instance.all_logs(run.run_id)]
    return any("waits up to" in text for text in texts)


def test_a_connection_that_the_store_does_not_know_is_reported(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(TWO)
    assert "does not know it" in launch(shop, "reset", {}).descriptions[0]


def test_tables_that_are_not_cared_for_are_reported(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    assert "iceberg" in launch(shop, "care", {}).descriptions[0]
    assert "has loaded shop.orders, shop.users" in launch(shop, "care", {"tables": ["shop.uses"]}).descriptions[0]


def test_a_table_that_cannot_go_back_alone_is_reported(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    assert "Name one in `table`: shop.orders, shop.users" in launch(shop, "table_rollback", {}).descriptions[0]
    run = launch(shop, "table_rollback", {"table": "shop.users", "snapshot": "1"})
    assert "only Iceberg and Delta tables keep the snapshots" in run.descriptions[0]


class Lake:
    """A connection into Iceberg tables of the test run's session, and its jobs. Every state ends a load."""

    def __init__(self, folder: Path, settings: SparkSettings, instance: dg.DagsterInstance, **users: str) -> None:
        self.name = f"shop_{uuid.uuid4().hex[:8]}"
        self.home = folder / "home"
        self.home.mkdir()
        self._scenario = folder / "scenario.json"
        written = {
            "name": self.name,
            "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": command(self._scenario)}},
            "config": {"scenario": str(self._scenario)},
            "streams": {"users": users or {"write": "append"}},
            "load": {"max_bytes": 1},
        }
        self.connection = Connection.model_validate(written)
        self.jobs = {job.name: job for job in build_connection_jobs(self.connection)}
        self._instance = instance
        session = SparkSessionResource(warehouse=settings.warehouse, spark_config=dict(settings.config))
        self._using = {
            "connector": ConnectorResource(home=str(self.home), lease_wait_seconds=5.0),
            "io_manager": SparkTableIOManager(spark=session),
        }

    def offer(self, users: int) -> None:
        self._scenario.write_text(json.dumps({"streams": {"users": {"records": users}}, "state_every": 5}))

    def launch(self, kind: str, form: Mapping[str, Any]) -> Run:
        return _run(self.jobs[f"{kind}_{self.name}"], self._instance, form, self._using)


@pytest.fixture
def lake(tmp_path: Path, spark_settings: SparkSettings, dagster_instance: dg.DagsterInstance) -> Lake:
    return Lake(tmp_path, spark_settings, dagster_instance)


@pytest.mark.spark
def test_rollback_puts_rows_and_state_back(spark: SparkSession, lake: Lake) -> None:
    def ids() -> list[int]:
        return [row[0] for row in query(spark, f"select id from lake.{lake.name}.users order by id").rows]

    for records in (5, 9):
        lake.offer(records)
        assert lake.launch("refresh", {}).succeeded
        assert ids() == list(range(records))
    run = lake.launch("rollback", {"version": 1})
    assert run.succeeded, run.failures
    assert ids() == list(range(5))
    assert any(f"{lake.name}.users is at snapshot" in message for message in run.messages)
    again = lake.launch("rollback", {"version": 1})
    assert again.succeeded and any(", as before" in message for message in again.messages)


@pytest.mark.spark
def test_a_table_whose_rows_no_state_covers_goes_back_alone(
    spark: SparkSession, tmp_path: Path, spark_settings: SparkSettings, dagster_instance: dg.DagsterInstance
) -> None:
    lake = Lake(tmp_path, spark_settings, dagster_instance, read="full_refresh", write="overwrite")
    table = f"{lake.name}.users"
    lake.offer(5)
    assert lake.launch("refresh", {}).succeeded
    [[first]] = query(spark, f"select snapshot_id from lake.{table}.refs where name = 'main'").rows
    lake.offer(9)
    assert lake.launch("refresh", {}).succeeded
    run = lake.launch("table_rollback", {"snapshot": str(first)})
    assert run.succeeded, run.failures
    assert any(f"{table} is at snapshot {first}" in message for message in run.messages)
    assert [list(row) for row in query(spark, f"select count(*) from lake.{table}").rows] == [[5]]


@pytest.mark.spark
def test_care_by_a_schedule_compacts_tables_and_lets_go_of_what_is_old(
    spark: SparkSession, spark_settings: SparkSettings, dagster_instance: dg.DagsterInstance, lake: Lake
) -> None:
    lake.offer(30)
    with Engine(Settings.load(lake.home), tables=IcebergTables(spark, spark_settings)) as engine:
        assert sync_connection(engine, lake.connection).streams["users"].committed == 30

    nightly = dg.ScheduleDefinition(job=lake.jobs[f"care_{lake.name}"], cron_schedule="0 3 * * *")
    with dg.build_schedule_context(dagster_instance) as context:
        [request] = nightly.evaluate_tick(context).run_requests or ()
    assert request.run_config == {}
    run = lake.launch("care", {"keep_days": 0, "tables": [f"{lake.name}.users"]})
    assert run.succeeded, run.failures
    assert any("6 files rewritten into 1, 0 delete files removed; 6 snapshots" in each for each in run.messages)
    [[rows, files]] = query(
        spark,
        f"select (select count(*) from lake.{lake.name}.users), (select count(*) from lake.{lake.name}.users.files)",
    ).rows
    assert (rows, files) == (30, 1)
    assert lake.launch("care", {}).succeeded
