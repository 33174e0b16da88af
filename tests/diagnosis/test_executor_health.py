"""The findings of `doctor` about executors: here processes of this machine, which reach the driver as others do."""

import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.diagnosis.executor_health import executor_checks
from dagster_airbyte_proto.diagnosis.health_check import Finding, HealthCheck, Verdict, findings
from dagster_airbyte_proto.diagnosis.storage_health import warehouse_location
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.cluster.executor_inspection import check_package, inspect_executor
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.tables.tasks import Task, TaskRunner
from dagster_airbyte_proto.testing.folder.process_tasks import ProcessTasks
from dagster_airbyte_proto.testing.folder.tables import FolderTables


class _Changed(ProcessTasks):
    """Runs `function` with another first argument than the driver gave it."""

    def __init__(self, function: Any, change: Any) -> None:
        super().__init__(max_attempts=1)
        self._function, self._change = function, change

    def run(self, task: Task, count: int, tag: str) -> str:
        assert isinstance(task, partial)
        if task.func is self._function:
            first, *others = task.args
            task = partial(task.func, self._change(first), *others)
        return super().run(task, count, tag)


class _NoExecutor(ProcessTasks):
    """No executor has a free core."""

    def __init__(self) -> None:
        super().__init__()
        self.was_interrupted = threading.Event()

    def run(self, task: Task, count: int, tag: str) -> str:  # noqa: ARG002 - none begins
        self.was_interrupted.wait()
        return "interrupted"

    def interrupt(self, tag: str) -> None:  # noqa: ARG002 - there is one
        self.was_interrupted.set()


class _WithoutWasmtime(ProcessTasks):
    def run(self, task: Task, count: int, tag: str) -> str:
        return super().run(partial(_run_without_wasmtime, task), count, tag)


def _run_without_wasmtime(task: Task, number: int, attempt: int) -> None:
    sys.modules["wasmtime"] = None  # type: ignore[assignment]  # as Python marks a module that is not to be found
    task(number, attempt)


@pytest.fixture(autouse=True)
def _home_of_executors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRBYTE_PROTO_EXECUTOR_HOME", str(tmp_path / "executor"))


def checks(folder: Path, tasks: TaskRunner, *connections: Connection, run_on: str = "executors") -> list[HealthCheck]:
    file = folder / "settings.yaml"
    file.write_text(yaml.safe_dump({"run_on": run_on}))
    settings = Settings.load(folder / "home", file)
    return [*executor_checks(Engine(settings, tables=FolderTables(folder / "tables", tasks=tasks)), connections)]


def found(folder: Path, tasks: TaskRunner, *connections: Connection) -> Finding:
    [finding] = findings(checks(folder, tasks, *connections), Mask([]), lambda _part: None)
    return finding


def connection(folder: Path, program: str, **more: Any) -> Connection:
    file = folder / "shop.yaml"
    launch = {"kind": "local", "command": [program]}
    file.write_text(yaml.safe_dump({"connector": {"protocol": "airbyte", "launch": launch}, **more}))
    return Connection.from_file(file)


def test_an_executor_that_has_all_is_found_well(tmp_path: Path) -> None:
    finding = found(tmp_path, ProcessTasks(), connection(tmp_path, "sh"))
    assert (finding.part, finding.verdict) == ("executors", Verdict.OK), finding
    assert "reaches this process" in finding.found
    assert list((tmp_path / "home" / "warehouse").iterdir()) == []


def test_another_version_of_this_package_fails(tmp_path: Path) -> None:
    finding = found(tmp_path, _Changed(check_package, lambda _: "0.0.1"))
    assert finding.verdict is Verdict.FAILS
    assert "Install dagster_airbyte_proto" in finding.remedy


def test_an_executor_that_does_not_reach_the_driver_fails(tmp_path: Path) -> None:
    finding = found(tmp_path, _Changed(inspect_executor, lambda access: access._replace(port=1)))
    assert finding.verdict is Verdict.FAILS
    assert "did not reach this process at 127.0.0.1:" in finding.found
    assert "spark.airbyteProto.port" in finding.remedy


