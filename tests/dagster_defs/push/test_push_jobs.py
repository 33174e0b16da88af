"""The jobs of a pushed connection: its rejected rows sent again, and what was delivered forgotten."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_airbyte_proto import ConnectorResource, build_connection_jobs, build_push_assets
from dagster_airbyte_proto.connection import Connection
from tests.dagster_defs.support.folder_shop import FolderIOManager
from tests.dagster_defs.support.shop_runs import Run
from tests.sync.push.pushed_table import PushedTable, person


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder)
    pushed.fill([person(1), person(2), person(3, bad=True, score=float("nan"))])
    return pushed


def _resources(table: PushedTable) -> dict[str, object]:
    return {
        "connector": ConnectorResource(home=str(table.home)),
        "io_manager": FolderIOManager(warehouse=str(table.home / "warehouse")),
    }


def _launch(table: PushedTable, job: str, instance: dg.DagsterInstance, form: Mapping[str, Any]) -> Run:
    connection = Connection.from_file(table.connection_file())
    jobs = {each.name: each for each in build_connection_jobs(connection, assets=build_push_assets(connection))}
    assert set(jobs) == {"retry_rejected_crm", "reset_push_crm", "rollback_crm", "care_crm", "resolve_load_crm"}
    [op] = [node.name for node in jobs[job].nodes]
    made = dg.Definitions(jobs=[jobs[job]], resources=_resources(table)).resolve_job_def(job)
    result = made.execute_in_process(
        run_config={"ops": {op: {"config": dict(form)}}}, instance=instance, raise_on_error=False
    )
    return Run(instance, result.run_id)


def _last(instance: dg.DagsterInstance) -> Mapping[str, Any]:
    [record] = instance.fetch_materializations(dg.AssetKey(["crm", "contacts"]), limit=1).records
    assert record.asset_materialization is not None
    return {name: each.value for name, each in record.asset_materialization.metadata.items()}


def test_rejected_rows_are_sent_again(table: PushedTable, dagster_instance: dg.DagsterInstance) -> None:
    assert table.contacts().rejected == 1
    assert table.contacts().sent == 0
    run = _launch(table, "retry_rejected_crm", dagster_instance, {})
    assert run.succeeded, run.failures
    numbers = _last(dagster_instance)
    assert (numbers["airbyte_proto/sent"], numbers["airbyte_proto/rejected"]) == (1, 1)
    assert "dagster/column_lineage" in numbers
    assert table.delivered()[3]["_status"] == "rejected"


def test_a_rejected_row_that_was_mended_is_delivered(table: PushedTable, dagster_instance: dg.DagsterInstance) -> None:
    table.contacts()
    assert table.delivered()[3]["_status"] == "rejected"
    table.fill([person(1), person(2), person(3)])
    run = _launch(table, "retry_rejected_crm", dagster_instance, {"streams": ["contacts"]})
    assert run.succeeded, run.failures
    assert table.delivered()[3]["_status"] == "delivered"
    assert table.received()[-1]["id"] == 3


def test_streams_that_remember_nothing_have_nothing_to_retry(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    table.push |= {"mode": "append", "changes": "all"}
    run = _launch(table, "retry_rejected_crm", dagster_instance, {})
    assert not run.succeeded
    assert "Streams with changes: diff or snapshots do. Here these are: none." in run.descriptions[0]


def test_a_reset_push_sends_all_rows_again(table: PushedTable, dagster_instance: dg.DagsterInstance) -> None:
    table.fill([person(number) for number in range(1, 8)])
    table.contacts()
    run = _launch(table, "reset_push_crm", dagster_instance, {"streams": ["contacts"]})
    assert run.succeeded, run.failures
    assert table.contacts().sent == 7
    assert len(table.received()) == 14


def test_a_rollback_to_the_version_of_a_materialization_has_the_rows_of_its_push_sent_again(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    # By a cursor there is no table of delivered rows that would have to be rolled back too.
    table.push |= {"mode": "append", "changes": "cursor", "cursor": "id"}
    assets = build_push_assets(Connection.from_file(table.connection_file()))
    versions = []
    for people in (2, 5):
        table.fill([person(number) for number in range(1, people + 1)])
        assert dg.materialize([assets], resources=_resources(table), instance=dagster_instance).success
        versions.append(_last(dagster_instance)["airbyte_proto/version_before"])
    assert versions[0] == 0 < versions[1]
    run = _launch(table, "rollback_crm", dagster_instance, {"version": versions[1], "tables": False})
    assert run.succeeded, run.failures
    assert table.contacts().sent == 3
    assert [row["id"] for row in table.received()] == [1, 2, 3, 4, 5, 3, 4, 5]
