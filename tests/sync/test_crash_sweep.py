"""Every named point between two durable steps: the process is killed there, and again while the next one recovers.

Whatever was killed wherever: no state is ever ahead of its rows, old rows stay readable, and at the end each row is
there exactly once and no file is left over.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dagster_airbyte_proto.points import PARQUET_POINTS, POINTS
from dagster_airbyte_proto.tables.writer import PARQUET
from tests.fork_server import Kill
from tests.sync.house import House, ParquetHouse
from tests.sync.life import MODES, SCOPES, Life, every_kill
from tests.sync.zygote import Zygote

# Streams whose source deletes: of the one the rows go, of the other they are marked.
_SIDE_BY_SIDE = {"append_dedup": {"users": "append_dedup", "orders": "soft_delete"}}
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
    modes = _SIDE_BY_SIDE.get(mode, mode)
    lives = [Life(zygote, House(folder / str(number)), modes, scope) for number, zygote in enumerate(zygotes)]
    kills = _kills_of(lives)
    with ThreadPoolExecutor(len(lives)) as pool:
        list(pool.map(Life.survive_all, lives, [kills[0::2], kills[1::2]]))
    reached = lives[0].reached + lives[1].reached
    assert set(reached) == set(POINTS), "a point that never fires, or one that is not in the list"


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


def _kills_of(lives: list[Life]) -> list[Kill]:
    for life in lives:
        life.survive()
    lives[0].survive()
    return every_kill(lives[0].house.points)
