"""The status of a connection, by its runs and leases."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.diagnosis.connection_status import INTERRUPTED, RUNNING, connection_status
from tests.conformance.state_store.fixtures import HandClock, load_of


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_run_goes_on_as_long_as_its_lease_lasts_by_the_clock_of_the_store(tmp_path: Path, hours: int) -> None:
    """That of PostgreSQL is its server's, and this machine's may be another."""
    clock = HandClock()
    clock.now = datetime.now(UTC) + timedelta(hours=hours)
    store = SqlStore(f"sqlite:///{tmp_path}/state.db", clock=clock)
    lease = store.acquire("shop", run_id="run-1", holder="a process of another machine", seconds=60)
    store.begin_run(lease, refreshed=[], streams=[])
    store.announce(lease, load_of("open"))
    found = connection_status(store, "shop")
    assert (found.status, found.unfinished_loads) == (RUNNING, 0)
    clock.advance(61)
    found = connection_status(store, "shop")
    assert (found.status, found.unfinished_loads) == (INTERRUPTED, 1)
