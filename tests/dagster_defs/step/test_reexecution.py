"""A failed run, re-executed by the mutations that the UI sends: which streams run again, and what is there then."""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from logging import getLogger
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.auto_run_reexecution.auto_run_reexecution import consume_new_runs_for_automatic_reexecution
from dagster_graphql.schema import create_schema

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.assets import build_connector_assets
from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
from dagster_airbyte_proto.testing.fake_source import catalog_stream
from tests.dagster_defs.support.folder_shop import Options, resources
from tests.dagster_defs.support.shop_runs import Run, key_of
from tests.sync.shop import Shop, processes_of
from tests.sync.test_sync import expect, two

_IN_PROCESS = {"module": "dagster._core.launcher.sync_in_memory_run_launcher", "class": "SyncInMemoryRunLauncher"}
_RETRIES = {"enabled": True, "max_retries": 1}
_LAUNCH = """mutation($selector: JobOrPipelineSelector!, $tags: [ExecutionTag!]) {
  launchRun(executionParams: {selector: $selector, mode: "default", executionMetadata: {tags: $tags}}) {
    ... on LaunchRunSuccess { run { runId } } } }"""
_REEXECUTE = """mutation($parent: String!, $strategy: ReexecutionStrategy!) {
  launchRunReexecution(reexecutionParams: {parentRunId: $parent, strategy: $strategy}) {
    ... on LaunchRunSuccess { run { runId } } } }"""
_DEFINITIONS = """from pathlib import Path
from tests.dagster_defs.step.test_reexecution import definitions
defs = definitions(Path(__file__).parent)
"""


def definitions(folder: Path) -> dg.Definitions:
    """The definitions of the code location in a folder: the shop's streams, each with checks."""
    connection = Connection.from_file(folder / "shop.yaml")
    return dg.Definitions(
        [build_connector_assets(connection, catalog=folder / "catalog.json", checks=StreamChecks())],
        resources=resources(folder / "home", Options()),
        executor=dg.in_process_executor,
    )


class Web:
    """The web server's schema over a code location, both in this process, as is what the daemon does: to start runs."""

    def __init__(self, instance: dg.DagsterInstance, workspace: WorkspaceProcessContext) -> None:
        self._instance = instance
        self._workspace = workspace
        self._schema = create_schema()

    def materialized(self, *streams: str, tags: Mapping[str, str] = MappingProxyType({})) -> Run:
        """A run of those, as the button Materialize starts it."""
        selector = {
            "repositoryLocationName": "shop",
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": list(key_of(stream).path)} for stream in streams],
        }
        pairs = [{"key": key, "value": value} for key, value in tags.items()]
        return self._run("launchRun", _LAUNCH, {"selector": selector, "tags": pairs})

    def reexecuted(self, parent: Run, strategy: str) -> Run:
        return self._run("launchRunReexecution", _REEXECUTE, {"parent": parent.run_id, "strategy": strategy})

    def retried(self, failed: Run) -> Run:
        """The run that the daemon makes of it where run retries are on."""
        records = self._instance.get_run_records(dg.RunsFilter(run_ids=[failed.run_id]))
        list(consume_new_runs_for_automatic_reexecution(self._workspace, records, getLogger(__name__)))
        [again] = self._instance.get_runs(dg.RunsFilter(tags={"dagster/parent_run_id": failed.run_id}))
        return self._launched(again.run_id)

    def selection(self, run: Run) -> list[str]:
        found = self._instance.get_run_by_id(run.run_id)
        assert found is not None
        return sorted(key.path[-1] for key in found.asset_selection or ())

    def _run(self, name: str, mutation: str, variables: Mapping[str, Any]) -> Run:
        context = self._workspace.create_request_context()
        answer = asyncio.run(self._schema.execute_async(mutation, context_value=context, variable_values=variables))
        assert answer.data is not None, answer.errors
        return self._launched(answer.data[name]["run"]["runId"])

    def _launched(self, run_id: str) -> Run:
        self._instance.launch_run(run_id, self._workspace.create_request_context())
        return Run(self._instance, run_id)


@pytest.fixture
def place(quick_folder: Path) -> Iterator[Shop]:
    made = Shop(quick_folder)
    made.offer(two(1, 1))
    message = {"type": "CATALOG", "catalog": {"streams": [catalog_stream(name, {}) for name in ("users", "orders")]}}
    (quick_folder / "catalog.json").write_text(json.dumps(message))
    (quick_folder / "location.py").write_text(_DEFINITIONS)
    yield made
    assert processes_of(quick_folder) == []


@pytest.fixture
def web(place: Shop) -> Iterator[Web]:
    folder = place.folder / "dagster"
    folder.mkdir()
    overrides = {"telemetry": {"enabled": False}, "run_launcher": _IN_PROCESS, "run_retries": _RETRIES}
    loaded = LoadableTargetOrigin(executable_path=sys.executable, python_file=str(place.folder / "location.py"))
    target = InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(loaded, location_name="shop"))
    with (
        dg.DagsterInstance.local_temp(str(folder), overrides=overrides) as instance,
        WorkspaceProcessContext(instance, target) as workspace,
    ):
        yield Web(instance, workspace)


def with_bad_orders(users: int, orders: int) -> dict[str, Any]:
    broken = two(users, orders)
    broken["streams"]["orders"]["incomplete_at"] = 7
    return broken


@pytest.mark.everyday("daemon")
@pytest.mark.parametrize("by", ["hand", "daemon"])
def test_from_asset_failure_runs_the_failed_stream_alone(by: str, place: Shop, web: Web) -> None:
    place.offer(with_bad_orders(23, 12))
    failed = web.materialized("users", "orders", tags={"dagster/retry_strategy": "FROM_ASSET_FAILURE"})
    assert (failed.succeeded, failed.materialized) == (False, ["users"])
    place.offer(two(30, 12))
    again = web.retried(failed) if by == "daemon" else web.reexecuted(failed, "FROM_ASSET_FAILURE")
    assert again.succeeded, again.failures
    assert web.selection(again) == ["orders"]
    assert again.materialized == ["orders"]
    assert set(again.checks) == {"orders"}
    expect(place, 23, 12)
    assert place.positions() == {"users": 23, "orders": 12}


def test_from_failure_runs_the_whole_step_which_goes_on_from_its_states(place: Shop, web: Web) -> None:
    place.offer(with_bad_orders(23, 12))
    failed = web.materialized("users", "orders")
    place.offer(two(30, 12))
    again = web.reexecuted(failed, "FROM_FAILURE")
    assert again.succeeded, again.failures
    assert again.materialized == ["users", "orders"]
    assert again.metadata("users")["airbyte_proto/emitted"] == 7
    expect(place, 30, 12)
