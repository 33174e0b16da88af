"""The web server's schema over a code location, and what the daemon does to start runs, all in this process."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.auto_run_reexecution.auto_run_reexecution import consume_new_runs_for_automatic_reexecution
from dagster_graphql.schema import create_schema

from tests.dagster_defs.support.shop_runs import Run

_LOCATION = "here"
_IN_PROCESS = {"module": "dagster._core.launcher.sync_in_memory_run_launcher", "class": "SyncInMemoryRunLauncher"}
_RETRIES = {"enabled": True, "max_retries": 1}
_LAUNCH = """mutation($selector: JobOrPipelineSelector!, $tags: [ExecutionTag!]) {
  launchRun(executionParams: {selector: $selector, mode: "default", executionMetadata: {tags: $tags}}) {
    ... on LaunchRunSuccess { run { runId } } } }"""
_REEXECUTE = """mutation($parent: String!, $strategy: ReexecutionStrategy!) {
  launchRunReexecution(reexecutionParams: {parentRunId: $parent, strategy: $strategy}) {
    ... on LaunchRunSuccess { run { runId } } } }"""


class Web:
    """Runs of assets, started as the UI and the daemon start them."""

    def __init__(self, instance: dg.DagsterInstance, workspace: WorkspaceProcessContext) -> None:
        self._instance = instance
        self._workspace = workspace
        self._schema = create_schema()

    def materialized(self, *assets: dg.AssetKey, tags: Mapping[str, str] = MappingProxyType({})) -> Run:
        """A run of those, as the button Materialize starts it."""
        selector = {
            "repositoryLocationName": _LOCATION,
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": list(asset.path)} for asset in assets],
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


@contextmanager
def opened_web(folder: Path, code: str) -> Iterator[Web]:
    """The web over this code, in a file of the folder."""
    file, storage = folder / "location.py", folder / "dagster"
    file.write_text(code)
    storage.mkdir()
    overrides = {"telemetry": {"enabled": False}, "run_launcher": _IN_PROCESS, "run_retries": _RETRIES}
    loaded = LoadableTargetOrigin(executable_path=sys.executable, python_file=str(file))
    target = InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(loaded, location_name=_LOCATION))
    with (
        dg.DagsterInstance.local_temp(str(storage), overrides=overrides) as instance,
        WorkspaceProcessContext(instance, target) as workspace,
    ):
        yield Web(instance, workspace)
