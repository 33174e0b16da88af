"""Some hundreds of schedules of relays. `python -m tests.simulation N --through relay` runs as many as one likes."""

import pytest

from tests.simulation.__main__ import RELAYS, run_seeds

_EACH = 6
_BATCHES = 40


@pytest.mark.everyday("0")
@pytest.mark.parametrize("batch", range(_BATCHES))
def test_a_relay_skips_no_record_and_sends_none_again_whatever_fails_or_is_set_back(batch: int) -> None:
    result = run_seeds(range(batch * _EACH, (batch + 1) * _EACH), RELAYS)
    assert result.found == []
    assert result.fired.total() >= _EACH // 2
    assert result.runs["complete"] >= _EACH
