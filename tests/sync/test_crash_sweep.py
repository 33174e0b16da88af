"""Every named point between two durable steps: the process is killed there, and again while the next one recovers.

Whatever was killed wherever: no state is ever ahead of its rows, old rows stay readable, and at the end each row is
there exactly once and no file is left over.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dagster_airbyte_proto.points import POINTS
from tests.sync.house import House
from tests.sync.life import MODES, SCOPES, Life, every_kill
from tests.sync.zygote import Zygote


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
    lives = [Life(zygote, House(folder / str(number)), mode, scope) for number, zygote in enumerate(zygotes)]
    for life in lives:
        life.survive()
    lives[0].survive()
    kills = every_kill(lives[0].house.points)
    with ThreadPoolExecutor(len(lives)) as pool:
        list(pool.map(Life.survive_all, lives, [kills[0::2], kills[1::2]]))
    reached = lives[0].reached + lives[1].reached
    assert set(reached) == set(POINTS), "a point that never fires, or one that is not in the list"
