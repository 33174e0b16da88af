"""Syncs on executors: here processes of this machine, which know no more of the driver than those of a cluster."""

import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtoError, StateConflict
from dagster_airbyte_proto.points import POINTS
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.cluster import executor_sync
from dagster_airbyte_proto.sync.cluster.connector_files import SyncFiles
from dagster_airbyte_proto.sync.cluster.executor_sync import ExecutorSync
from dagster_airbyte_proto.sync.cluster.sync_order import SyncOrder, SyncOutcome
from dagster_airbyte_proto.sync.cluster.values import as_remote
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.leased_sync import SyncOptions
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.run_options import RunOptions, Timeouts
from dagster_airbyte_proto.sync.telemetry.run_telemetry import NO_TELEMETRY
from dagster_airbyte_proto.tables.tasks import TaskRunner
from dagster_airbyte_proto.testing.folder.process_tasks import ProcessTasks
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.samples import sample
from tests.sync.cluster.armed_tasks import ArmedTasks
from tests.sync.cluster.cut_network import CutOffTasks
from tests.sync.conftest import OpenShop
from tests.sync.shop import SECRET, CancelAfter, Shop, until

_USERS: dict[str, Any] = {"streams": {"users": {"records": 20}}, "state_every": 5}
_DEATHS = [(point,) for point in POINTS if not point.startswith(("table.", "recover."))]
_IN_RECOVERY = [("load.announced", "recover.begun"), ("load.staged", "recover.swept")]


@pytest.fixture
def place(shop: OpenShop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:
    monkeypatch.setenv("AIRBYTE_PROTO_EXECUTOR_HOME", str(tmp_path / "executor"))
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    opened = shop(settings={"lease_seconds": 3})
    opened.more = {"run_on": "executors"}
    opened.config = {"password": "${env:SHOP_PASSWORD}"}
    return opened


class _OnExecutors:
    """The shop's tables, with tasks of a test's own."""

    def __init__(self, place: Shop, tasks: TaskRunner) -> None:
        self._place = place
        self._tables = FolderTables(place.home / "warehouse", tasks=tasks)

    def sync(self, options: RunOptions | None = None) -> SyncReport:
        settings = Settings.load(self._place.home, self._place.home / "settings.yaml")
        with Engine(settings, tables=self._tables) as engine:
            return sync_connection(engine, Connection.from_file(self._place.connection_file), options=options)


def test_a_sync_on_an_executor_is_as_one_on_the_driver(place: Shop, tmp_path: Path) -> None:
    first = place.sync_of(_USERS)
    second = place.sync_of({"streams": {"users": {"records": 30}}, "state_every": 5})
    assert (first.status, second.status) == ("complete", "complete")
    assert [each.streams["users"].committed for each in (first, second)] == [20, 10]
    assert place.column("users") == list(range(30))
    assert place.positions() == {"users": 30}
    logs = [Path(first.log), *(tmp_path / "executor").rglob("*.log")]
    assert len(logs) == 3
    assert not any(SECRET in log.read_text() for log in logs)


def test_an_error_before_the_connector_runs_is_the_same_as_on_the_driver(place: Shop) -> None:
    place.modes = {"orders": {}}
    place.offer(_USERS)
    with pytest.raises(ConfigError) as on_executor:
        place.sync()
    place.more = {}
    place.offer(_USERS)
    with pytest.raises(ConfigError) as on_driver:
        place.sync()
    assert str(on_executor.value) == str(on_driver.value)


@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param(deaths, marks=() if deaths == ("load.announced", "recover.begun") else pytest.mark.nightly)
        for deaths in (*_DEATHS, *_IN_RECOVERY)
    ],
    ids="-".join,
)
def test_an_executor_that_dies_is_replaced_and_nothing_is_lost_or_doubled(
    place: Shop, deaths: tuple[str, ...], tmp_path: Path
) -> None:
    place.offer(_USERS)
    report = _OnExecutors(place, ArmedTasks(deaths, tmp_path / "points")).sync()
    assert report.status == "complete"
    assert place.column("users") == list(range(20))
    assert place.positions() == {"users": 20}
    assert len(set(place.landed("users"))) == len(place.landed("users"))
    assert place.loose_files() == []
    reached = (tmp_path / "points").read_text().split()
    assert [reached.count(death) for death in deaths] >= [1] * len(deaths)
    assert place.store.current_leases("shop") == []


def test_a_run_that_was_complete_when_its_executor_died_is_not_made_again(place: Shop, tmp_path: Path) -> None:
    place.modes = {"*": {"read": "full_refresh", "write": "append"}}
    place.offer(_USERS)
    report = _OnExecutors(place, ArmedTasks(["run.ended"], tmp_path / "points")).sync()
    assert (report.status, report.streams["users"].committed) == ("complete", 20)
    assert place.column("users") == list(range(20))
    assert len(place.store.runs("shop")) == 1
    assert place.store.current_leases("shop") == []


