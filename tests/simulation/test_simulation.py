"""Hundreds of schedules of errors, deaths, pauses and set-backs. `make simulate N=…` runs as many as one likes."""

from pathlib import Path

import pytest

from tests.simulation.__main__ import SYNCS, run_seeds
from tests.simulation.schedule import Action, divided_schedule_of, schedule_of
from tests.simulation.simulation import run_schedule
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
