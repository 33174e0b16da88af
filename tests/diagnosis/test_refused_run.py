"""The run that was refused last, by the logs of runs."""

import os
import time
from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.diagnosis.refused_run import refused_run
from dagster_airbyte_proto.errors import Cancelled, ConfigError, StateConflict
from dagster_airbyte_proto.sync.run_log import RunLog

_HELD = StateConflict("starting to work", "another run has held it", remedy="Wait until that run has ended.")


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    return SqlStore(f"sqlite:///{tmp_path}/state.db")


def _refuse(tmp_path: Path, run_id: str, error: Exception = _HELD, *, max_bytes: int = 1 << 20) -> None:
    with pytest.raises(type(error)), RunLog(tmp_path / "shop", run_id, max_bytes=max_bytes) as log:
        log.write("ERROR", "an error of before\nwith a second line")
        log.write("NOTE", "waits for the other run")
        raise error


def test_the_whole_error_is_found_also_where_lines_did_not_fit(tmp_path: Path, store: SqlStore) -> None:
    for number, max_bytes in enumerate((1 << 20, 1)):
        _refuse(tmp_path, f"run-{number}", max_bytes=max_bytes)
        found = refused_run(store, "shop", tmp_path)
        assert found is not None
        assert (found.error, found.log.stem) == (str(_HELD), f"run-{number}")
        os.utime(found.log, (number, number))  # The next one is newer, also by the clock of a disk.


def test_a_run_that_was_cancelled_died_or_goes_on_was_not_refused(tmp_path: Path, store: SqlStore) -> None:
    assert refused_run(store, "shop", tmp_path) is None
    _refuse(tmp_path, "cancelled", Cancelled("waiting", "it was cancelled"))
    with RunLog(tmp_path / "shop", "retried") as log:
        log.note_end("failed", ["it was refused"])
        log.write("INFO", "and was started once more")
    assert refused_run(store, "shop", tmp_path) is None


def test_a_run_that_the_store_knows_or_from_before_the_last_one_was_not_refused(
    tmp_path: Path, store: SqlStore
) -> None:
    def changed(run_id: str, at: float) -> None:  # The clock of a disk may be some milliseconds late.
        os.utime(tmp_path / "shop" / f"{run_id}.log", (at, at))

    _refuse(tmp_path, "older", ConfigError("reading", "it is wrong"))
    changed("older", 1)
    assert refused_run(store, "shop", tmp_path) is not None
    lease = store.acquire("shop", run_id="known", holder="one", seconds=60)
    store.begin_run(lease, refreshed=[], streams=[])
    _refuse(tmp_path, "known")
    changed("known", time.time() + 60)
    assert refused_run(store, "shop", tmp_path) is None
    _refuse(tmp_path, "newer")
    changed("newer", time.time() + 30)
    found = refused_run(store, "shop", tmp_path)
    assert found is not None and found.log.stem == "newer"