@pytest.mark.nightly
def test_a_task_that_always_dies_ends_the_sync_and_the_next_goes_on(place: Shop, tmp_path: Path) -> None:
    place.offer(_USERS)
    deaths = ["load.committed"] * 4
    with pytest.raises(ConnectorError, match="its task ended without a report: task 0 ended with exit code -9"):
        _OnExecutors(place, ArmedTasks(deaths, tmp_path / "points")).sync()
    place.more = {}
    assert place.sync_of(_USERS).status == "complete"
    assert place.column("users") == list(range(20))


@pytest.mark.nightly
@pytest.mark.parametrize("has_begun", [True, False])
def test_a_cluster_that_is_gone_ends_the_sync_and_the_next_goes_on(place: Shop, has_begun: bool) -> None:
    class Gone(ProcessTasks):
        """Loses its executors, and waits for others, as Spark does."""

        def run(self, task: Any, count: int, tag: str) -> str:
            if has_begun:
                running = threading.Thread(target=super().run, args=(task, count, tag))
                running.start()
                until(lambda: len(place.landed("users")) >= 1, "the first load")
                super().interrupt(tag)
            threading.Event().wait()
            return ""

    place.offer({**_USERS, "failure": {"kind": "hang", "after": 12}})
    timeouts = Timeouts(startup_seconds=4.0, heartbeat_seconds=1.0 if not has_begun else 60.0)
    with pytest.raises(ConnectorError, match="no executor has called for" if has_begun else "has taken it"):
        _OnExecutors(place, Gone()).sync(RunOptions(threading.Event(), timeouts=timeouts))
    place.more = {}
    assert place.sync_of(_USERS).status == "complete"
    assert place.column("users") == list(range(20))


def test_cancelling_ends_the_connector_and_keeps_what_a_state_covers(place: Shop) -> None:
    place.offer({**_USERS, "failure": {"kind": "hang", "after": 12}})
    cancel = threading.Event()
    report = place.sync(options=RunOptions(cancel, CancelAfter(cancel, 12)))
    assert report.status == "cancelled"
    assert place.column("users") == list(range(10))
    assert place.positions() == {"users": 10}


def test_what_the_commit_listener_raises_comes_out_and_the_load_stays_announced(place: Shop) -> None:
    class Refusing:
        def committed(self, streams: Any) -> None:
            seen.extend(streams)
            raise KeyboardInterrupt

    seen: list[CommittedStream] = []
    place.offer(_USERS)
    with pytest.raises(KeyboardInterrupt):
        place.sync(options=RunOptions(threading.Event(), commit_listener=Refusing()))
    assert [(str(each.stream), each.report.committed) for each in seen] == [("users", 20)]
    assert len(place.store.announced_loads("shop")) == 1
    assert place.sync().recovered_loads == 1
    assert place.column("users") == list(range(20))


def test_an_attempt_that_was_superseded_reports_no_streams(place: Shop, tmp_path: Path) -> None:
    heard: list[object] = []

    class Hearing:
        def committed(self, streams: object) -> None:
            heard.append(streams)

    options = RunOptions(threading.Event(), commit_listener=Hearing())
    with _executor_sync(place, tmp_path, options) as sync:
        for attempt in (0, 1):
            sync.order(attempt)
        with pytest.raises(StateConflict, match="attempt 1 of its task was superseded by attempt 2"):
            sync.committed(0, [])
        sync.committed(1, [])
    assert (heard, sync.raised) == ([[]], None)


