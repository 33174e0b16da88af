"""The loads of syncs that did not complete a stream, as a later sync looks for them in a long log."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.store import LoggedLoad
from dagster_airbyte_proto.dagster_defs.step.earlier_loads import EarlierLoads
from dagster_airbyte_proto.loads.load import CommittedRows
from dagster_airbyte_proto.model import PlannedStream, ReadMode, Stream, StreamId, TableName, WriteMode
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus
from tests.conformance.state_store.fixtures import ORDERS, USERS, load_of

_BOTH = {USERS: 20, ORDERS: 20}


class _CountingStore(SqlStore):
    """Counts the loads that were read of its log."""

    read = 0

    def loads(self, connection: str, *, limit: int = 100, before: int | None = None) -> Sequence[LoggedLoad]:
        found = super().loads(connection, limit=limit, before=before)
        self.read += len(found)
        return found


@pytest.fixture
def store(tmp_path: Path) -> _CountingStore:
    return _CountingStore(f"sqlite:///{tmp_path}/state.db")


def _run(store: SqlStore, run_id: str, loads: Mapping[StreamId, int], complete: Sequence[StreamId] = ()) -> None:
    """A run that lands so many loads of each stream, of 4 records with 3 rows."""
    lease = store.acquire("shop", run_id=run_id, holder="one", seconds=60)
    store.begin_run(lease, refreshed=[], streams=[USERS, ORDERS])
    for stream, count in loads.items():
        for number in range(count):
            load = load_of(f"{run_id} {stream} {number}", run_id=run_id)
            parts = (msgspec.structs.replace(load.parts[0], stream=stream),)
            store.announce(lease, msgspec.structs.replace(load, parts=parts))
            committed = CommittedRows(stream, "7", was_there=False)
            store.promote(lease, msgspec.structs.replace(load, parts=parts), (), [committed])
    ends = {str(stream): {"status": "complete" if stream in complete else "failed"} for stream in loads}
    store.end_run(lease, status="failed", report=json.dumps({"streams": ends}))
    store.release(lease)


def _earlier(earlier: EarlierLoads, stream: StreamId) -> tuple[int, int, int] | None:
    table = TableName("shop", "users")
    planned = PlannedStream(Stream(stream, {}), table, ReadMode.INCREMENTAL, WriteMode.APPEND_DEDUP)
    own = StreamReport(status=SyncStatus.COMPLETE, table="shop.users", load_ids=(f"now {stream} 0",))
    found = earlier.report(planned, own)
    return None if found is None else (found.emitted, found.committed, found.rejected)


def test_the_log_is_read_as_far_back_as_a_stream_needs(store: _CountingStore) -> None:
    _run(store, "long ago", _BOTH, complete=[USERS, ORDERS])
    _run(store, "before", {USERS: 4, ORDERS: 12}, complete=[USERS])
    _run(store, "last", {USERS: 1, ORDERS: 1})
    _run(store, "now", {USERS: 1, ORDERS: 1})
    earlier = EarlierLoads(store, "shop")
    assert store.read == 0
    assert _earlier(earlier, USERS) == (4, 3, 1)
    assert store.read == 10
    assert _earlier(earlier, ORDERS) == (13 * 4, 13 * 3, 13)
    assert _earlier(earlier, USERS) == (4, 3, 1)
    assert store.read == 30


def test_nothing_is_read_where_the_sync_before_was_complete(store: _CountingStore) -> None:
    _run(store, "before", _BOTH, complete=[USERS, ORDERS])
    _run(store, "now", {USERS: 1})
    assert _earlier(EarlierLoads(store, "shop"), USERS) is None
    assert store.read == 0
