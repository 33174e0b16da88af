"""Every named point between two durable steps: the process is killed there, and again while the next one recovers.

Whatever was killed wherever: no state is ever ahead of its rows, old rows stay readable, and at the end each row is
there exactly once and no file is left over.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.points import POINTS
from tests.sync.house import House, Zygote

STREAMS = ("users", "orders")
BEFORE, AFTER = 6, 19
KILLED = -9
SECOND_KILLS = ("recover.begun", "table.committing", "table.committed", "load.committed", "load.promoted", "run.leased")
MODES = ("append", "overwrite", "append_dedup")
SCOPES = ("stream", "global")


def scenario(records: int, scope: str) -> dict[str, Any]:
    streams = {name: {"records": records + number, "pad": 40} for number, name in enumerate(STREAMS)}
    return {"streams": streams, "state": scope, "state_every": 4, "interleave": True}


@pytest.fixture(scope="module")
def zygotes() -> Iterator[list[Zygote]]:
    pair = [Zygote(), Zygote()]
    yield pair
    for zygote in pair:
        zygote.close()


class Case:
    """One write mode and one scope of state, killed at one point, and perhaps at a second."""

    def __init__(self, zygote: Zygote, folder: Path, mode: str, scope: str) -> None:
        read = "full_refresh" if mode == "overwrite" else "incremental"
        self.zygote, self.mode, self.scope = zygote, mode, scope
        self.house = House(folder, write=mode, read=read)
        self.house.offer(scenario(BEFORE, scope))
        assert zygote.sync(self.house) == 0, self.house.report
        self.house.offer(scenario(AFTER, scope))

    def run(self, *kills: tuple[str, int]) -> Counter[str]:
        """Kills one run after the other, then lets one end; the points that were reached on the way."""
        reached: Counter[str] = Counter()
        for kill in kills:
            ended = self.zygote.sync(self.house, kill)
            reached += self.house.points
            assert ended in (KILLED, 0), (kill, self.house.report)
            self.expect_order()
        assert self.zygote.sync(self.house) == 0, (kills, self.house.report)
        reached += self.house.points
        self.expect_everything(kills)
        return reached

    def expect_order(self) -> None:
        """Nothing is there twice, no state is ahead of its rows, and old rows can be read."""
        positions = self.house.positions()
        for number, stream in enumerate(STREAMS):
            ids = self.house.column(stream)
            assert len(ids) == len(set(ids)), (stream, ids)
            if self.mode == "overwrite":
                assert ids in (list(range(BEFORE + number)), list(range(AFTER + number)))
            else:
                assert ids == list(range(len(ids)))
                assert positions[stream] <= len(ids)

    def expect_everything(self, kills: tuple[tuple[str, int], ...]) -> None:
        for number, stream in enumerate(STREAMS):
            assert self.house.column(stream) == list(range(AFTER + number)), (kills, stream)
            if self.mode != "overwrite":
                assert self.house.positions()[stream] == AFTER + number, (kills, stream)
        assert self.house.loose_files(STREAMS) == [], kills


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("mode", MODES)
def test_dying_at_any_point_and_again_in_recovery_loses_and_doubles_nothing(
    mode: str, scope: str, zygotes: list[Zygote], tmp_path: Path
) -> None:
    clean = Case(zygotes[0], tmp_path / "clean", mode, scope).run()
    first = [(point, n) for point in POINTS for n in sorted({1, 2, clean[point]}) if 0 < n <= clean[point]]
    cases = [(kill,) for kill in first]
    cases += [(kill, (second, 1)) for kill in first for second in SECOND_KILLS if kill[1] == 1]

    def run(numbered: tuple[int, list[tuple[tuple[str, int], ...]]]) -> Counter[str]:
        worker, share = numbered
        reached: Counter[str] = Counter()
        for number, kills in enumerate(share):
            reached += Case(zygotes[worker], tmp_path / f"{worker}-{number}", mode, scope).run(*kills)
        return reached

    with ThreadPoolExecutor(len(zygotes)) as pool:
        reached = sum(pool.map(run, enumerate([cases[0::2], cases[1::2]])), Counter[str]())
    assert set(reached) == set(POINTS), "a point that never fires, or one that is not in the list"
