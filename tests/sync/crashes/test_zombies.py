"""A run that is stopped, taken over, and wakes up later: it is refused, and has done no harm."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.shop import processes_of, until

COMPLETE, CONFLICT = 0, 2
MODES = ("append", "overwrite", "append_dedup", "overwrite resumed")
POINTS = ("stage.file_closed", "load.staged", "load.announced", "table.committing", "table.committed", "load.committed")
Pair = tuple[SyncForkServer, SyncForkServer]


@pytest.fixture(scope="module")
def pairs() -> Iterator[list[Pair]]:
    made = [(SyncForkServer(), SyncForkServer()), (SyncForkServer(), SyncForkServer())]
    yield made
    for pair in made:
        for server in pair:
            for child in psutil.Process(server.pid).children():
                child.kill()  # a sleeper that a failed test has left
            server.close()


def offer(connection: FakeConnection, records: int, *, resumable: bool = False) -> None:
    names = enumerate(("users", "orders"))
    streams = {name: {"records": records + number, "resumable": resumable} for number, name in names}
    connection.offer({"streams": streams, "state_every": 5, "interleave": True})


def expect_rows(connection: FakeConnection, records: int, where: object) -> None:
    for number, stream in enumerate(("users", "orders")):
        assert connection.column(stream) == list(range(records + number)), (where, stream)


def stopped_at(server: SyncForkServer, connection: FakeConnection, point: str, n: int) -> psutil.Process:
    process = psutil.Process(server.start(connection, (point, n), connection.home / "awake"))
    until(lambda: connection.points.count(point) >= n, f"a run that comes to {point}")
    # Not while one of its threads is inside a transaction: only the stopped process could end that one.
    with closing(sqlite3.connect(connection.home / "state.db", isolation_level=None, timeout=30)) as database:
        database.execute("BEGIN IMMEDIATE")
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: process.status() == psutil.STATUS_STOPPED, "a run that is stopped")
    return process


def sync_once_the_lease_is_over(server: SyncForkServer, connection: FakeConnection, holder: int) -> int:
    ended = [CONFLICT]

    def has_the_lease() -> bool:
        ended[0] = server.sync(connection)
        if ended[0] == CONFLICT:
            assert "StateConflict" in connection.report["error"]
            assert f"pid {holder} " in connection.report["error"]
        return ended[0] != CONFLICT

    until(has_the_lease, "a lease that runs out")
    return ended[0]


def wake_up(server: SyncForkServer, connection: FakeConnection, process: psutil.Process) -> int:
    (connection.home / "awake").touch()
    os.kill(process.pid, signal.SIGCONT)
    return server.end()


def live_through(pair: Pair, folder: Path, mode: str, stop: tuple[str, int]) -> None:
    sleeper, other = pair
    write, _, resumed = mode.partition(" ")
    connection = FakeConnection(folder, write=write, read="full_refresh" if write == "overwrite" else "incremental")
    offer(connection, 11, resumable=bool(resumed))
    assert other.sync(connection) == COMPLETE
    offer(connection, 24, resumable=bool(resumed))
    process = stopped_at(sleeper, connection, *stop)
    offer(connection, 35, resumable=bool(resumed))
    assert sync_once_the_lease_is_over(other, connection, process.pid) == COMPLETE, (stop, connection.report)
    expect_rows(connection, 35, stop)
    before = [(stored.stream, stored.version) for stored in connection.store.history("shop")]

    assert wake_up(sleeper, connection, process) == CONFLICT, (stop, connection.report)
    assert connection.report["error"].startswith("StateConflict"), (stop, connection.report)
    expect_rows(connection, 35, stop)
    assert [(stored.stream, stored.version) for stored in connection.store.history("shop")] == before, stop
    assert (connection.loose_files(), connection.branches()) == ([], []), stop
    assert processes_of(folder) == [], stop

    offer(connection, 37, resumable=bool(resumed))
    assert other.sync(connection) == COMPLETE, (stop, connection.report)
    expect_rows(connection, 37, stop)
    assert connection.loose_files() == [], stop


@pytest.mark.everyday("append_dedup")
@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_slept_through_its_lease_is_refused_and_leaves_nothing(
    mode: str, pairs: list[Pair], quick_folder: Path
) -> None:
    points = POINTS if mode == "append" else POINTS[2:5]
    again = {
        "append": (("load.staged", 2), ("stage.file_closed", 3)),
        "overwrite resumed": (("load.announced", 2), ("table.committing", 3), ("load.committed", 2)),
    }
    stops = [*((point, 1) for point in points), *again.get(mode, ())]

    def work(pair: Pair, share: list[tuple[str, int]]) -> None:
        for point, n in share:
            live_through(pair, quick_folder / f"{point}-{n}", mode, (point, n))

    with ThreadPoolExecutor(len(pairs)) as pool:
        list(pool.map(work, pairs, [stops[0::2], stops[1::2]]))


def test_a_second_sync_is_refused_while_the_first_one_works(pairs: list[Pair], quick_folder: Path) -> None:
    first, second = pairs[0]
    connection = FakeConnection(quick_folder)
    # The connector hangs until the run is killed. The run renews its lease of a second meanwhile.
    connection.offer({"streams": {"users": {"records": 30}}, "failure": {"kind": "hang", "after": 20}})
    pid = first.start(connection)
    until(lambda: "load.promoted" in connection.points, "a first run at work")
    error = ""
    for _ in range(3):
        assert second.sync(connection) == CONFLICT
        error = connection.report["error"]
        assert f"pid {pid} " in error
    assert error.startswith("StateConflict: starting to work on connection shop")
    os.kill(pid, signal.SIGKILL)
    assert first.end() == -signal.SIGKILL
    # The lease of a dead holder is taken over at once.
    connection.offer({"streams": {"users": {"records": 30}}})
    assert second.sync(connection) == COMPLETE, connection.report
    assert connection.column("users") == list(range(30))
    until(lambda: processes_of(quick_folder) == [], "the end of the dead run's connector")
