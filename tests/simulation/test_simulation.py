"""Hundreds of schedules of errors, deaths, pauses and set-backs. `make simulate N=…` runs as many as one likes."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from dagster_airbyte_proto.testing.faults import CallFault
from tests.simulation.__main__ import LANES, SYNCS, run_seeds, shrunk
from tests.simulation.schedule import Action, Fault, Schedule, Step, divided_schedule_of, schedule_of
from tests.simulation.simulation import SimulationResult, run_schedule
from tests.simulation.world import Place

_BATCHES = 8
_EACH = 60
_DIVIDED_EACH = 20


@pytest.mark.everyday("0")
@pytest.mark.parametrize("batch", range(_BATCHES))
def test_the_same_holds_where_two_processes_read_the_streams(batch: int) -> None:
    seeds = range(batch * _DIVIDED_EACH, (batch + 1) * _DIVIDED_EACH)
    result = run_seeds(seeds, SYNCS._replace(schedule_of=divided_schedule_of))
    assert result.found == []
    assert result.runs["complete"] >= _DIVIDED_EACH


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_whatever_fails_or_dies_each_row_is_there_once_or_the_run_says_so(batch: int) -> None:
    result = run_seeds(range(batch * _EACH, (batch + 1) * _EACH))
    assert result.found == []
    assert result.fired.total() >= _EACH // 2
    assert result.runs["complete"] >= _EACH


def test_the_same_holds_where_the_store_is_a_file_that_is_set_back_under_the_process(tmp_path: Path) -> None:
    place = Place(tmp_path, on_disk=True)
    schedules = {seed: schedule_of(seed) for seed in range(30)}
    chosen = {
        seed: schedule
        for seed, schedule in schedules.items()
        if any(step.action is Action.STORE_BACK for step in schedule.steps)
    }
    broken = {seed: violation for seed, each in chosen.items() if (violation := run_schedule(each, place).violation)}
    assert chosen
    assert broken == {}


@pytest.mark.parametrize("through", LANES)
def test_a_seed_is_one_schedule_and_a_schedule_is_read_as_it_was_written(through: str) -> None:
    lane = LANES[through]
    for seed in range(50):
        schedule = lane.schedule_of(seed)
        assert lane.schedule_of(seed) == schedule
        assert msgspec.json.decode(msgspec.json.encode(schedule), type=lane.kind) == schedule


def test_a_broken_schedule_is_shrunk_to_what_breaks() -> None:
    """Here a full refresh breaks a promise, if the table was set back before it."""

    def run(schedule: Schedule, _place: Place) -> SimulationResult:
        was_back = is_broken = False
        for step in schedule.steps:
            is_broken |= was_back and step.refresh
            was_back |= step.action is Action.TABLE_BACK
        return SimulationResult("doubled" if is_broken else "", [], Counter())

    fault = Fault("commit shop.users", 1, CallFault.AFTER)
    sync = Step(Action.SYNC, records=(2, 3), faults=(fault, fault), refresh=True, breaks_after=2)
    others = (Step(Action.MAINTAIN), Step(Action.CLOCK, minutes=1))
    schedule = Schedule(("append", "append"), "stream", (sync, Step(Action.TABLE_BACK, ago=1), *others, sync))
    smallest, violation = shrunk(SYNCS._replace(run=run), schedule)
    steps = (Step(Action.TABLE_BACK, ago=1), Step(Action.SYNC, records=(0,), refresh=True))
    assert (smallest, violation) == (Schedule(("append",), "stream", steps), "doubled")
