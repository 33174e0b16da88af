"""Connectors, disks and databases that break: the error names who can act, nothing is lost, no process is left."""

import json
import os
import shlex
import sqlite3
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import (
    ConfigError,
    ConnectorError,
    ProtoError,
    StagingError,
    StateConflict,
    StateUnavailable,
)
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.read.hang_detector import HangDetector
from dagster_airbyte_proto.sync.report import LineCounts, SyncReport, SyncStatus
from dagster_airbyte_proto.sync.run_options import NoProgressListener, RunOptions, Timeouts
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.testing.fake_source import command
from tests.support.needs import lacks
from tests.sync.conftest import OpenShop
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.shop import CancelAfter, Shop, impatient_options, until

COMPLETE, FAILED = SyncStatus.COMPLETE, SyncStatus.FAILED
WAYS_TO_BREAK = {
    "hang": "no record and no new state was received",
    "ignore_sigterm": "no record and no new state was received",
    "close": "was ended by signal 15",
    "signal": "was ended by signal 9",
    "exit": "exited with code 1",
    "cut": "exited with code 1",
}


def users(records: int, **whole: Any) -> dict[str, Any]:
    return {"streams": {"users": {"records": records}}, "state_every": 5, **whole}


def expect_whole(place: Shop, records: int) -> None:
    assert place.sync_of(users(records)).status is COMPLETE
    assert place.column("users") == list(range(records))
    assert place.positions() == {"users": records}
    assert place.loose_files() == []


@pytest.mark.parametrize("kind", WAYS_TO_BREAK)
def test_a_connector_that_breaks_keeps_what_is_covered_and_leaves_no_process(kind: str, shop: OpenShop) -> None:
    place = shop()
    waits = kind in ("hang", "ignore_sigterm", "close")
    options = impatient_options() if waits else None
    report = place.sync_of(users(30, failure={"kind": kind, "after": 17}), options=options)
    told = report.streams["users"]
    assert (report.status, told.committed, told.state) == (FAILED, 15, {"next": 15})
    assert WAYS_TO_BREAK[kind] in (told.error or "")
    expect_whole(place, 30)


def test_a_connector_that_is_over_its_time_keeps_what_is_covered(shop: OpenShop) -> None:
    place = shop()
    place.connector_options = {"limits": {"timeout_seconds": 5}}
    report = place.sync_of(users(30, failure={"kind": "hang", "after": 17}))
    told = report.streams["users"]
    assert (report.status, told.committed, told.state) == (FAILED, 15, {"next": 15})
    assert "ended by signal 15: it ran for more than 5 s (limits: timeout_seconds; raise that" in (told.error or "")
    place.connector_options = {}
    expect_whole(place, 30)


