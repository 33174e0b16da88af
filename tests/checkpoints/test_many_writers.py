"""Many writers of one SQLite file wait for each other fairly."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.sql.database import Database


@pytest.mark.nightly
def test_writers_without_a_pause_all_get_their_turns(tmp_path: Path) -> None:
    database, ends_at = Database(f"sqlite:///{tmp_path}/state.db"), time.monotonic() + 4

    def turns_of(_: int) -> int:
        turns = 0
        while time.monotonic() < ends_at:
            with database.write():
                time.sleep(0.005)
            turns += 1
        return turns

    with ThreadPoolExecutor(20) as pool:
        turns = sorted(pool.map(turns_of, range(20)))
    assert turns[-1] < 8 * turns[0], turns
