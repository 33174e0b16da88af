"""Every named point between two durable steps: the process is killed there, and again while the next one recovers.

Whatever was killed wherever: no state is ever ahead of its rows, old rows stay readable, and at the end each row is
there exactly once and no file is left over.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dagster_airbyte_proto.points import ASIDE_POINTS, PARQUET_POINTS, POINTS
from dagster_airbyte_proto.tables.formats import PARQUET
from tests.support.fork_server import Kill
from tests.sync.crashes.house import House, ParquetHouse, TapHouse
from tests.sync.crashes.life import SCOPES, Life, Runner
from tests.sync.crashes.sweep import SWEPT_MODES, life_of, sweep
from tests.sync.crashes.zygote import Zygote

_ASIDE = ("load.announced", "load.promoted")
_AROUND_COMMITS: tuple[Kill, ...] = (("recover.begun", 1), ("load.committed", 1))
_WHERE_PARQUET_RECOVERS_OTHERWISE = {"table.committed", *PARQUET_POINTS}


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
@pytest.mark.parametrize(
    ("mode", "scope", "house"),
    [*((mode, scope, House) for mode in SWEPT_MODES for scope in SCOPES), ("append", "global", TapHouse)],
)
def test_dying_at_any_point_and_again_in_recovery_loses_and_doubles_nothing(
    mode: str, scope: str, house: type[House], zygotes: list[Zygote], folder: Path
) -> None:
    sweep(life_of(mode, scope, house), zygotes, folder)


@pytest.mark.timeout(900)
def test_dying_where_an_unfinished_generation_is_dropped_loses_and_doubles_nothing(
    zygotes: list[Zygote], folder: Path
) -> None:
    life = Life(zygotes[0], House(folder), SWEPT_MODES["overwrite"], "stream", refreshes="dropped")
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
    modes = SWEPT_MODES["overwrite"]
    life = Life(zygotes[0], House(folder), modes, "stream", refreshes="resumed", changes_columns=True)
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

    def life_in(place: Path, runner: Runner) -> Life:
        return Life(runner, ParquetHouse(place), mode, "stream")

    def die(life: Life, kills: Iterable[Kill]) -> None:
        for point, reaching in kills:
            life.survive((point, reaching))
            for second in _AROUND_COMMITS if reaching == 1 and point in _WHERE_PARQUET_RECOVERS_OTHERWISE else ():
                life.survive((point, reaching), second)

    sweep(life_in, zygotes, folder, die, points=(*POINTS, *PARQUET_POINTS))
