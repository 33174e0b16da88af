"""Rejected records of a relay that are sent again, where their destination is unclear or something fails on the way."""

import errno
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.errors import CommitUnknown
from dagster_airbyte_proto.sync.plan.stream_plan import Slice, SyncRequest
from dagster_airbyte_proto.sync.report import ResentRecords, SyncStatus
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.relay.relayed_shop import RelayedShop, Row
from tests.sync.relay.test_resend import RETRY, kept_names, rows_of, shop_that_takes, take
from tests.sync.shop import EVERYTHING

pytest.importorskip("jsonschema_rs", reason="the package jsonschema-rs is not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[SyncForkServer]:
    opened = SyncForkServer()
    yield opened
    opened.close()


@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_what_is_only_counted_as_rejected_again_stays(
    quick_folder: Path, write: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = shop_that_takes(quick_folder, 5, write=write)
    names = [f"longer {number}" for number in range(7)]
    offer = _rows_with_bad(names, 1, 6)
    shop.options["batch"] = {"rows": 3}
    shop.sync_of(offer)
    take(shop, 20)
    shop.to["rejects"] = True
    resent = shop.sync_of(offer, RETRY).streams["users"].resent
    why = "refused by the destination, which does not say which row"
    assert resent == ResentRecords(7, 5, 2, rejections={why: 2})
    # Nobody knows which of a batch it means. In the second batch it took all.
    assert kept_names(shop) == [*names[:3], names[6]]
    reasons = {each.row.reason for each in shop.store.kept_rejections("shop")}
    assert reasons == {"rejected again, or taken: the destination does not say which"}
    capsys.readouterr()
    words = ["--home", str(shop.home), "--settings", str(shop.home / "settings.yaml"), "push", "rejected"]
    assert main([*words, str(shop.connection_file), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["rejected"]["users"]
    assert {each["may_be_there"] for each in listed} == {write == "append"}
    assert main([*words, str(shop.connection_file)]) == 0
    assert ("may_be_there" in capsys.readouterr().out) is (write == "append")
    had = len(shop.ids("users"))
    shop.to["rejects"] = False
    shop.offer(offer)
    report = shop.sync(RETRY)
    if write == "append":
        [warning] = report.warnings
        assert "4 rejected records are not sent again: the destination may have taken them" in warning
        assert (shop.ids("users")[had:], len(kept_names(shop))) == ([], 4)
        shop.sync(SyncRequest(retries_rejected=True, retries_unknown=True))
    assert (shop.ids("users")[had:], kept_names(shop)) == ([0, 1, 2, 6], [])


def test_what_a_destination_counts_before_it_dies_stays_and_is_reported(quick_folder: Path) -> None:
    shop = shop_that_takes(quick_folder, 5)
    names = [f"longer {number}" for number in range(7)]
    offer = _rows_with_bad(names, 1)
    shop.options["batch"] = {"rows": 3}
    shop.sync_of(offer)
    take(shop, 20)
    shop.to |= {"rejects": True, "dies_after": 7}
    resent = shop.sync_of(offer, RETRY).streams["users"].resent
    why = "rejected again, or taken: the destination does not say which"
    assert resent == ResentRecords(7, 3, 3, 1, rejections={why: 3})
    assert kept_names(shop) == [*names[:3], names[6]]


def test_a_load_of_which_nothing_is_unknown_is_given_up_and_blocks_nobody(quick_folder: Path) -> None:
    shop = shop_that_takes(quick_folder, 5, write="append")
    names = [*(f"longer{number}" for number in range(4)), "the longest"]
    shop.sync_of(rows_of(*names))
    take(shop, 8)
    shop.options |= {"on_error": "fail", "batch": {"rows": 2}}
    users = shop.sync_of(rows_of(*names, "new"), RETRY).streams["users"]
    assert (users.status, users.committed, users.resent) == (SyncStatus.FAILED, 1, ResentRecords(4, 4)), users.error
    assert "`sync --retry-rejected` sends them again" in (users.error or "")
    assert kept_names(shop) == ["the longest"]
    assert not shop.store.announced_loads("shop")
    assert shop.sync().status is SyncStatus.COMPLETE
    assert [row["name"] for row in shop.received("users")] == [*names[:4], "new"]


def test_a_load_that_recovery_gives_up_leaves_a_warning_and_no_files(
    server: SyncForkServer, quick_folder: Path
) -> None:
    shop = shop_that_takes(quick_folder, 5)
    shop.sync_of(rows_of("longer 1", "longer 2"))
    take(shop, 20)
    shop.offer(rows_of("longer 1", "longer 2"))
    _die(server, shop, "load.announced", retries_rejected=True)
    shop.to["dies_after"] = 1
    report = shop.sync_of(rows_of("longer 1", "longer 2"))
    [warning] = report.warnings
    assert warning.startswith("users: delivering load ") and "`sync --retry-rejected` sends them again" in warning
    assert (report.status, kept_names(shop)) == (SyncStatus.COMPLETE, ["longer 1", "longer 2"])
    assert not list((shop.home / "staging").rglob("resend*.parquet"))


@pytest.mark.everyday("True")
@pytest.mark.parametrize("retries", [False, True])
def test_a_column_that_is_hashed_since_goes_in_clear_no_more(
    server: SyncForkServer, quick_folder: Path, retries: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = shop_that_takes(quick_folder, 5)
    shop.sync_of(rows_of("longer 1", "longer 2"))
    take(shop, 64)
    shop.offer(rows_of("longer 1", "longer 2"))
    _die(server, shop, "load.announced", retries_rejected=True)
    _hash_names(shop, monkeypatch)
    shop.offer(rows_of("longer 1", "longer 2", "new"))
    report = shop.sync(RETRY if retries else EVERYTHING)
    assert (report.status, report.streams["users"].committed) == (SyncStatus.COMPLETE, 1), report
    assert [len(row["name"]) for row in shop.received("users")] == [64]
    assert "users: 2 rejected records that an earlier run was to send again" in report.warnings[0]
    assert len(report.warnings) == 1 + retries
    assert (kept_names(shop), shop.store.announced_loads("shop")) == (["longer 1", "longer 2"], [])
    assert not list((shop.home / "staging").rglob("resend*.parquet"))
    shop.modes = {"users": {"write": "append_dedup"}}
    shop.offer(rows_of("longer 1", "longer 2", "new"))
    assert "later load of their stream went with another" in shop.sync(RETRY).warnings[0]


def test_of_a_column_that_is_hashed_since_nothing_unknown_is_sent_again(
    quick_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = shop_that_takes(quick_folder, 5, write="append")
    names = [f"longer {number}" for number in range(12)]
    shop.sync_of(rows_of(*names))
    take(shop, 64)
    shop.to |= {"dies_after": 8, "once": str(quick_folder / "once")}
    shop.offer(rows_of(*names))
    with pytest.raises(CommitUnknown, match="5 of 12 rows are acknowledged"):
        shop.sync(RETRY)
    had = len(shop.received("users"))
    _hash_names(shop, monkeypatch)
    shop.offer(rows_of(*names, "new"))
    for request in (EVERYTHING, SyncRequest(retries_unknown=True)):
        with pytest.raises(CommitUnknown, match="with another key, selection") as unknown:
            shop.sync(request)
        assert "--as landed" in (unknown.value.remedy or "") and "--retry-unknown" not in (unknown.value.remedy or "")
    assert len(shop.received("users")) == had
    shop.resolve(as_landed=False)
    assert shop.sync().status is SyncStatus.COMPLETE
    assert [len(row["name"]) for row in shop.received("users")[had:]] == [64]
    assert not list((shop.home / "staging").rglob("*.parquet"))


def test_a_load_of_another_stream_waits_for_its_own_sync(server: SyncForkServer, quick_folder: Path) -> None:
    shop = shop_that_takes(quick_folder, 5)
    offer = {"streams": {**rows_of("longer")["streams"], "orders": {"records": 2}}}
    orders = {"object_name": "orders", "sync_mode": "append_dedup", "json_schema": {"type": "object"}}
    shop.to["operations"].append(orders)
    shop.sync_of(offer)
    take(shop, 20)
    operations = [*shop.to["operations"], orders]
    shop.to["operations"] = operations
    shop.offer(offer)
    _die(server, shop, "load.announced", retries_rejected=True)
    waiting = shop.sync(SyncRequest(only=["orders"]))
    assert (waiting.recovered_loads, len(waiting.warnings)) == (0, 1)
    assert "users: 1 rejected record that an earlier run was to send again is not sent" in waiting.warnings[0]
    shop.to["operations"] = [orders]  # The destination does not offer the other object just now.
    shop.offer(offer)
    assert shop.sync().recovered_loads == 0
    shop.to["operations"] = operations
    shop.offer(offer)
    assert (shop.received("users"), kept_names(shop)) == ([], ["longer"])
    assert shop.sync().recovered_loads == 1
    assert ([row["name"] for row in shop.received("users")], kept_names(shop)) == (["longer"], [])


@pytest.mark.everyday("request_0")
@pytest.mark.parametrize("request_", [SyncRequest(slice=Slice("2026-11-01")), SyncRequest(refresh=True)])
def test_a_run_in_another_mode_goes_on_with_it_first(
    server: SyncForkServer, quick_folder: Path, request_: SyncRequest
) -> None:
    shop = shop_that_takes(quick_folder, 5)
    shop.sync_of(rows_of("longer 1", "longer 2"))
    take(shop, 64)
    shop.offer(rows_of("longer 1", "longer 2"))
    _die(server, shop, "load.announced", retries_rejected=True)
    shop.offer(rows_of("new", ids=(77,)))
    report = shop.sync(request_)
    assert (report.status, report.recovered_loads, report.warnings) == (SyncStatus.COMPLETE, 1, ())
    assert [row["name"] for row in shop.received("users")] == ["longer 1", "longer 2", "new"]
    assert (kept_names(shop), shop.store.announced_loads("shop")) == ([], [])


def test_records_that_cannot_be_staged_fail_their_stream_alone(
    quick_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = shop_that_takes(quick_folder, 5)
    shop.sync_of(rows_of("longer"))
    take(shop, 20)
    offer = rows_of("longer", "new")
    monkeypatch.setattr(pq, "write_table", _no_room)
    report = shop.sync_of(offer, RETRY)
    users = report.streams["users"]
    assert (users.status, users.committed, users.resent) == (SyncStatus.FAILED, 1, ResentRecords())
    assert "no room" in (users.error or "")
    assert (kept_names(shop), [row["name"] for row in shop.received("users")]) == (["longer"], ["new"])


@pytest.mark.everyday("append")
@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_a_load_that_a_person_ends_has_its_rejected_records_kept_without_a_sync(
    server: SyncForkServer, quick_folder: Path, write: str
) -> None:
    shop = shop_that_takes(quick_folder, 5, write=write)
    shop.offer(rows_of("short", "longer", "short"))
    _die(server, shop, "push.noted")
    assert shop.resolve(as_landed=True) == "done"
    assert (kept_names(shop), shop.positions()) == (["longer"], {"users": 3})


def test_a_record_that_its_load_replaced_is_not_missed(server: SyncForkServer, quick_folder: Path) -> None:
    shop = shop_that_takes(quick_folder, 5)
    shop.offer(rows_of("longer 1", "new 1", ids=(1, 1)))
    _die(server, shop, "load.committed")
    report = shop.sync()
    assert (report.warnings, report.recovered_loads) == ((), 1)
    assert (kept_names(shop), shop.ids("users")) == ([], [1])


def _die(server: SyncForkServer, shop: RelayedShop, point: str, *, retries_rejected: bool = False) -> None:
    """Has a sync in a process of its own die at a point."""
    assert server.sync(shop, (point, 1), retries_rejected=retries_rejected) == -signal.SIGKILL


def _hash_names(shop: RelayedShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has names hashed from the next offer on."""
    monkeypatch.setenv("RELAY_KEY", "a key that is long enough")
    shop.options["hash_key"] = "${env:RELAY_KEY}"
    shop.modes = {"users": {**shop.modes["*"], "hash": ["name"]}}


def _no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no room")


def _rows_with_bad(names: list[str], *bad: int) -> Row:
    """Rows of which the destination counts some as rejected, once it `rejects`."""
    offer = rows_of(*names)
    users = offer["streams"]["users"]
    users["properties"] = {**users["properties"], "bad": {"type": "boolean"}}
    for place in bad:
        users["rows"][place]["bad"] = True
    return offer
