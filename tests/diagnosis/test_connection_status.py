"""The status of a connection, by its runs and leases."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.cli.commands.status import status_parts
from dagster_airbyte_proto.diagnosis.connection_status import INTERRUPTED, RUNNING, connection_status
from dagster_airbyte_proto.loads.load import RELAY_ID_PREFIX
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


@pytest.mark.parametrize(("table_id", "command"), [("a table", "recover"), (f"{RELAY_ID_PREFIX}crm", "sync")])
def test_a_load_of_a_dead_run_is_ended_by_the_command_that_reaches_it(
    tmp_path: Path, table_id: str, command: str
) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/state.db", clock=HandClock())
    lease = store.acquire("shop", run_id="run-1", holder="a process of another machine", seconds=60)
    store.begin_run(lease, refreshed=[], streams=[])
    [part] = load_of("open").parts
    part = msgspec.structs.replace(part, table_id=table_id)
    store.announce(lease, msgspec.structs.replace(load_of("open"), parts=(part,)))
    store.release(lease)
    _, *notes = status_parts([connection_status(store, "shop")], datetime.now(UTC))
    assert f"shop: 1 load of a dead run may have landed; airbyte-proto {command} shop finds out" in notes
