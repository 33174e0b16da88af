"""A relay in which a call of the store or a connector fails, before its effect or after it, or the run dies there; or
a load fails, or the source is poor.

No record is skipped, no state is ahead of the destination, and nothing that was acknowledged is sent again. Where all
is replaced, the records of before are shown, or those of now.
"""

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from dagster_airbyte_proto import points
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import CommitUnknown, ProtoError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.testing import fake_destination
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, SimulatedDeath
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.faulty_engine import FaultyEngine, end_lease
from tests.sync.relay.component_relay import relayed_shop
from tests.sync.relay.relayed_shop import RelayedShop
from tests.sync.shop import EVERYTHING, REFRESH

_CALLS = (
    "begin_run", "note_folders", "announce", "seal_plan", "begin_delivery", "announce_rows", "acknowledge_rows",
    "promote", "end_run", "deliveries", "states", "announced_loads", "rejection_reasons",
)  # fmt: skip
# Of the destination: the source has another verb.
_OUTER_CALLS = ("write write", "read write", "close_input write", "wait write", "launch")
_DEATHS = (CallFault.DEATH_BEFORE, CallFault.DEATH_AFTER)
_CASES = [
    (protocol, target, write, "each", fault)
    for protocol, target in (("airbyte", "singer"), ("singer", "airbyte"), ("rapidbyte", "rapidbyte"))
    for write in ("append", "append_dedup")
    for fault in (CallFault.BEFORE, CallFault.AFTER)
]
_CASES += [("airbyte", "airbyte", "append", echo, CallFault.AFTER) for echo in ("end", "bare", "exit")]
_CASES += [("singer", "singer", "append_dedup", echo, CallFault.BEFORE) for echo in ("end", "exit")]
_CASES += [("airbyte", target, "append", "each", fault) for target in ("airbyte", "rapidbyte") for fault in _DEATHS]
_CASES += [("singer", "singer", "append_dedup", "end", fault) for fault in _DEATHS]
_TYPICAL_CALLS = (("announce", 1), ("announce_rows", 2), ("acknowledge_rows", 1), ("promote", 1))


def test_a_call_that_fails_skips_no_record_and_sends_none_again(quick_folder: Path) -> None:
    shop = relayed_shop(quick_folder, protocol="airbyte", target="singer", write="append")
    shop.acknowledge_by("each")
    assert _faults_fired(shop, _TYPICAL_CALLS, CallFault.AFTER) == len(_TYPICAL_CALLS)


@pytest.mark.nightly
@pytest.mark.parametrize(("protocol", "target", "write", "echo", "fault"), _CASES)
def test_nothing_is_skipped_and_nothing_acknowledged_is_sent_again(
    quick_folder: Path, protocol: str, target: str, write: str, echo: str, fault: CallFault
) -> None:
    shop = relayed_shop(quick_folder, protocol=protocol, target=target, write=write)
    if target != "rapidbyte":
        shop.acknowledge_by(echo)
    calls = [(call, number) for call in (*_CALLS, *_OUTER_CALLS) for number in (1, 2)]
    assert _faults_fired(shop, calls, fault) > len(_CALLS)


def _faults_fired(shop: RelayedShop, calls: Sequence[tuple[str, int]], fault: CallFault) -> int:
    """Relays once with each fault and once without. Returns how many faults there were."""
    fired = 0
    for turn, (call, number) in enumerate(calls, start=1):
        records = 12 * turn
        shop.offer({"streams": {"users": {"records": records}, "orders": {"records": turn}}})
        where = f"{call} {number} failed {fault} its effect"
        fired += _sync_with(shop, call, number, fault)
        proved, had = shop.acknowledged_ids(), len(shop.ids("users"))
        for name, position in shop.positions().items():
            assert set(shop.ids(name)) >= set(range(position)), where
        report = shop.sync(SyncRequest(retries_unknown=True))
        assert report.status is SyncStatus.COMPLETE, (where, report)
        assert set(shop.ids("users")) == set(range(records)), where
        assert set(shop.ids("orders")) == set(range(turn)), where
        assert shop.positions() == {"users": records, "orders": turn}, where
        assert proved.isdisjoint(shop.ids("users")[had:]), where
    return fired