@pytest.mark.parametrize("has_begun", [True, False])
def test_an_attempt_that_cannot_begin_is_no_end_of_one_at_work(
    place: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    other_version, end = SyncOutcome(error=as_remote(ConfigError("beginning", "it is 9.9"))), SyncOutcome()
    with _executor_sync(place, tmp_path, RunOptions(threading.Event())) as sync:
        if has_begun:
            assert sync.order(0) is not None
            assert not sync.declined(1, other_version)
            assert sync.outcome is None
            monkeypatch.setattr(executor_sync, "_SILENT_SECONDS", 0.0)
            with pytest.raises(ConnectorError, match="has not called for"):
                sync.declined(1, other_version)
            sync.ended(0, end)
        assert sync.declined(1, other_version)
        assert sync.outcome is (end if has_begun else other_version)


@contextmanager
def _executor_sync(place: Shop, folder: Path, options: RunOptions) -> Iterator[ExecutorSync]:
    """The driver's side of a sync."""
    place.offer(_USERS)
    with Engine(Settings.load(place.home)) as engine, RunLog(folder / "logs", "run") as log:
        files = SyncFiles(Connection.from_file(place.connection_file), {})
        yield ExecutorSync(engine, "shop", sample(SyncOrder), files, SyncOptions(options, log, NO_TELEMETRY))


def test_executors_that_do_not_share_the_warehouse_are_refused_before_rows_are_staged(
    place: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_airbyte_proto.sync.cluster.executor_sync.Path.exists", lambda _: False, raising=False)
    report = place.sync_of(_USERS)
    assert report.status == "failed"
    assert "is another folder there than on the driver" in str(report.error or report.streams["users"].error)
    assert place.column("users") == []


@pytest.mark.nightly
@pytest.mark.parametrize("reaches_driver", [False, True], ids=["request lost", "answer lost"])
@pytest.mark.parametrize("cut_at", [1, 9, 17, 25, 33, 41])
def test_a_network_that_breaks_loses_and_doubles_nothing(place: Shop, cut_at: int, reaches_driver: bool) -> None:
    place.offer(_USERS)
    tasks = CutOffTasks(cut_at, reaches_driver=reaches_driver)
    with suppress(ProtoError):
        _OnExecutors(place, tasks).sync()
    assert tasks.network.has_cut
    place.more = {}
    report = place.sync_of(_USERS)
    assert report.status == "complete"
    assert place.column("users") == list(range(20))
    assert place.positions() == {"users": 20}
    assert len(set(place.landed("users"))) == len(place.landed("users"))
    assert place.loose_files() == []


@pytest.mark.nightly
def test_two_attempts_side_by_side_land_each_row_once(place: Shop) -> None:
    class Speculating(ProcessTasks):
        """Starts a second attempt beside the first once it has landed rows, and lets both work on."""

        def run(self, task: Any, count: int, tag: str) -> str:
            first = threading.Thread(target=super().run, args=(task, count, f"{tag}-first"))
            first.start()
            until(lambda: len(place.landed("users")) >= 1, "the first load")
            failure = super().run(_Second(task), count, tag)
            first.join()
            return failure

    place.offer({"streams": {"users": {"records": 20_000}}, "state_every": 200})
    report = _OnExecutors(place, Speculating(1)).sync()
    assert report.status == "complete"
    assert place.column("users") == list(range(20_000))
    assert len(set(place.landed("users"))) == len(place.landed("users"))
    assert place.store.current_leases("shop") == []


@pytest.mark.nightly
def test_a_stopped_attempt_that_wakes_up_after_its_replacement_changes_nothing(place: Shop) -> None:
    class Stopping(ProcessTasks):
        """Suspends the first attempt once it has sent rows, and starts a second beside it."""

        def run(self, task: Any, count: int, tag: str) -> str:
            first = threading.Thread(target=super().run, args=(task, count, f"{tag}-first"))
            first.start()
            until(lambda: len(place.landed("users")) >= 1, "the first load")
            stopped = self.processes(f"{tag}-first")[0]
            psutil.Process(stopped).suspend()
            failure = super().run(_Second(task), count, tag)
            psutil.Process(stopped).resume()
            first.join()
            return failure

    place.offer({"streams": {"users": {"records": 20_000}}, "state_every": 200})
    report = _OnExecutors(place, Stopping(1)).sync()
    assert report.status == "complete"
    assert place.column("users") == list(range(20_000))
    assert len(set(place.landed("users"))) == len(place.landed("users"))


def test_an_attempt_that_was_superseded_waits_for_the_later_one(place: Shop, tmp_path: Path) -> None:
    class FirstToReturn(ProcessTasks):
        """Starts a second attempt beside one that hangs. As in Spark, the first to return ends the other."""

        def run(self, task: Any, count: int, tag: str) -> str:
            with ThreadPoolExecutor(2) as pool:
                attempts = [pool.submit(super().run, task, count, f"{tag}-first")]
                until(lambda: len(place.landed("users")) >= 1, "the first load")
                attempts.append(pool.submit(super().run, _Second(task), count, f"{tag}-second"))
                [failure, *_] = [each.result() for each in wait(attempts, return_when=FIRST_COMPLETED).done]
                for name in ("first", "second"):
                    self.interrupt(f"{tag}-{name}")
            return failure

    hang = {"kind": "hang", "after": 1_000, "once": str(tmp_path / "hung")}
    place.offer({"streams": {"users": {"records": 20_000}}, "state_every": 200, "failure": hang})
    report = _OnExecutors(place, FirstToReturn(1)).sync()
    assert report.status == "complete"
    assert place.column("users") == list(range(20_000))
    assert len(set(place.landed("users"))) == len(place.landed("users"))


class _Second:
    """A task in its second attempt."""

    def __init__(self, task: Any) -> None:
        self._task = task

    def __call__(self, number: int, attempt: int) -> None:
        self._task(number, attempt + 1)
