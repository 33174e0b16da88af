"""Some hundreds of schedules of relays. `python -m tests.simulation N --through relay` runs as many as one likes."""

from pathlib import Path

import msgspec
import pytest

from tests.simulation.__main__ import RELAYS, run_seeds
from tests.simulation.relays.relay_schedule import RelaySchedule
from tests.simulation.world import Place

_EACH = 6
_BATCHES = 40


@pytest.mark.everyday("0")
@pytest.mark.parametrize("batch", range(_BATCHES))
def test_a_relay_skips_no_record_and_sends_none_again_whatever_fails_or_is_set_back(batch: int) -> None:
    result = run_seeds(range(batch * _EACH, (batch + 1) * _EACH), RELAYS)
    assert result.found == []
    assert result.fired.total() >= 1  # Of so few schedules most may plan a fault that nothing reaches.
    assert result.runs["complete"] >= _EACH


_PAUSED_AT_THE_END = b"""
{"kind": {"writes": ["append"], "state": "stream", "manner": ["singer", "each", false, false],
          "checkpoint_rows": null, "whole_loads": false, "word": "retry"},
 "steps": [{"action": "sync", "records": [1], "faults": [{"where": "stop write", "number": 1, "kind": "paused"}],
            "behaviour": ["", [0, 0, false], false]}]}
"""


def test_a_relay_whose_load_another_run_has_ended_meanwhile_says_so(quick_folder: Path) -> None:
    schedule = msgspec.json.decode(_PAUSED_AT_THE_END, type=RelaySchedule)
    result = RELAYS.run(schedule, Place(quick_folder))
    assert (result.violation, result.runs["StateConflict"]) == ("", 1)