def test_a_program_of_a_connector_that_the_executor_lacks_fails(tmp_path: Path) -> None:
    finding = found(tmp_path, ProcessTasks(), connection(tmp_path, "source-of-nothing"))
    assert finding.verdict is Verdict.FAILS
    assert "there is no program 'source-of-nothing'" in finding.found


def _component(folder: Path) -> Connection:
    (folder / "mask.wasm").write_bytes(b"a component")
    component = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "mask.wasm"}}
    return connection(folder, "sh", transforms=[{"connector": component, "columns": {"name": "string"}}])


def test_an_extra_that_the_executor_lacks_fails(tmp_path: Path) -> None:
    finding = found(tmp_path, _WithoutWasmtime(), _component(tmp_path))
    assert (finding.verdict, "the extra rapidbyte is not installed" in finding.found) == (Verdict.FAILS, True)
    assert finding.remedy == "Install dagster_airbyte_proto[rapidbyte] in the Python of every worker."


def test_files_that_come_from_the_driver_need_a_place_there(tmp_path: Path) -> None:
    assert found(tmp_path, ProcessTasks(), _component(tmp_path)).verdict is Verdict.OK
    folder = tmp_path / "executor" / "connector_files"
    assert list(folder.iterdir()) == []
    folder.rmdir()
    folder.write_text("a file")
    finding = found(tmp_path, ProcessTasks(), _component(tmp_path))
    assert (finding.verdict, f"{folder} cannot be used: File exists" in finding.found) == (Verdict.FAILS, True)
    assert "AIRBYTE_PROTO_EXECUTOR_HOME" in finding.remedy


def test_a_file_that_is_too_large_to_be_sent_fails_before_a_task_runs(tmp_path: Path) -> None:
    shop = _component(tmp_path)
    os.truncate(tmp_path / "mask.wasm", 1 << 30)
    finding = found(tmp_path, _NoExecutor(), shop)
    assert (finding.verdict, "mask.wasm has more than 256 MiB" in finding.found) == (Verdict.FAILS, True)


def test_a_program_is_found_wherever_a_sync_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert (Path(sys.executable).parent / "airbyte-proto").exists()
    assert found(tmp_path, ProcessTasks(), connection(tmp_path, "airbyte-proto")).verdict is Verdict.OK


def test_a_catalog_that_chooses_the_places_of_tables_has_no_warehouse_to_look_for(tmp_path: Path) -> None:
    catalog = {"spark.sql.catalog.lake.type": "rest", "spark.sql.catalog.lake.uri": "http://127.0.0.1:9"}
    settings = Settings.load(tmp_path)
    assert warehouse_location(settings) == str(tmp_path / "warehouse")
    assert warehouse_location(settings.model_copy(update={"spark": catalog})) == ""


def test_a_cluster_without_a_free_executor_fails_and_its_task_is_taken_back(tmp_path: Path) -> None:
    tasks = _NoExecutor()
    [check] = checks(tmp_path, tasks)
    [finding] = findings([check._replace(seconds=0.2)], Mask([]), lambda _part: None)
    assert (finding.verdict, tasks.was_interrupted.is_set()) == (Verdict.FAILS, True)
    assert "free core" in finding.remedy


def test_executors_are_looked_at_where_a_connection_or_the_settings_name_them(tmp_path: Path) -> None:
    on_driver, on_executors = (connection(tmp_path, "sh", run_on=place) for place in ("driver", "executors"))
    assert checks(tmp_path, ProcessTasks(), on_driver, run_on="driver") == []
    assert len(checks(tmp_path, ProcessTasks(), on_executors, run_on="driver")) == 1
    assert len(checks(tmp_path, ProcessTasks(), run_on="executors")) == 1
