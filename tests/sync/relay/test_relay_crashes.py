"""A relay that is killed at any point: no record is skipped, no state is ahead of what the destination has, and nothing
that it acknowledged is sent again."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dagster_airbyte_proto.points import PUSH_POINTS
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.support.fork_server import Kill
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.relay.component_relay import relayed_shop
from tests.sync.relay.relayed_shop import RelayedShop
from tests.sync.relay.test_resend import check_end, have_rejected, shop_that_takes

_KILLED = -9
_SYNC_POINTS = ("run.begun", "stage.file_closed", "load.staged", "load.announced", "load.committed", "load.promoted")
_POINTS = [
    *((point, 1) for point in (*PUSH_POINTS[:-1], *_SYNC_POINTS, "run.delivered", "run.ended")),
    *(
        (point, number)
        for point in ("push.announced", "push.sent", "push.noted", "load.announced")
        for number in (2, 3)
    ),
]
_CASES = [
    (protocol, target, write, scope)
    for protocol, target in (("airbyte", "airbyte"), ("singer", "singer"))
    for write in ("append_dedup", "append")
    for scope in ("stream", "global")
    if (protocol, scope) != ("singer", "global")
]
_CASES += [
    (protocol, "rapidbyte", write, "stream")
    for protocol in ("rapidbyte", "airbyte")
    for write in ("append_dedup", "append")
]
_CASES += [("airbyte", "singer", "append", "stream"), ("singer", "airbyte", "append_dedup", "stream")]
# One before a row is sent, two around it, and one before the state moves.
_TYPICAL_POINTS = (("load.announced", 1), ("push.sent", 2), ("push.noted", 1), ("load.committed", 1))


@pytest.fixture(scope="module")
def server() -> Iterator[SyncForkServer]:
    opened = SyncForkServer()
    yield opened
    opened.close()


def test_a_killed_relay_skips_no_record_and_sends_none_again(server: SyncForkServer, quick_folder: Path) -> None:
    shop = relayed_shop(quick_folder, protocol="airbyte", target="airbyte", write="append_dedup")
    assert _kills(server, shop, _TYPICAL_POINTS, "global") == len(_TYPICAL_POINTS)


@pytest.mark.nightly
@pytest.mark.parametrize(("protocol", "target", "write", "scope"), _CASES)
def test_nothing_is_skipped_and_nothing_acknowledged_is_sent_again(
    server: SyncForkServer, quick_folder: Path, protocol: str, target: str, write: str, scope: str
) -> None:
    shop = relayed_shop(quick_folder, protocol=protocol, target=target, write=write)
    assert _kills(server, shop, _POINTS, scope) > len(_POINTS) / 2


def _kills(server: SyncForkServer, shop: RelayedShop, points: Sequence[Kill], scope: str) -> int:
    """Kills the relay at each point, and lets the next one come to its end. Returns how often it was killed."""
    records, kills = 12, 0
    for turn, kill in enumerate(points, start=1):
        records += 12
        shop.offer({"streams": {"users": {"records": records}, "orders": {"records": turn}}, "state": scope})
        where = f"killed at {kill}"
        kills += server.sync(shop, kill) == _KILLED
        had = len(shop.ids("users"))
        proved = shop.acknowledged_ids()
        for stream, position in shop.positions().items():
            assert set(shop.ids(stream)) >= set(range(position)), where
        report = shop.sync(SyncRequest(retries_unknown=True))
        assert report.status is SyncStatus.COMPLETE, (where, report)
        assert set(shop.ids("users")) == set(range(records)), where
        assert set(shop.ids("orders")) == set(range(turn)), where
        assert shop.positions() == {"users": records, "orders": turn}, where
        assert proved.isdisjoint(shop.ids("users")[had:]), where
    assert not list((shop.home / "staging").rglob("*.parquet"))
    return kills


@pytest.mark.nightly
@pytest.mark.parametrize(("target", "echo"), [("airbyte", "each"), ("singer", "end"), ("airbyte", "exit")])
def test_a_replacement_shows_all_the_records_of_before_or_all_of_now(
    server: SyncForkServer, quick_folder: Path, target: str, echo: str
) -> None:
    shop = RelayedShop(quick_folder, target=target, write="overwrite", read="full_refresh")
    shop.acknowledge_by(echo)
    before = kills = 0
    for records, kill in enumerate(_POINTS, start=11):
        shop.offer({"streams": {"users": {"records": records}, "orders": {"records": 2}}})
        kills += server.sync(shop, kill) == _KILLED
        assert shop.shown_ids("users") in (list(range(before)), list(range(records))), kill
        assert shop.sync().status is SyncStatus.COMPLETE, kill
        assert (shop.shown_ids("users"), shop.shown_ids("orders")) == (list(range(records)), [0, 1]), kill
        before = records
    assert kills > len(_POINTS) / 2


_RESEND_POINTS = [
    *((point, 1) for point in (*PUSH_POINTS[:-1], "run.begun", "load.staged", "load.announced", "load.committed")),
    *((point, number) for point in ("load.promoted", "push.announced", "push.sent", "push.noted") for number in (1, 2)),
]


@pytest.mark.everyday("append_dedup-typical")
@pytest.mark.parametrize("points", [_TYPICAL_POINTS[:3], _RESEND_POINTS], ids=["typical", "all"])
@pytest.mark.parametrize("write", ["append_dedup", "append"])
def test_rejected_records_that_are_sent_again_are_neither_lost_nor_acknowledged_twice(
    server: SyncForkServer, quick_folder: Path, write: str, points: Sequence[Kill]
) -> None:
    pytest.importorskip("jsonschema_rs", reason="the package jsonschema-rs is not installed")
    shop = shop_that_takes(quick_folder, 5, write=write)
    records = kills = 0
    for kill in points:
        records += 12
        have_rejected(shop, records)
        kills += server.sync(shop, kill, retries_rejected=True) == _KILLED
        check_end(shop, records, f"killed at {kill}")
    assert kills >= len(points) - 1  # A second position is noted only if it comes half a second later.
    assert not list((shop.home / "staging").rglob("*.parquet"))


def test_a_load_whose_files_are_gone_is_read_again(server: SyncForkServer, quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder)
    shop.offer({"streams": {"users": {"records": 12}}})
    assert server.sync(shop, ("load.announced", 1)) == _KILLED
    shutil.rmtree(shop.home / "staging")
    assert shop.sync().status is SyncStatus.COMPLETE
    assert shop.ids("users") == list(range(12))
    assert shop.positions() == {"users": 12}
