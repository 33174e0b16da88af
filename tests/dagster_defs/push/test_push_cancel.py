"""A run of a push that is terminated: what is acknowledged stays, and the next run goes on from there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from dagster_airbyte_proto import ConnectorResource, push_assets
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.push import step
from dagster_airbyte_proto.dagster_defs.push.push_checks import push_check_results
from dagster_airbyte_proto.dagster_defs.push.step import PushWait
from dagster_airbyte_proto.dagster_defs.step.background_sync import BackgroundSync
from dagster_airbyte_proto.sync.push_report import PushReport
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.dagster_defs.support.folder_shop import FolderIOManager
from tests.dagster_defs.support.push_process import PushProcess
from tests.dagster_defs.support.shop_runs import Run, terminate
from tests.dagster_defs.support.step_process import opened
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.shop import processes_of, until

_MOST_SECONDS = 10.0
REPORT = PushReport(
    connection="crm", status=SyncStatus.COMPLETE, run_id="run", recovered_loads=0, streams={}, seconds=1.0
)


@pytest.fixture(scope="module")
def runs() -> Iterator[PushProcess]:
    process = PushProcess()
    yield process
    process.close()


def test_a_terminated_push_keeps_what_is_acknowledged(runs: PushProcess, quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(number) for number in range(1, 23)])
    assert table.contacts().status == "complete"
    table.fill([person(number) for number in range(1, 24)])
    path = table.connection_file()
    written = yaml.safe_load(path.read_text())
    # One row of the first stream is new. The destination hangs after it has proved ten rows of the second.
    written["config"] |= {"hangs_after": 13, "once": str(table.folder / "once")}
    written["push"]["others"] = {**table.push, "map": {"id": "id", "name": "name"}}
    path.write_text(yaml.safe_dump(written))

    process, run_id = runs.start(table, path)
    until(lambda: (table.folder / "once").exists(), "the moment to terminate")
    with opened(table.folder / "dagster") as instance:
        seconds = terminate(instance, run_id, process, runs.end)
        run = Run(instance, run_id)
        assert run.status is dg.DagsterRunStatus.CANCELED
        assert seconds < _MOST_SECONDS
        assert run.attempts == 1
        assert run.materialized == ["contacts"]
        assert "was cancelled" in run.descriptions[0]
        assert run.stack_traces == run.descriptions[0]  # a message, and no frame of a stack
        [record] = instance.fetch_observations(dg.AssetKey(["crm", "others"]), limit=2).records
        assert record.asset_observation is not None
        assert record.asset_observation.metadata["airbyte_proto/acknowledged"].value == 10
    assert processes_of(quick_folder) == []
    assert len(table.delivered()) == 23

    runs.start(table, path)
    assert runs.end() == 0
    names = [row for row in table.received() if set(row) == {"id", "name"}]
    assert {row["id"] for row in names} == set(range(1, 24))
    assert all([row["id"] for row in names].count(number) == 1 for number in range(1, 11))


def test_a_push_that_ended_when_the_interrupt_came_is_reported() -> None:
    def interrupted() -> None:
        raise dg.DagsterExecutionInterruptedError

    waiting: PushWait = PushWait(BackgroundSync(lambda _cancel, _listener: REPORT), interrupted)
    assert (waiting.report(), waiting.is_interrupted) == (REPORT, True)


def test_a_push_whose_checks_are_interrupted_is_recorded_and_not_tried_again(
    quick_folder: Path, dagster_instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(1)])
    calls = []

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise dg.DagsterExecutionInterruptedError
        return push_check_results(*arguments)

    monkeypatch.setattr(step, "push_check_results", interrupted)

    @push_assets(connection=Connection.from_file(table.connection_file()), retry_policy=dg.RetryPolicy(max_retries=1))
    def crm(context: dg.AssetExecutionContext, connector: ConnectorResource) -> Iterator[dg.MaterializeResult[None]]:
        yield from connector.push(context)

    resources = {
        "connector": ConnectorResource(home=str(table.home)),
        "io_manager": FolderIOManager(warehouse=str(table.home / "warehouse")),
    }
    result = dg.materialize([crm], resources=resources, instance=dagster_instance, raise_on_error=False)
    [event] = result.get_asset_materialization_events()
    assert event.asset_key == dg.AssetKey(["crm", "contacts"])
    [failure] = result.get_step_failure_events()
    assert "was cancelled" in str(failure.step_failure_data.user_failure_data)
    assert len(calls) == 2
