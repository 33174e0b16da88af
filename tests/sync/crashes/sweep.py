"""Every named point between two durable steps, in any format: the process is killed there, and again while the next one
recovers. `life.py` says what has to hold each time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dagster_airbyte_proto.points import POINTS
from tests.support.fork_server import Kill
from tests.sync.crashes.house import House
from tests.sync.crashes.life import Life, Runner, every_kill

SWEPT_MODES: Mapping[str, Mapping[str, str]] = {
    "append": {"users": "append", "orders": "append"},
    # Streams whose source deletes: of the one the rows go, of the other they are marked.
    "append_dedup": {"users": "append_dedup", "orders": "soft_delete"},
    # What is refreshed lands aside in several loads where states are of the stream, and in one where they are shared.
    "overwrite": {"users": "overwrite", "orders": "overwrite_dedup"},
}
_KILLS_OF_A_LIFE = 4
LifeIn = Callable[[Path, Runner], Life]


def life_of(mode: str, scope: str, house: Callable[[Path], House]) -> LifeIn:
    """Lives in one of the `SWEPT_MODES`."""
    refreshes = "resumed" if (mode, scope) == ("overwrite", "stream") else "whole"

    def life_in(place: Path, runner: Runner) -> Life:
        return Life(runner, house(place), SWEPT_MODES[mode], scope, refreshes=refreshes)

    return life_in


def sweep(
    life_in: LifeIn,
    runners: Sequence[Runner],
    folder: Path,
    die: Callable[[Life, Iterable[Kill]], None] = Life.survive_all,
    points: Iterable[str] = POINTS,
) -> None:
    """Lives that die of their shares of all kills, as many at once as there are runners. None of them gets old: after
    each death all that ever came is looked at."""
    clean = life_in(folder / "clean", runners[0])
    clean.survive()
    clean.survive()
    kills, reached = every_kill(clean.house.points), set(clean.reached)
    clean.house.store.close()

    def live_through(number: int) -> None:
        mine = kills[number :: len(runners)]
        for at in range(0, len(mine), _KILLS_OF_A_LIFE):
            life = life_in(folder / f"{number}-{at}", runners[number])
            life.survive()
            die(life, mine[at : at + _KILLS_OF_A_LIFE])
            reached.update(life.reached)
            life.house.store.close()

    with ThreadPoolExecutor(len(runners)) as pool:
        list(pool.map(live_through, range(len(runners))))
    assert reached == set(points), "a point that never fires, or one that is not in the list"
