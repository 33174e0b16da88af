"""Many connections at once: a report each, and one that fails takes no other along."""

import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagster_airbyte_proto import points
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.cluster.many_syncs import sync_connections
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.tables.tasks import Task
from dagster_airbyte_proto.testing.folder.process_tasks import ProcessTasks
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.sync.conftest import OpenShop


def test_each_has_a_report_and_one_that_fails_takes_no_other_along(
    shop: OpenShop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRBYTE_PROTO_EXECUTOR_HOME", str(tmp_path / "executor"))
    place = shop()
    place.offer({"streams": {"users": {"records": 20}}, "state_every": 5})
    document = yaml.safe_load(place.connection_file.read_text())
    failing = {"scenario": {"streams": {"users": {"records": 9}}, "failure": {"kind": "exit", "after": 4}}}
    changes: dict[str, dict[str, Any]] = {
        "shop": {},
        "secret": {"config": {"password": "${env:NOT_SET}"}},
        "crash": {"config": failing},
    }
    connections = [
        Connection.model_validate({**document, "name": name, "destination": {"namespace": name}, **change})
        for name, change in changes.items()
    ]
    with Engine(Settings.load(place.home, place.home / "settings.yaml")) as engine:
        reports = sync_connections(engine, connections, RunOptions(threading.Event()))
    assert [(each.connection, each.status.value) for each in reports] == [
        ("shop", "complete"),
        ("secret", "failed"),
        ("crash", "failed"),
    ]
    assert "NOT_SET is not set" in str(reports[1].error)
    assert place.column("users") == list(range(20))
    logs = [Path(each.log).read_text() for each in reports]
    assert [log.splitlines()[-1].rpartition(" ")[2] for log in logs] == ["complete", "failed", "failed"]
    assert "NOT_SET is not set" in logs[1]
    assert reports[2].error_lines()[0].partition("\n")[0] in logs[2]


def test_what_cannot_run_beside_others_is_refused_alone(
    shop: OpenShop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRBYTE_PROTO_EXECUTOR_HOME", str(tmp_path / "executor"))
    place = shop()
    place.offer({"streams": {"users": {"records": 20}}})
    document = yaml.safe_load(place.connection_file.read_text())
    relay = {"to": {"connector": document["connector"], "config": {}}, "destination": {}}
    changes: list[dict[str, Any]] = [{"name": "twice"}, {"name": "shop"}, {"name": "twice"}, {"name": "relay", **relay}]
    connections = [Connection.model_validate({**document, **change}) for change in changes]
    with Engine(Settings.load(place.home, place.home / "settings.yaml")) as engine:
        reports = sync_connections(engine, connections, RunOptions(threading.Event()))
    assert [each.status.value for each in reports] == ["failed", "complete", "failed", "failed"]
    assert "more than one connection has the name twice" in str(reports[0].error)
    assert "Run it by itself" in str(reports[3].error)
    assert place.column("users") == list(range(20))


class _DyingTasks(ProcessTasks):
    """Of its tasks the second always dies, as where its worker has too little memory."""

    failure = ""

    def run(self, task: Task, count: int, tag: str) -> str:
        self.failure = super().run(partial(_dying, task), count, tag)
        return self.failure


def _dying(task: Task, number: int, attempt: int) -> None:
    if number == 1:
        points.arm(lambda point: os._exit(1) if point == "load.announced" else None)
    task(number, attempt)


def test_one_whose_task_always_dies_does_not_end_those_beside_it(
    shop: OpenShop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark gives up a job, with all its tasks, once one of them has failed in its last attempt."""
    monkeypatch.setenv("AIRBYTE_PROTO_EXECUTOR_HOME", str(tmp_path / "executor"))
    place, tasks = shop(), _DyingTasks(max_attempts=2)
    place.offer({"streams": {"users": {"records": 20}}, "state_every": 5})
    document = yaml.safe_load(place.connection_file.read_text())
    connections = [
        Connection.model_validate({**document, "name": name, "destination": {"namespace": name}})
        for name in ("shop", "dying")
    ]
    tables = FolderTables(place.home / "warehouse", tasks=tasks)
    with Engine(Settings.load(place.home, place.home / "settings.yaml"), tables=tables) as engine:
        reports = sync_connections(engine, connections, RunOptions(threading.Event()))
    assert (tasks.failure, [each.status.value for each in reports]) == ("", ["complete", "failed"])
    assert "1 attempt of its task died" in str(reports[1].error)


class _Queue(ProcessTasks):
    """Has no core for a task until its job is cancelled, which it calls a failure, as Spark does."""

    def __init__(self, *, is_broken: bool = False) -> None:
        super().__init__()
        self._is_broken = is_broken
        self._is_cancelled = threading.Event()

    def run(self, task: object, count: int, tag: str) -> str:  # noqa: ARG002 - the protocol has them
        if self._is_broken:
            raise OSError("the JVM is gone")
        assert self._is_cancelled.wait(60)
        return "[SPARK_JOB_CANCELLED] Job 0 cancelled"

    def interrupt(self, tag: str) -> None:  # noqa: ARG002 - the protocol has it
        self._is_cancelled.set()


@pytest.mark.parametrize(
    ("is_broken", "status", "error"),
    [(False, "cancelled", "it was cancelled before it began"), (True, "failed", "OSError: the JVM is gone")],
)
def test_a_sync_that_never_began_is_reported_by_what_kept_it(
    is_broken: bool, status: str, error: str, shop: OpenShop
) -> None:
    place = shop()
    place.offer({"streams": {"users": {"records": 20}}})
    tables = FolderTables(place.home / "warehouse", tasks=_Queue(is_broken=is_broken))
    cancel = threading.Event()
    if not is_broken:
        cancel.set()
    with Engine(Settings.load(place.home, place.home / "settings.yaml"), tables=tables) as engine:
        [report] = sync_connections(engine, [Connection.from_file(place.connection_file)], RunOptions(cancel))
    assert (report.status.value, error in str(report.error)) == (status, True), report.error
