"""Every named point between two durable steps: the process is killed there, and again while the next one recovers.

Whatever was killed wherever: no state is ever ahead of its rows, old rows stay readable, and at the end each row is
there exactly once and no file is left over.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dagster_airbyte_proto.points import POINTS
from tests.sync.house import House, Zygote

STREAMS = ("users", "orders")
NEW_RECORDS = 11
KILLED = -9
MODES = ("append", "overwrite", "append_dedup")
SCOPES = ("stream", "global")
Kill = tuple[str, int]


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


class Life:
    """One connection that is killed again and again. Each time its source has more to tell than before."""

    def __init__(self, zygote: Zygote, folder: Path, mode: str, scope: str) -> None:
        read = "full_refresh" if mode == "overwrite" else "incremental"
        self.zygote, self.mode, self.scope = zygote, mode, scope
        self.house = House(folder, write=mode, read=read)
        self.reached: Counter[str] = Counter()
        self.records = 0
        self.survive()

    def survive(self, *kills: Kill) -> list[str]:
        """Kills one run after the other, then lets one end; the points that this last one reached in its recovery."""
        before, self.records = self.records, self.records + NEW_RECORDS
        streams = {name: {"records": self.records + number, "pad": 40} for number, name in enumerate(STREAMS)}
        self.house.offer({"streams": streams, "state": self.scope, "state_every": 5, "interleave": True})
        for kill in kills:
            ended = self.zygote.sync(self.house, kill)
            self.reached += Counter(self.house.points)
            assert ended == KILLED, (kills, ended, self.house.report if ended >= 0 else None)
            self.expect_order(kills, before)
        ended = self.zygote.sync(self.house)
        assert ended == 0, (kills, ended, self.house.report)
        self.reached += Counter(self.house.points)
        self.expect_everything(kills)
        recovering = takewhile(lambda point: point != "run.begun", self.house.points)
        return [point for point in dict.fromkeys(recovering) if point != "run.leased"]

    def expect_order(self, kills: tuple[Kill, ...], before: int) -> None:
        """Nothing is there twice, no state is ahead of its rows, and old rows can be read."""
        positions = self.house.positions()
        for number, stream in enumerate(STREAMS):
            ids = self.house.column(stream)
            assert ids == list(range(len(ids))), (kills, stream, ids)
            assert len(ids) >= (before + number if before else 0), (kills, stream)
            if self.mode == "overwrite":
                assert len(ids) in (before + number, self.records + number), (kills, stream)
            else:
                assert positions[stream] <= len(ids), (kills, stream)

    def expect_everything(self, kills: tuple[Kill, ...]) -> None:
        for number, stream in enumerate(STREAMS):
            assert self.house.column(stream) == list(range(self.records + number)), (kills, stream)
            if self.mode != "overwrite":
                assert self.house.positions()[stream] == self.records + number, (kills, stream)
        assert self.house.loose_files() == [], kills


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("mode", MODES)
def test_dying_at_any_point_and_again_in_recovery_loses_and_doubles_nothing(
    mode: str, scope: str, zygotes: list[Zygote], folder: Path
) -> None:
    lives = [Life(zygote, folder / str(number), mode, scope) for number, zygote in enumerate(zygotes)]
    lives[0].survive()
    clean = Counter(lives[0].house.points)
    kills = [(point, n) for point in POINTS if clean[point] for n in sorted({1, clean[point]})]

    def work(life: Life, share: list[Kill]) -> None:
        for kill in share:
            for second in life.survive(kill) if kill[1] == 1 else ():
                life.survive(kill, (second, 1))

    with ThreadPoolExecutor(len(lives)) as pool:
        list(pool.map(work, lives, [kills[0::2], kills[1::2]]))
    reached = lives[0].reached + lives[1].reached
    assert set(reached) == set(POINTS), "a point that never fires, or one that is not in the list"
