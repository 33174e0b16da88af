"""Every named point between two durable steps: the process is killed there, and again while the next one recovers.

Whatever was killed wherever: no state is ever ahead of its rows, old rows stay readable, and at the end each row is
there exactly once and no file is left over.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dagster_airbyte_proto.points import ASIDE_POINTS, PARQUET_POINTS, POINTS
from dagster_airbyte_proto.tables.writer import PARQUET
from tests.fork_server import Kill
from tests.sync.house import House, ParquetHouse
from tests.sync.life import MODES, SCOPES, Life, every_kill
from tests.sync.zygote import Zygote

# Streams whose source deletes: of the one the rows go, of the other they are marked.
# What is refreshed lands aside in several loads where states are of the stream, and in one where they are shared.
_SIDE_BY_SIDE = {
    "append_dedup": {"users": "append_dedup", "orders": "soft_delete"},
    "overwrite": {"users": "overwrite", "orders": "overwrite_dedup"},
}
_ASIDE = ("load.announced", "load.promoted")
_AROUND_COMMITS: tuple[Kill, ...] = (("recover.begun", 1), ("load.committed", 1))


@pytest.fixture(scope="module")
def zygotes() -> Iterator[list[Zygote]]:
    pair = [Zygote(), Zygote()]
    yield pair
    for zygote in pair:
        zygote.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: a killed process loses nothing of it, and syncing it costs nothing."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(dir="/dev/shm", prefix="airbyte-proto-") as made:
        yield Path(made)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("mode", MODES)
def test_dying_at_any_point_and_again_in_recovery_loses_and_doubles_nothing(
    mode: str, scope: str, zygotes: list[Zygote], folder: Path
) -> None:
    houses = [House(folder / str(number)) for number in range(len(zygotes))]
    refreshes = "resumed" if (mode, scope) == ("overwrite", "stream") else "whole"
    modes = _SIDE_BY_SIDE.get(mode, mode)
    lives = [Life(*pair, modes, scope, refreshes=refreshes) for pair in zip(zygotes, houses, strict=True)]
    assert _swept(lives) == set(POINTS), "a point that never fires, or one that is not in the list"


@pytest.mark.timeout(900)
def test_dying_where_an_unfinished_generation_is_dropped_loses_and_doubles_nothing(
    zygotes: list[Zygote], folder: Path
) -> None:
    house = House(folder)
    life = Life(zygotes[0], house, _SIDE_BY_SIDE["overwrite"], "stream", refreshes="dropped")
    life.survive()
    for first in _ASIDE:
        dropping = life.survive((first, 1))
        for second in (*dropping, *ASIDE_POINTS):
            life.survive((first, 1), (second, 1))
    assert life.reached.keys() >= set(ASIDE_POINTS)


@pytest.mark.timeout(900)
def test_dying_where_a_generation_changes_the_columns_shows_old_ones_or_new_ones(
    zygotes: list[Zygote], folder: Path
) -> None:
    life = Life(
        zygotes[0],
        House(folder),
        _SIDE_BY_SIDE["overwrite"],
        "stream",
        refreshes="resumed",
        changes_columns=True,
    )
    life.survive()
    # The last load publishes the generations.
    last = Counter(life.house.points)
    life.survive(("table.committed", 1))
    life.survive(("load.announced", last["load.announced"]), ("table.committed", 1))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", sorted(mode.value for mode in PARQUET.modes))
def test_dying_at_any_point_on_plain_parquet_loses_and_doubles_nothing(
    mode: str, zygotes: list[Zygote], folder: Path
) -> None:
    """Recovery is the same as on folder tables, but for what comes after a commit."""
    lives = [Life(zygote, ParquetHouse(folder / str(number)), mode, "stream") for number, zygote in enumerate(zygotes)]
    kills = _kills_of(lives)
    once = [(kill,) for kill in kills]
    again = [((point, 1), kill) for point in ("table.committed", *PARQUET_POINTS) for kill in _AROUND_COMMITS]

    def survive(life: Life, share: list[tuple[Kill, ...]]) -> None:
        for each in share:
            life.survive(*each)

    deaths = [*once, *again]
    with ThreadPoolExecutor(len(lives)) as pool:
        list(pool.map(survive, lives, [deaths[0::2], deaths[1::2]]))
    assert set(lives[0].reached + lives[1].reached) == {*POINTS, *PARQUET_POINTS}


def _swept(lives: list[Life]) -> set[str]:
    """The points that were reached. Each life dies of its share of all kills."""
    kills = _kills_of(lives)
    with ThreadPoolExecutor(len(lives)) as pool:
        list(pool.map(Life.survive_all, lives, [kills[0::2], kills[1::2]]))
    return {point for life in lives for point in life.reached}


def _kills_of(lives: list[Life]) -> list[Kill]:
    for life in lives:
        life.survive()
    lives[0].survive()
    return every_kill(lives[0].house.points)
