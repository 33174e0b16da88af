"""A run that is stopped, is taken over, and wakes up when all is done: it is turned away, and has done no harm."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.sync.crashes.house import House
from tests.sync.crashes.zygote import Zygote
from tests.sync.shop import processes_of, until

COMPLETE, CONFLICT = 0, 2
MODES = ("append", "overwrite", "append_dedup", "overwrite resumed")
POINTS = ("stage.file_closed", "load.staged", "load.announced", "table.committing", "table.committed", "load.committed")
Pair = tuple[Zygote, Zygote]


@pytest.fixture(scope="module")
def pairs() -> Iterator[list[Pair]]:
    made = [(Zygote(), Zygote()), (Zygote(), Zygote())]
    yield made
    for pair in made:
        for zygote in pair:
            for child in psutil.Process(zygote.pid).children():
                child.kill()  # a sleeper that a failed test has left
            zygote.close()


def offer(house: House, records: int, *, resumable: bool = False) -> None:
    names = enumerate(("users", "orders"))
    streams = {name: {"records": records + number, "resumable": resumable} for number, name in names}
    house.offer({"streams": streams, "state_every": 5, "interleave": True})


def expect_rows(house: House, records: int, where: object) -> None:
    for number, stream in enumerate(("users", "orders")):
        assert house.column(stream) == list(range(records + number)), (where, stream)


def stopped_at(zygote: Zygote, house: House, point: str, n: int) -> psutil.Process:
    process = psutil.Process(zygote.start(house, (point, n), house.home / "awake"))
    until(lambda: house.points.count(point) >= n, f"a run that comes to {point}")
    # Not while one of its threads is inside a transaction: nobody but the sleeper could end that one.
    with closing(sqlite3.connect(house.home / "state.db", isolation_level=None, timeout=30)) as database:
        database.execute("BEGIN IMMEDIATE")
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: process.status() == psutil.STATUS_STOPPED, "a run that is stopped")
    return process


def sync_once_the_lease_is_over(zygote: Zygote, house: House, holder: int) -> int:
    ended = [CONFLICT]

    def has_the_lease() -> bool:
        ended[0] = zygote.sync(house)
        if ended[0] == CONFLICT:
            assert "StateConflict" in house.report["error"]
            assert f"pid {holder} " in house.report["error"]
        return ended[0] != CONFLICT

    until(has_the_lease, "a lease that runs out")
    return ended[0]


def wake_up(zygote: Zygote, house: House, process: psutil.Process) -> int:
    (house.home / "awake").touch()
    os.kill(process.pid, signal.SIGCONT)
    return zygote.end()


def live_through(pair: Pair, folder: Path, mode: str, stop: tuple[str, int]) -> None:
    sleeper, other = pair
    write, _, resumed = mode.partition(" ")
    house = House(folder, write=write, read="full_refresh" if write == "overwrite" else "incremental")
    offer(house, 11, resumable=bool(resumed))
    assert other.sync(house) == COMPLETE
    offer(house, 24, resumable=bool(resumed))
    process = stopped_at(sleeper, house, *stop)
    offer(house, 35, resumable=bool(resumed))
    assert sync_once_the_lease_is_over(other, house, process.pid) == COMPLETE, (stop, house.report)
    expect_rows(house, 35, stop)
    before = [(stored.stream, stored.version) for stored in house.store.history("shop")]

    assert wake_up(sleeper, house, process) == CONFLICT, (stop, house.report)
    assert house.report["error"].startswith("StateConflict"), (stop, house.report)
    expect_rows(house, 35, stop)
    assert [(stored.stream, stored.version) for stored in house.store.history("shop")] == before, stop
    assert (house.loose_files(), house.aside()) == ([], []), stop
    assert processes_of(folder) == [], stop

    offer(house, 37, resumable=bool(resumed))
    assert other.sync(house) == COMPLETE, (stop, house.report)
    expect_rows(house, 37, stop)
    assert house.loose_files() == [], stop


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_slept_through_its_lease_is_turned_away_and_leaves_nothing(
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
    house = House(quick_folder)
    # It goes on saying nothing until it is killed, and renews its lease of a second meanwhile.
    house.offer({"streams": {"users": {"records": 30}}, "failure": {"kind": "hang", "after": 20}})
    pid = first.start(house)
    until(lambda: "load.promoted" in house.points, "a first run at work")
    told = ""
    for _ in range(3):
        assert second.sync(house) == CONFLICT
        told = house.report["error"]
        assert f"pid {pid} " in told
    assert told.startswith("StateConflict: starting to work on connection shop")
    os.kill(pid, signal.SIGKILL)
    assert first.end() == -signal.SIGKILL
    # A holder that is dead is not waited for.
    house.offer({"streams": {"users": {"records": 30}}})
    assert second.sync(house) == COMPLETE, house.report
    assert house.column("users") == list(range(30))
    until(lambda: processes_of(quick_folder) == [], "the end of the dead run's connector")