def _sync_with(shop: RelayedShop, call: str, number: int, fault: CallFault) -> int:
    """Runs the relay, with one fault. Returns how often it happened."""
    faults = CallFaults({(call, number): fault})
    with suppress(ProtoError, SimulatedDeath), FaultyEngine(_settings(shop), faults) as engine:
        report = sync_connection(engine, Connection.from_file(shop.connection_file), SyncRequest())
        for stream in report.streams.values():
            assert stream.emitted == stream.committed + stream.rejected + stream.unknown, (call, number, stream)
    end_lease(_settings(shop), "shop")
    return len(faults.fired)


_REPLACEMENTS = [
    (target, echo, fault)
    for target, echo in (("airbyte", "each"), ("airbyte", "exit"), ("singer", "end"))
    for fault in (CallFault.BEFORE, CallFault.AFTER, *_DEATHS)
]


@pytest.mark.nightly
@pytest.mark.parametrize(("target", "echo", "fault"), _REPLACEMENTS)
def test_all_the_records_of_before_are_shown_or_all_of_now(
    quick_folder: Path, target: str, echo: str, fault: CallFault
) -> None:
    shop = RelayedShop(quick_folder, target=target, write="overwrite", read="full_refresh")
    shop.acknowledge_by(echo)
    calls = (*_CALLS, *_OUTER_CALLS)
    before = fired = 0
    for records, (call, number) in enumerate(((call, number) for call in calls for number in (1, 2)), start=11):
        shop.offer({"streams": {"users": {"records": records}, "orders": {"records": 2}}})
        fired += _sync_with(shop, call, number, fault)
        where = f"{call} {number} failed {fault}"
        assert shop.shown_ids("users") in (list(range(before)), list(range(records))), where
        report = shop.sync()
        assert report.status is SyncStatus.COMPLETE, (where, report)
        assert (shop.shown_ids("users"), shop.shown_ids("orders")) == (list(range(records)), [0, 1]), where
        before = records
    assert fired >= len(calls) / 2
    assert not list((shop.home / "staging").rglob("*.parquet"))


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


@pytest.fixture(scope="module")
def server() -> Iterator[SyncForkServer]:
    opened = SyncForkServer()
    yield opened
    opened.close()


@pytest.mark.parametrize("target", ["airbyte", "singer"])
@pytest.mark.parametrize("looked", [False, True])
def test_behind_a_refresh_that_nobody_knows_to_be_shown_no_row_is_appended(
    quick_folder: Path, target: str, looked: bool
) -> None:
    shop = RelayedShop(quick_folder, target=target, max_bytes=1 << 20)
    shop.sync_of({"streams": {"users": {"records": 5}}})
    offer = {"streams": {"users": {"records": 8}}}
    shop.to["dies_after"] = 6
    assert shop.sync_of(offer, REFRESH).status is SyncStatus.FAILED
    del shop.to["dies_after"]
    had = len(shop.ids("users"))
    users = shop.sync_of(offer).streams["users"]
    assert users.status is SyncStatus.FAILED and "nobody knows whether it shows" in (users.error or "")
    assert "sync shop --refresh --streams users" in (users.error or "")
    assert len(shop.ids("users")) == had
    if looked:
        _set_state_to_what_it_is(shop)
    else:
        assert shop.sync_of(offer, REFRESH).status is SyncStatus.COMPLETE
        had += 8
    assert shop.sync_of(offer).status is SyncStatus.COMPLETE
    assert shop.ids("users")[had:] == ([5, 6, 7] if looked else [])


def test_a_relay_that_is_cancelled_begins_no_other_delivery(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, max_bytes=1 << 20)
    shop.sync_of({"streams": {"users": {"records": 8}, "orders": {"records": 8}}})
    cancel = threading.Event()
    points.arm(lambda point: cancel.set() if point == "push.announced" else None)
    try:
        report = shop.sync(REFRESH, RunOptions(cancel))
    finally:
        points.arm(None)
    assert report.status is SyncStatus.CANCELLED
    deliveries = shop.store.deliveries("shop")
    assert sorted(each.attempts for each in deliveries.values()) == [0, 1]
    # Of the other one somebody has to find out what the destination shows.
    [begun] = [str(stream) for stream, each in deliveries.items() if each.attempts]
    more = shop.sync_of({"streams": {"users": {"records": 9}, "orders": {"records": 9}}})
    assert {name for name, stream in more.streams.items() if stream.error} == {begun}


def _set_state_to_what_it_is(shop: RelayedShop) -> None:
    [stored] = shop.store.states("shop")
    lease = shop.store.acquire("shop", run_id="by-hand", holder="a person", seconds=60)
    shop.store.change_state(lease, stored.state.stream, stored.state, who="a person")
    shop.store.release(lease)


