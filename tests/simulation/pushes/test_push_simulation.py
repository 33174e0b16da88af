"""Hundreds of schedules of pushes. `python -m tests.simulation --through push N` runs as many as one likes."""

import pytest

from tests.simulation.__main__ import PUSHES, run_seeds

_BATCHES = 10
_EACH = 50


@pytest.mark.everyday("0", "1")
@pytest.mark.parametrize("batch", range(_BATCHES))
def test_a_push_skips_no_row_and_sends_none_again_whatever_fails_or_is_set_back(batch: int) -> None:
    result = run_seeds(range(batch * _EACH, (batch + 1) * _EACH), PUSHES)
    assert result.found == []
    assert result.fired.total() >= _EACH // 2
    assert result.runs["complete"] >= _EACH