@pytest.mark.nightly
def test_a_limit_is_named_where_the_connector_reports_its_end_in_words_of_its_own(shop: OpenShop) -> None:
    place = shop()
    place.connector_options = {"limits": {"timeout_seconds": 10}}
    error = {"message": "shutting down", "failure_type": "system_error"}
    line = json.dumps({"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1, "error": error}})
    script = f"end() {{ echo '{line}'; exit 1; }}; trap end TERM; while :; do sleep 0.05; done"
    place.program = _but_reading(place.folder, script)
    report = place.sync_of(users(30))
    assert "shutting down" in str(report.connector.errors)
    assert "it ran for more than 10 s (limits: timeout_seconds" in (report.streams["users"].error or "")


def test_a_connector_that_only_logs_counts_as_silent(shop: OpenShop) -> None:
    place = shop()
    place.program = _but_reading(place.folder, "while :; do echo still here; sleep 0.01; done")
    report = place.sync_of(users(30), options=impatient_options())
    assert "no record and no new state was received" in (report.streams["users"].error or "")


def test_a_schema_is_a_sign_of_life_before_the_first_record() -> None:
    detector = HangDetector(Timeouts(startup_seconds=600.0, heartbeat_seconds=3600.0), 0.0)
    detector.check(LineCounts(other=1), 601.0)
    with pytest.raises(ConnectorError, match="wrote nothing in the first 600 s"):
        detector.check(LineCounts(), 601.0)


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_connector_that_waits_for_a_rate_limit_is_given_until_its_reset(comes_back: bool, shop: OpenShop) -> None:
    place = shop()
    limited = {"type": "RATE_LIMITED", "rate_limited": {"quota_reset": "RESET"}}
    status = {"stream_descriptor": {"name": "users"}, "status": "RUNNING", "reasons": [limited]}
    said = {"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": status}}
    # Until its reset a busy machine has the time to begin; or that is over long before the connector goes on.
    milliseconds, seconds = (60_000, 3) if comes_back else (1_000, 60)
    line = json.dumps(said).replace('"RESET"', f"'$(($(date +%s%3N) + {milliseconds}))'")
    place.program = _but_reading(place.folder, f"echo '{line}'; sleep {seconds}")
    report = place.sync_of(users(30), options=impatient_options())
    assert "stream users is rate limited" in place.log(report)
    assert report.status is (COMPLETE if comes_back else FAILED)
    assert place.column("users") == (list(range(30)) if comes_back else [])


def _but_reading(folder: Path, script: str) -> list[str]:
    """The fake source, with another script that runs before `read`."""
    source = shlex.join(command(folder / "scenario.json"))
    file = folder / "connector.sh"
    file.write_text(f'if [ "$1" = read ]; then {script}; fi; exec {source} "$@"\n')
    return ["sh", str(file)]


@pytest.fixture
def server() -> Iterator[SyncForkServer]:
    server = SyncForkServer()
    yield server
    server.close()


@pytest.mark.everyday(">&2-100")
@pytest.mark.parametrize(("to", "megabytes"), [(">&2", 100), ("", 200)])
def test_a_flood_of_log_lines_is_drained_in_bounded_memory(
    to: str, megabytes: int, shop: OpenShop, server: SyncForkServer
) -> None:
    place = shop()
    place.program = _but_reading(place.folder, f"yes {'x' * 4000} | head -c {megabytes}000000 {to}; echo")
    place.offer(users(30))
    assert server.sync(place) == 0, place.report
    assert place.column("users") == list(range(30))
    assert 0 < place.report["peak_bytes"] < 400 << 20
    assert sum(file.stat().st_size for file in (place.home / "logs").rglob("*.log")) < 40 << 20


def test_cancelling_commits_what_is_covered_and_the_next_sync_completes(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    cancel = threading.Event()
    terms = RunOptions(cancel, CancelAfter(cancel, 17))
    report = place.sync_of(users(30, failure={"kind": "hang", "after": 17}), options=terms)
    told = report.streams["users"]
    assert (report.status, told.committed, told.state) == (SyncStatus.CANCELLED, 15, {"next": 15})
    assert "cancelled" in (told.error or "")
    expect_whole(place, 30)


# Disks and databases


@contextmanager
def mounted(place: Path, *how: str) -> Iterator[Path]:
    place.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0 or subprocess.run(["mount", *how, str(place)], capture_output=True).returncode:
        lacks("mounts", "needs the right to mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def outcome(place: Shop, scenario: dict[str, Any]) -> SyncReport | ProtoError:
    try:
        return place.sync_of(scenario)
    except ProtoError as error:
        return error


@pytest.mark.parametrize("where", ["warehouse", "home"])
def test_a_full_disk_is_an_error_and_once_there_is_room_nothing_is_lost(
    where: str, shop: OpenShop, tmp_path: Path
) -> None:
    place = shop(max_bytes=1)
    tested = place.home / "warehouse" if where == "warehouse" else place.home
    with mounted(tested, "-t", "tmpfs", "-o", "size=1500k", "tmpfs"):
        place.sync_of(users(5))
        filler = tested / "filler"
        records = {"streams": {"users": {"records": 3000, "pad": 0}}, "state_every": 100}
        with filler.open("wb") as file, pytest.raises(OSError):
            while True:
                os.write(file.fileno(), b"x" * 4096)
        found = outcome(place, records)
        said = str(found) if isinstance(found, ProtoError) else f"{found.error} {found.streams['users'].error}"
        assert "No space left" in said or "disk I/O error" in said or "disk is full" in said
        if isinstance(found, ProtoError):
            assert isinstance(found, StagingError | StateUnavailable)
        filler.unlink()
        assert place.sync_of(records).status is COMPLETE
        assert place.column("users") == list(range(3000))
        assert place.loose_files() == []


def test_a_locked_state_database_is_an_error_and_nothing_has_moved(shop: OpenShop) -> None:
    place = shop()
    database = place.home / "state.db"
    place.settings_written["state_url"] = f"sqlite:///{database}?timeout=0.2"
    place.sync_of(users(7))
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateUnavailable) as error:
            place.sync_of(users(20))
    assert "locked" in error.value.found
    assert place.column("users") == list(range(7))
    expect_whole(place, 20)


def test_a_state_database_that_is_locked_in_the_middle_leaves_nothing_doubled(shop: OpenShop) -> None:
    place = shop()
    database = place.home / "state.db"
    place.settings_written |= {"state_url": f"sqlite:///{database}?timeout=0.2", "lease_seconds": 1}
    place.sync_of(users(7))
    other = sqlite3.connect(database, isolation_level=None)

    class Locking(NoProgressListener):
        def run_started(self, run_id: str, runs: Mapping[StreamId, StreamRun]) -> None:  # noqa: ARG002 - the protocol has it
            other.execute("BEGIN IMMEDIATE")

    with closing(other), pytest.raises(StateUnavailable):
        place.sync_of(users(40), options=RunOptions(threading.Event(), Locking()))
    assert place.column("users") == list(range(7))

    def is_free() -> bool:
        """True once the lease has expired: the failed run could not release it, and its process is alive."""
        return not isinstance(outcome(place, users(40)), StateConflict)

    until(is_free, "a lease that runs out")
    expect_whole(place, 40)


def test_a_warehouse_that_cannot_be_written_fails_the_streams_and_loses_nothing(shop: OpenShop) -> None:
    place = shop()
    (place.home / "warehouse").write_text("no folder")
    report = place.sync_of(users(20))
    assert report.status is FAILED
    assert "warehouse" in (report.streams["users"].error or "")
    (place.home / "warehouse").unlink()
    expect_whole(place, 20)


def test_a_read_only_warehouse_fails_the_streams_and_loses_nothing(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(users(5))
    warehouse = place.home / "warehouse"
    with mounted(warehouse, "--bind", "-o", "ro", str(warehouse)):
        found = outcome(place, users(20))
        said = str(found) if isinstance(found, ProtoError) else f"{found.error} {found.streams['users'].error}"
        assert "Read-only" in said
    expect_whole(place, 20)


def test_a_home_that_is_no_folder_is_a_config_error(shop: OpenShop) -> None:
    place = shop()
    (place.home / "logs").write_text("no folder")
    with pytest.raises((StagingError, ConfigError)):
        place.sync_of(users(20))
