"""Kills a sync at every named point between two durable steps, in any format, and again while the next one recovers.

`killed_connection.py` has the checks after each kill.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dagster_airbyte_proto.points import POINTS
from tests.support.fork_server import Kill
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.killed_connection import KilledConnection, Runner, every_kill

SWEPT_MODES: Mapping[str, Mapping[str, str]] = {
    "append": {"users": "append", "orders": "append"},
    # Streams whose source deletes rows: one table removes them, the other marks them.
    "append_dedup": {"users": "append_dedup", "orders": "soft_delete"},
    # Refreshes land on a branch in several loads with states of streams, and in one load with a shared state.
    "overwrite": {"users": "overwrite", "orders": "overwrite_dedup"},
}
_KILLS_OF_A_CONNECTION = 4
OpenKilledConnection = Callable[[Path, Runner], KilledConnection]


def killed_connection_of(mode: str, scope: str, connection: Callable[[Path], FakeConnection]) -> OpenKilledConnection:
    """Opens connections in one of the `SWEPT_MODES`."""
    refreshes = "resumed" if (mode, scope) == ("overwrite", "stream") else "whole"

    def open_connection(place: Path, runner: Runner) -> KilledConnection:
        return KilledConnection(runner, connection(place), SWEPT_MODES[mode], scope, refreshes=refreshes)

    return open_connection


def sweep(
    open_connection: OpenKilledConnection,
    runners: Sequence[Runner],
    folder: Path,
    die: Callable[[KilledConnection, Iterable[Kill]], None] = KilledConnection.survive_all,
    points: Iterable[str] = POINTS,
) -> None:
    """Divides all kills among the runners, which work in parallel. Connections stay young, since each check after a
    kill reads all rows."""
    clean = open_connection(folder / "clean", runners[0])
    clean.survive()
    clean.survive()
    kills, reached = every_kill(clean.connection.points), set(clean.reached)
    clean.connection.store.close()

    def run_share(number: int) -> None:
        mine = kills[number :: len(runners)]
        for at in range(0, len(mine), _KILLS_OF_A_CONNECTION):
            killed = open_connection(folder / f"{number}-{at}", runners[number])
            killed.survive()
            die(killed, mine[at : at + _KILLS_OF_A_CONNECTION])
            reached.update(killed.reached)
            killed.connection.store.close()

    with ThreadPoolExecutor(len(runners)) as pool:
        list(pool.map(run_share, range(len(runners))))
    assert reached == set(points), "a point that never fires, or one that is not in the list"