def _die_before_a_row_is_sent(server: SyncForkServer, shop: RelayedShop) -> None:
    assert server.sync(shop, ("load.announced", 1)) == -signal.SIGKILL


@pytest.mark.everyday("stream-hash", "stream-deselect", "global-exclude")
@pytest.mark.parametrize("how", ["hash", "exclude", "deselect"])
@pytest.mark.parametrize("scope", ["stream", "global"])
def test_what_was_taken_out_since_goes_in_clear_no_more(
    server: SyncForkServer, quick_folder: Path, how: str, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = RelayedShop(quick_folder, write="append_dedup", max_bytes=1 << 20)
    offer = {"streams": {"users": {"records": 9}, "orders": {"records": 3}}, "state": scope}
    shop.offer(offer)
    _die_before_a_row_is_sent(server, shop)
    monkeypatch.setenv("RELAY_KEY", "a key that is long enough")
    shop.options["hash_key"] = "${env:RELAY_KEY}"
    shaped = {"hash": ["name"]} if how == "hash" else {"exclude": ["name"]}
    shop.modes = {"orders": shop.modes["*"]} | ({"users": {**shop.modes["*"], **shaped}} if how != "deselect" else {})
    report = shop.sync_of(offer)
    assert (report.status, report.recovered_loads) == (SyncStatus.COMPLETE, 1), report
    assert any("9 records that an earlier run announced are not sent as staged" in each for each in report.warnings)
    assert shop.ids("users") == ([] if how == "deselect" else list(range(9)))
    assert not any(row.get("name", "").startswith("user") for row in shop.received("users"))
    assert shop.ids("orders") == [0, 1, 2]
    assert not shop.store.announced_loads("shop")
    assert not list((shop.home / "staging").rglob("*.parquet"))


def test_of_rows_that_may_be_there_in_clear_a_person_ends_the_load(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, max_bytes=1 << 20)
    shop.to |= {"dies_after": 8, "once": str(quick_folder / "once")}
    offer = {"streams": {"users": {"records": 12}}}
    assert shop.sync_of(offer).status is SyncStatus.UNKNOWN
    had = len(shop.received("users"))
    shop.modes = {"users": {**shop.modes["*"], "exclude": ["name"]}}
    shop.offer(offer)
    for request in (EVERYTHING, SyncRequest(retries_unknown=True)):
        with pytest.raises(CommitUnknown, match="is not sent as it was staged") as unknown:
            shop.sync(request)
        assert "--as landed" in (unknown.value.remedy or "")
    assert len(shop.received("users")) == had
    shop.resolve(as_landed=False)
    assert shop.sync().status is SyncStatus.COMPLETE
    assert [(row["id"], "name" in row) for row in shop.received("users")[had:]] == [(n, False) for n in range(12)]


def test_a_load_of_a_dead_run_arrives_beside_a_stream_that_cannot_be_planned(
    server: SyncForkServer, quick_folder: Path
) -> None:
    shop = RelayedShop(quick_folder, write="append_dedup", max_bytes=1 << 20)
    shop.offer({"streams": {"users": {"records": 9}}})
    _die_before_a_row_is_sent(server, shop)
    report = shop.sync_of({"streams": {"users": {"records": 9}, "orders": {"records": 3, "primary_key": []}}})
    assert (report.status, report.recovered_loads) == (SyncStatus.PARTIAL, 1), report
    assert "needs a primary key" in str(report.streams["orders"].error)
    assert (shop.ids("users"), shop.positions()) == (list(range(9)), {"users": 9})


@pytest.mark.parametrize("has_synced", [False, True])
def test_the_rest_of_a_load_does_not_go_to_another_destination(
    server: SyncForkServer, quick_folder: Path, has_synced: bool
) -> None:
    shop = RelayedShop(quick_folder, write="append_dedup", max_bytes=1 << 20)
    if has_synced:
        shop.sync_of({"streams": {"users": {"records": 2}}})
    shop.offer({"streams": {"users": {"records": 9}}})
    _die_before_a_row_is_sent(server, shop)
    had = len(shop.received("users"))
    shop.target = "singer"
    report = shop.sync_of({"streams": {"users": {"records": 9}}})
    assert any("its destination is another program now" in each for each in report.warnings)
    users = report.streams["users"]
    if has_synced:
        assert "--refresh" in (users.error or "") and len(shop.received("users")) == had
        report = shop.sync(REFRESH)
    assert report.status is SyncStatus.COMPLETE
    assert shop.ids("users")[had:] == list(range(9))


def test_a_destination_that_was_moved_is_the_same_one(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, write="append_dedup", max_bytes=1 << 20)
    for place, records in (("1.0/target", 3), ("1.1/target", 5), ("1.1/other", 8)):
        program = quick_folder / place
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {fake_destination.__name__} "$@"\n')
        program.chmod(0o755)
        shop.connector_of_destination = {"launch": {"kind": "local", "command": [str(program)]}}
        report = shop.sync_of({"streams": {"users": {"records": records}}})
    assert shop.ids("users") == list(range(5))
    found = report.streams["users"].error or ""
    assert "what it has delivered is at airbyte target, and its destination is airbyte other now" in found
    [stored] = shop.store.states("shop")
    lease = shop.store.acquire("shop", run_id="by-hand", holder="a person", seconds=60)
    shop.store.change_state(lease, stored.state.stream, stored.state, who="a person")
    shop.store.release(lease)
    assert shop.sync().status is SyncStatus.COMPLETE
    assert shop.ids("users") == list(range(8))


_SHARED = {"streams": {"users": {"records": 25}, "orders": {"records": 7}}, "state": "global"}


def test_streams_of_one_state_are_read_again_together_where_the_destination_refuses_one(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, write="append_dedup", max_bytes=1 << 20)
    shop.to |= {"fails": "config_error", "fails_stream": "orders"}
    for _ in range(2):
        report = shop.sync_of(_SHARED)
        users, orders = report.streams["users"], report.streams["orders"]
        assert (users.status, orders.status, users.committed) == (SyncStatus.FAILED, SyncStatus.FAILED, 0)
        assert "it shares its state with orders" in str(users.error) and "it cannot go on" in str(orders.error)
        assert not shop.positions() and not shop.store.announced_loads("shop")
    del shop.to["fails"]
    assert shop.sync_of(_SHARED).status is SyncStatus.COMPLETE
    assert shop.positions() == {"users": 25, "orders": 7}
    assert (set(shop.ids("users")), set(shop.ids("orders"))) == (set(range(25)), set(range(7)))


def test_streams_of_one_state_may_be_read_again_by_a_retry_where_the_destination_died(quick_folder: Path) -> None:
    """As one that ran out of memory: neither stream has an error that would stay."""
    shop = RelayedShop(quick_folder, write="append_dedup", max_bytes=1 << 20)
    shop.to["dies_after"] = 10
    report = shop.sync_of(_SHARED)
    users, orders = report.streams["users"], report.streams["orders"]
    assert "exited with code 7" in str(users.error) and "it shares its state with users" in str(orders.error)
    assert (users.retryable, orders.retryable) == (True, True)
    del shop.to["dies_after"]
    assert shop.sync_of(_SHARED).status is SyncStatus.COMPLETE
    assert shop.positions() == {"users": 25, "orders": 7}


def test_rows_without_a_key_are_sent_once_where_a_stream_of_their_state_is_refused(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, max_bytes=1 << 20)
    shop.modes["orders"] = {**shop.modes["*"], "write": "append_dedup"}
    shop.to |= {"fails": "config_error", "fails_stream": "orders"}
    assert shop.sync_of(_SHARED).status is SyncStatus.UNKNOWN
    del shop.to["fails"]
    assert shop.sync_of(_SHARED).status is SyncStatus.COMPLETE
    assert (shop.ids("users"), set(shop.ids("orders"))) == (list(range(25)), set(range(7)))


@pytest.mark.everyday("append")
@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_no_state_moves_where_the_destination_counts_too_few_records(quick_folder: Path, write: str) -> None:
    shop = RelayedShop(quick_folder, write=write, max_bytes=1 << 20)
    shop.to["miscounts"] = 4
    report = shop.sync_of({"streams": {"users": {"records": 12}}})
    users = report.streams["users"]
    assert (users.status, users.committed) == (SyncStatus.UNKNOWN if write == "append" else SyncStatus.FAILED, 0)
    assert "it counted 4 records and rejected 0, of 5 that were sent" in (users.error or report.error or "")
    assert not shop.positions()
    del shop.to["miscounts"]
    shop.offer({"streams": {"users": {"records": 12}}})
    report = shop.sync(SyncRequest(retries_unknown=True))
    assert (report.status, shop.positions()) == (SyncStatus.COMPLETE, {"users": 12})
    assert set(shop.ids("users")) == set(range(12))


def _settings(shop: RelayedShop) -> Settings:
    return Settings.load(shop.home, shop.home / "settings.yaml")
