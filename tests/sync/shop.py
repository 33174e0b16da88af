"""One connection to the fake source, synced within this process, for tests of syncs and their reports."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.sync.run_options import NoProgressListener, RunOptions, Timeouts
from dagster_airbyte_proto.sync.stream_run import StreamRun
from tests.sync.crashes.fake_connection import FakeConnection

SECRET = "correct-horse-battery"
EVERYTHING = SyncRequest()
REFRESH = SyncRequest(refresh=True)
# The heartbeat is waited for from the start on: for longer than a busy machine takes to start a connector.
SHORT_TIMEOUTS = Timeouts(startup_seconds=60.0, heartbeat_seconds=2.0, exit_seconds=0.5)
_TIMEOUT_SECONDS = 180.0


class Shop(FakeConnection):
    """`shop`, whose connection and settings a test may write as it likes. Runs without a server.

    One byte makes a load, unless `max_bytes` says otherwise: every state ends one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        write: str = "append",
        read: str = "incremental",
        max_bytes: int = 1,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(folder, write=write, read=read, max_bytes=max_bytes)
        self.folder = folder
        self.modes: dict[str, Any] = {"*": {"read": read, "write": write}}
        self.load: dict[str, Any] = {"max_bytes": max_bytes}
        self.config: dict[str, Any] = {"password": SECRET}
        self.more: dict[str, Any] = {}
        self.program: list[str] | None = None
        self.settings_written = {"catalog": {"format": self.format}, "lease_seconds": 30, **(settings or {})}

    def offer(self, scenario: dict[str, Any]) -> None:
        """Sets what the source has from now on."""
        self._scenario_file.write_text(json.dumps(scenario))
        launch = {"kind": "local", "command": self.program or self._connector(scenario)}
        connection = {
            "connector": {"protocol": self.protocol, "launch": launch, **self.connector_options},
            "config": {"scenario": str(self._scenario_file), **self.config},
            "streams": self.modes,
            "load": self.load,
            **self.more,
        }
        self.connection_file.write_text(yaml.safe_dump(connection))
        (self.home / "settings.yaml").write_text(yaml.safe_dump(self.settings_written))

    def sync(self, request: SyncRequest = EVERYTHING, options: RunOptions | None = None) -> SyncReport:
        """One sync, and what holds after each: every record is accounted for."""
        with Engine(Settings.load(self.home, self.home / "settings.yaml")) as engine:
            report = sync_connection(engine, Connection.from_file(self.connection_file), request, options)
        for name, stream in report.streams.items():
            assert stream.emitted + stream.added == stream.committed + stream.rejected + stream.unknown, (name, stream)
            assert stream.rejected == sum(stream.rejections.values()), (name, stream)
        return report

    def sync_of(
        self, scenario: dict[str, Any], request: SyncRequest = EVERYTHING, options: RunOptions | None = None
    ) -> SyncReport:
        self.offer(scenario)
        return self.sync(request, options)

    def log(self, report: SyncReport) -> str:
        return (self.home / "logs" / "shop" / f"{report.run_id}.log").read_text()


class CancelAfter(NoProgressListener):
    """Sets `event` when so many records have come: a watcher."""

    def __init__(self, event: threading.Event, records: int) -> None:
        self._event, self._records = event, records
        self._runs: Mapping[StreamId, StreamRun] = {}

    def run_started(self, run_id: str, runs: Mapping[StreamId, StreamRun]) -> None:  # noqa: ARG002 - the protocol has it
        self._runs = runs

    def progressed(self) -> None:
        if sum(run.counts.emitted for run in self._runs.values()) >= self._records:
            self._event.set()


def impatient_options(timeouts: Timeouts = SHORT_TIMEOUTS) -> RunOptions:
    return RunOptions(threading.Event(), timeouts=timeouts)


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    pause = threading.Event()
    while not is_so():
        assert time.monotonic() < deadline, f"in vain waited for: {what}"
        pause.wait(0.01)


def processes_of(folder: Path) -> list[str]:
    """The processes that have the folder in their command line: connectors that were left behind.

    Not the processes that show a run's output in Dagster: they end a moment after a run that was killed.
    """
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(folder) in word for word in words) and not any("compute_logs" in word for word in words):
            found.append(" ".join(words))
    return found


def descriptors() -> set[tuple[str, str]]:
    """The descriptors of this process, and what each of them is. Those of tests before may go meanwhile, as garbage."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # One that was closed meanwhile, or by which they were listed.
            found.add((each.name, str(each.readlink())))
    return found
