"""Some hundreds of schedules of errors, deaths, pauses and set-backs. `make simulate N=…` runs as many as one likes."""

import pytest

from tests.simulation.__main__ import PUSHES, SYNCS, run_seeds
from tests.simulation.schedule import divided_schedule_of

_SEEDS = 160
_BATCHES = 8
_PUSHES_EACH = 6
_PUSH_BATCHES = 40


@pytest.mark.everyday("0")
@pytest.mark.parametrize("batch", range(_BATCHES))
def test_the_same_holds_where_two_processes_read_the_streams(batch: int) -> None:
    each = _SEEDS // _BATCHES // 2
    result = run_seeds(range(batch * each, (batch + 1) * each), SYNCS._replace(schedule_of=divided_schedule_of))
    assert result.found == []
    assert result.runs["complete"] >= each


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_whatever_fails_or_dies_each_row_is_there_once_or_the_run_says_so(batch: int) -> None:
    each = _SEEDS // _BATCHES
    result = run_seeds(range(batch * each, (batch + 1) * each))
    assert result.found == []
    assert result.fired.total() >= each // 2
    assert result.runs["complete"] >= each


@pytest.mark.everyday("0")
@pytest.mark.parametrize("batch", range(_PUSH_BATCHES))
def test_a_push_skips_no_row_and_sends_none_again_whatever_fails_or_is_set_back(batch: int) -> None:
    result = run_seeds(range(batch * _PUSHES_EACH, (batch + 1) * _PUSHES_EACH), PUSHES)
    assert result.found == []
    assert result.fired.total() >= _PUSHES_EACH // 2
    assert result.runs["complete"] >= _PUSHES_EACH
