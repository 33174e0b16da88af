"""Runs of the shop's assets in this process, and what stands in Dagster's log of them."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from tests.dagster_defs.support.folder_shop import Options, materialized
from tests.sync.shop import Shop


class Runs:
    """A shop and an instance of Dagster's."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, **written: Any) -> None:
        self.place = Shop(folder, **written)
        self.instance = instance

    def run(self, options: Options = Options(), only: Sequence[str] | None = None, **others: Any) -> "Run":  # noqa: B008 - a tuple
        place = self.place
        result = materialized(place.connection_file, place.home, self.instance, options, only, **others)
        return Run(self.instance, result.run_id)

    def events_of(self, stream: str) -> int:
        """The number of materializations of it that were ever written."""
        return len(self.instance.fetch_materializations(key_of(stream), limit=100).records)


class Run:
    """One run, as Dagster's event log tells it."""

    def __init__(self, instance: dg.DagsterInstance, run_id: str) -> None:
        self.run_id = run_id
        self._instance = instance
        self._logs = instance.all_logs(run_id)
        run = instance.get_run_by_id(run_id)
        assert run is not None
        self.status = run.status

    @property
    def succeeded(self) -> bool:
        return self.status is dg.DagsterRunStatus.SUCCESS

    def kinds(self, stream: str) -> list[str]:
        """The events of a stream's asset, in order."""
        logged = (entry.dagster_event for entry in self._logs if entry.dagster_event)
        return [event.event_type_value for event in logged if event.asset_key == key_of(stream)]

    def metadata(self, stream: str) -> dict[str, Any]:
        """Of its one materialization, as Python values."""
        [found] = [
            event.step_materialization_data.materialization
            for event in self._events(dg.DagsterEventType.ASSET_MATERIALIZATION)
            if event.asset_key == key_of(stream)
        ]
        return {name: value.value for name, value in found.metadata.items()}

    def observation(self, stream: str) -> dg.AssetObservation:
        [found] = [
            event.asset_observation_data.asset_observation
            for event in self._events(dg.DagsterEventType.ASSET_OBSERVATION)
            if event.asset_key == key_of(stream)
        ]
        return found

    @property
    def materialized(self) -> list[str]:
        events = self._events(dg.DagsterEventType.ASSET_MATERIALIZATION)
        return [event.asset_key.path[-1] for event in events if event.asset_key]

    @property
    def checks(self) -> dict[str, dict[str, bool]]:
        """The result of each check of each stream."""
        found: dict[str, dict[str, bool]] = {}
        for event in self._events(dg.DagsterEventType.ASSET_CHECK_EVALUATION):
            evaluation = event.asset_check_evaluation_data
            found.setdefault(evaluation.asset_key.path[-1], {})[evaluation.check_name] = evaluation.passed
        return found

    @property
    def failures(self) -> list[str]:
        """The failure of each attempt of the step."""
        failures = [event.step_failure_data.error for event in self._events(dg.DagsterEventType.STEP_FAILURE)]
        retries = [event.step_retry_data.error for event in self._events(dg.DagsterEventType.STEP_UP_FOR_RETRY)]
        return [_whole(error) for error in (*retries, *failures)]

    @property
    def stack_traces(self) -> str:
        """The stack traces of the step's failures, those of their causes among them."""
        failures = [event.step_failure_data.error for event in self._events(dg.DagsterEventType.STEP_FAILURE)]
        return "\n".join(error.to_string() for error in failures if error)

    @property
    def descriptions(self) -> list[str]:
        """The words of the Failures that ended it for good."""
        found = [event.step_failure_data.user_failure_data for event in self._events(dg.DagsterEventType.STEP_FAILURE)]
        return [each.description or "" for each in found if each]

    @property
    def attempts(self) -> int:
        starts = (dg.DagsterEventType.STEP_START, dg.DagsterEventType.STEP_RESTARTED)
        return sum(len(self._events(kind)) for kind in starts)

    @property
    def messages(self) -> list[str]:
        return [entry.user_message or entry.message for entry in self._logs]

    @property
    def compute_log(self) -> str:
        """The stderr output of the steps."""
        [captured] = self._events(dg.DagsterEventType.LOGS_CAPTURED)
        key = [self.run_id, "compute_logs", captured.logs_captured_data.file_key]
        return (self._instance.compute_log_manager.get_log_data(key).stderr or b"").decode()

    @property
    def engine_events(self) -> list[dg.DagsterEvent]:
        return self._events(dg.DagsterEventType.ENGINE_EVENT)

    @property
    def everything(self) -> str:
        return "\n".join(map(str, self._logs))

    def _events(self, kind: dg.DagsterEventType) -> list[dg.DagsterEvent]:
        return [
            entry.dagster_event
            for entry in self._logs
            if entry.dagster_event and entry.dagster_event.event_type is kind
        ]


def terminate(instance: dg.DagsterInstance, run_id: str, process: int, end: Callable[[], object]) -> float:
    """As the web server does it; how many seconds the run then lived, until `end` came back."""
    run = instance.get_run_by_id(run_id)
    assert run is not None
    instance.report_run_canceling(run)
    os.kill(process, signal.SIGTERM)
    began = time.monotonic()
    end()
    return time.monotonic() - began


def key_of(stream: str) -> dg.AssetKey:
    return dg.AssetKey(["shop", stream])


def _whole(error: Any) -> str:
    causes = []
    while error is not None:
        causes.append(error.message)
        error = error.cause
    return "\n".join(causes)
