"""One connection to the fake source, synced within this process: for tests of what a sync does and tells."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import Wanted
from dagster_airbyte_proto.sync.read.pull import Patience
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run import Terms, Unwatched, sync_connection
from dagster_airbyte_proto.sync.stream_run import StreamRun
from tests.sync.crashes.house import House

SECRET = "correct-horse-battery"
EVERYTHING = Wanted()
REFRESH = Wanted(refresh=True)
IMPATIENT = Patience(startup_seconds=5.0, heartbeat_seconds=0.5, exit_seconds=0.5)
_PATIENCE_SECONDS = 180.0


class Shop(House):
    """`shop`, whose connection and settings a test may write as it likes. Runs without a zygote.

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
        self.settings_written = {"catalog": {"format": "folder"}, "lease_seconds": 30, **(settings or {})}

    def offer(self, scenario: dict[str, Any]) -> None:
        """What the source has from now on."""
        self._scenario_file.write_text(json.dumps(scenario))
        launch = {"kind": "local", "command": self.program or self._connector(scenario)}
        connection = {
            "connector": {"protocol": self.protocol, "launch": launch},
            "config": {"scenario": str(self._scenario_file), **self.config},
            "streams": self.modes,
            "load": self.load,
            **self.more,
        }
        self.connection_file.write_text(yaml.safe_dump(connection))
        (self.home / "settings.yaml").write_text(yaml.safe_dump(self.settings_written))

    def sync(self, wanted: Wanted = EVERYTHING, terms: Terms | None = None) -> SyncReport:
        """One sync, and what holds after each: every record is accounted for."""
        with Engine(Settings.load(self.home, self.home / "settings.yaml")) as engine:
            report = sync_connection(engine, Connection.from_file(self.connection_file), wanted, terms)
        for name, told in report.streams.items():
            assert told.emitted == told.committed + told.rejected, (name, told)
            assert told.rejected == sum(told.rejections.values()), (name, told)
        return report

    def sync_of(self, scenario: dict[str, Any], wanted: Wanted = EVERYTHING, terms: Terms | None = None) -> SyncReport:
        self.offer(scenario)
        return self.sync(wanted, terms)

    def log(self, report: SyncReport) -> str:
        return (self.home / "logs" / "shop" / f"{report.run_id}.log").read_text()


class CancelAfter(Unwatched):
    """Sets `event` when so many records have come: a watcher."""

    def __init__(self, event: threading.Event, records: int) -> None:
        self._event, self._records = event, records
        self._runs: Mapping[StreamId, StreamRun] = {}

    def began(self, run_id: str, runs: Mapping[StreamId, StreamRun]) -> None:  # noqa: ARG002 - as a watcher has it
        self._runs = runs

    def progressed(self) -> None:
        if sum(run.emitted for run in self._runs.values()) >= self._records:
            self._event.set()


def impatiently(patience: Patience = IMPATIENT) -> Terms:
    return Terms(threading.Event(), patience=patience)


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    pause = threading.Event()
    while not is_so():
        assert time.monotonic() < deadline, f"in vain waited for: {what}"
        pause.wait(0.01)


def processes_of(folder: Path) -> list[str]:
    """What still runs with the folder in its command line: a connector that was left behind."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(folder) in word for word in words):
            found.append(" ".join(words))
    return found
