"""Some hundreds of schedules of errors, deaths, pauses and set-backs. `make simulate N=…` runs as many as one likes."""

import pytest

from tests.simulation.__main__ import run_seeds
from tests.simulation.schedule import divided_schedule_of

_SEEDS = 160
_BATCHES = 8


@pytest.mark.everyday("0")
@pytest.mark.parametrize("batch", range(_BATCHES))
def test_the_same_holds_where_two_processes_read_the_streams(batch: int) -> None:
    each = _SEEDS // _BATCHES // 2
    result = run_seeds(range(batch * each, (batch + 1) * each), divided_schedule_of)
    assert result.found == []
    assert result.runs["complete"] >= each


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_whatever_fails_or_dies_each_row_is_there_once_or_the_run_says_so(batch: int) -> None:
    each = _SEEDS // _BATCHES
    result = run_seeds(range(batch * each, (batch + 1) * each))
    assert result.found == []
    assert result.fired.total() >= each // 2
    assert result.runs["complete"] >= each
