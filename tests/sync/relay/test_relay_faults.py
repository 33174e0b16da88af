"""A relay in which a call of the store fails, before its effect or after it, or a load does, or the source is poor.

No record is skipped, no state is ahead of the destination, and nothing that was acknowledged is sent again.
"""

from contextlib import suppress
from pathlib import Path

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from tests.sync.relay.relayed_shop import RelayedShop
from tests.sync.shop import REFRESH

_CALLS = (
    "begin_run", "note_folders", "announce", "seal_plan", "begin_delivery", "announce_rows", "acknowledge_rows",
    "promote", "end_run", "deliveries", "states", "announced_loads", "rejected_rows",
)  # fmt: skip
_CASES = [
    (protocol, target, write, fault)
    for protocol, target in (("airbyte", "singer"), ("singer", "airbyte"))
    for write in ("append", "append_dedup")
    for fault in (CallFault.BEFORE, CallFault.AFTER)
]
_EVERY_TIME = (("airbyte", "singer", "append", CallFault.AFTER),)


@pytest.mark.parametrize(
    ("protocol", "target", "write", "fault"),
    [pytest.param(*case, marks=[] if case in _EVERY_TIME else [pytest.mark.nightly]) for case in _CASES],
)
def test_nothing_is_skipped_and_nothing_acknowledged_is_sent_again(
    quick_folder: Path, protocol: str, target: str, write: str, fault: CallFault
) -> None:
    shop = RelayedShop(quick_folder, protocol=protocol, target=target, write=write)
    fired = 0
    for turn, (call, number) in enumerate(((call, number) for call in _CALLS for number in (1, 2)), start=1):
        records = 12 * turn
        shop.offer({"streams": {"users": {"records": records}, "orders": {"records": turn}}})
        where = f"{call} {number} failed {fault} its effect"
        faults = CallFaults({(call, number): fault})
        with suppress(ProtoError), Engine(_settings(shop), store=with_faults(shop.store, faults)) as engine:
            report = sync_connection(engine, Connection.from_file(shop.connection_file), SyncRequest())
            for stream in report.streams.values():
                assert stream.emitted == stream.committed + stream.rejected + stream.unknown, where
        fired += len(faults.fired)
        proved, had = shop.acknowledged_ids(), len(shop.ids("users"))
        for name, position in shop.positions().items():
            assert set(shop.ids(name)) >= set(range(position)), where
        report = shop.sync(SyncRequest(retries_unknown=True))
        assert report.status is SyncStatus.COMPLETE, (where, report)
        assert set(shop.ids("users")) == set(range(records)), where
        assert set(shop.ids("orders")) == set(range(turn)), where
        assert shop.positions() == {"users": records, "orders": turn}, where
        assert proved.isdisjoint(shop.ids("users")[had:]), where
    assert fired > len(_CALLS)


def test_the_files_of_a_load_that_was_given_up_go_with_the_next_run(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, write="append_dedup", max_bytes=1 << 20)
    shop.to |= {"dies_after": 3, "once": str(quick_folder / "once")}
    assert shop.sync_of({"streams": {"users": {"records": 9}}}).streams["users"].rejected == 9
    assert not shop.store.announced_loads("shop")
    staged = {*(shop.home / "staging").rglob("*.parquet")}
    assert shop.sync().status is SyncStatus.COMPLETE
    assert staged and not any((shop.home / "staging").rglob("*.parquet"))


@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_a_source_without_checkpoints_is_read_on_after_a_refresh_where_rows_have_a_key(
    quick_folder: Path, write: str
) -> None:
    shop = RelayedShop(quick_folder, write=write, max_bytes=1 << 20)
    offer = {"streams": {"users": {"records": 3}}, "state": "none"}
    shop.sync_of(offer)
    assert shop.sync_of(offer, REFRESH).status is SyncStatus.COMPLETE
    users = shop.sync_of(offer).streams["users"]
    if write == "append":  # They would be there twice.
        assert "moved no state, so the connector sends its rows again" in (users.error or "")
    else:
        assert (users.status, users.error, users.committed) == (SyncStatus.COMPLETE, None, 3)


def _settings(shop: RelayedShop) -> Settings:
    return Settings.load(shop.home, shop.home / "settings.yaml")
