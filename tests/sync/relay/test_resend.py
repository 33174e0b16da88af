"""Rejected records of a relay, sent again: what is acknowledged leaves the kept ones, what is rejected again stays."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.deliveries import RejectedContent
from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, ProtoError, StateConflict
from dagster_airbyte_proto.loads.push import RejectedRow
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.maintenance.reset import reset_state
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import ResentRecords, SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from tests.sync.relay.relayed_shop import RelayedShop, Row

pytest.importorskip("jsonschema_rs", reason="the package jsonschema-rs is not installed")

RETRY = SyncRequest(retries_rejected=True)
_PROPERTIES = {
    "id": {"type": "integer"}, "name": {"type": "string"}, "more": {"type": "array"}, "share": {"type": "number"},
}  # fmt: skip


def shop_that_takes(folder: Path, longest: int, *, write: str = "append_dedup", **more: Any) -> RelayedShop:
    shop = RelayedShop(folder, write=write, **more)
    take(shop, longest)
    return shop


def take(shop: RelayedShop, longest: int) -> None:
    """Has the destination take names of so many characters from the next offer on."""
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": longest}}}
    modes = ("append", "append_dedup", "overwrite")
    shop.to["operations"] = [{"object_name": "users", "sync_mode": each, "json_schema": schema} for each in modes]


def rows_of(*names: str, ids: tuple[int, ...] = ()) -> Row:
    numbers = ids or tuple(range(len(names)))
    rows = [
        {"id": number, "name": name, "more": [{"x": None}], "share": 0.5}
        for number, name in zip(numbers, names, strict=True)
    ]
    return {"streams": {"users": {"rows": rows, "properties": _PROPERTIES}}}


def kept_names(shop: RelayedShop) -> list[str]:
    return [json.loads(each.record or "{}")["name"] for each in shop.store.kept_rejections("shop")]


def _reset(shop: RelayedShop) -> None:
    with Engine(Settings.load(shop.home, shop.home / "settings.yaml")) as engine:
        lease = engine.store.acquire("shop", run_id="by-hand", holder="a person", seconds=60)
        reset_state(engine.store, lease, None, who="a person")
        engine.store.release(lease)


@pytest.mark.everyday("append-True", "append_dedup-False")
@pytest.mark.parametrize("shaped", [False, True])
@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_what_is_acknowledged_leaves_and_what_is_rejected_again_stays(
    quick_folder: Path, write: str, shaped: bool
) -> None:
    shop = shop_that_takes(quick_folder, 5, write=write)
    shop.modes = {"users": {"write": write, **({"rename_columns": {"share": "part"}} if shaped else {})}}
    names = ["short", "longer", "the longest", "short", "longer"]
    shop.sync_of(rows_of(*names))
    assert kept_names(shop) == ["longer", "the longest", "longer"]
    before = shop.store.kept_rejections("shop")
    take(shop, 8)
    report = shop.sync_of(rows_of(*names, "new"), RETRY)
    users, why = report.streams["users"], "name: its value is longer than 8 characters"
    assert (report.status, users.committed) == (SyncStatus.COMPLETE, 1), users.error
    assert users.resent == ResentRecords(3, 2, 1, rejections={why: 1})
    # The older records go before the newer ones of the source, and as they would have gone at first.
    assert [row["name"] for row in shop.received("users")] == ["short", "short", "longer", "longer", "new"]
    first, resent = shop.received("users")[0], shop.received("users")[2]
    assert {**first, "id": 1, "name": "longer"} == resent
    [left] = shop.store.kept_rejections("shop")
    assert (kept_names(shop), left.row.reason) == (["the longest"], why)
    assert left.rejected_at > before[1].rejected_at
    take(shop, 20)
    assert shop.sync_of(rows_of(*names, "new"), RETRY).streams["users"].resent == ResentRecords(1, 1)
    assert kept_names(shop) == []
    assert shop.sync(RETRY).streams["users"].resent is None
    assert len(shop.received("users")) == 6


@pytest.mark.parametrize(("protocol", "target"), [("airbyte", "singer"), ("singer", "airbyte")])
def test_records_go_to_a_destination_of_each_protocol(quick_folder: Path, protocol: str, target: str) -> None:
    shop = RelayedShop(quick_folder, protocol=protocol, target=target, write="append_dedup", max_bytes=1 << 20)
    assert shop.sync_of({"streams": {"users": {"records": 3}}}).status is SyncStatus.COMPLETE
    [load] = shop.store.loads("shop")
    plan = shop.store.deliveries("shop")[load.load.parts[0].stream].plan
    lease = shop.store.acquire("shop", run_id="r", holder="h", seconds=60)
    record = '{"id":77,"key":77,"name":"users 77","updated_at":"2026-01-01T00:00:00Z"}'
    shop.store.keep_rejections(lease, plan, [RejectedContent(RejectedRow(1, "no home"), record)])
    shop.store.release(lease)
    assert shop.sync(RETRY).streams["users"].resent == ResentRecords(1, 1)
    assert shop.ids("users") == [0, 1, 2, 77]
    assert not shop.store.kept_rejections("shop")


def test_by_key_an_older_record_never_takes_the_place_of_a_newer_one(quick_folder: Path) -> None:
    shop = shop_that_takes(quick_folder, 5)
    # Of key 1 the newer record is in the load of the rejected one, of key 2 in the next, of key 3 it is rejected too.
    names, ids = ["longer 1", "new 1", "longer 2", "older 3", "longer 3"], (1, 1, 2, 3, 3)
    shop.sync_of(rows_of(*names, ids=ids))
    assert kept_names(shop) == ["longer 2", "longer 3"]
    shop.sync_of(rows_of(*names, "new 2", ids=(*ids, 2)))
    assert kept_names(shop) == ["longer 3"]
    take(shop, 20)
    shop.sync_of(rows_of(*names, "new 2", ids=(*ids, 2)), RETRY)
    assert [row["name"] for row in shop.received("users")] == ["new 1", "new 2", "longer 3"]


def test_without_a_key_each_record_is_one_of_its_own(quick_folder: Path) -> None:
    shop = shop_that_takes(quick_folder, 5, write="append")
    shop.sync_of(rows_of("longer", "new", ids=(1, 1)))
    take(shop, 20)
    shop.sync_of(rows_of("longer", "new", ids=(1, 1)), RETRY)
    assert [row["name"] for row in shop.received("users")] == ["new", "longer"]


@pytest.mark.parametrize("how", ["refresh", "reset", "selection", "key", "too long"])
def test_what_must_not_be_sent_again_is_said_and_stays(quick_folder: Path, how: str) -> None:
    shop = shop_that_takes(quick_folder, 5, write="append")
    shop.sync_of(rows_of("short", "longer"))
    [kept] = shop.store.kept_rejections("shop")
    take(shop, 20)
    words = {
        "refresh": "of an older generation",
        "reset": "was reset or rolled back since",
        "selection": "with another key, write mode, selection or transform",
        "key": "with another key, write mode, selection or transform",
        "too long": "they are too long",
    }
    offer = rows_of("short", "longer")
    if how == "refresh":
        # It dies before the new generation is delivered: then it would take the place of the kept ones.
        shop.to["dies_after"] = 1
        assert shop.sync_of(offer, SyncRequest(refresh=True)).status is not SyncStatus.COMPLETE
        del shop.to["dies_after"]
    elif how == "reset":
        _reset(shop)
    elif how == "selection":
        shop.modes = {"users": {"write": "append", "exclude": ["name"]}}
    elif how == "key":
        shop.modes = {"users": {"write": "append_dedup", "primary_key": ["id"]}}
    else:
        lease = shop.store.acquire("shop", run_id="r", holder="h", seconds=60)
        plan = next(iter(shop.store.deliveries("shop").values())).plan
        shop.store.keep_rejections(lease, plan, [RejectedContent(kept.row, None)])
        shop.store.release(lease)
    shop.offer(offer)
    report = shop.sync(RETRY)
    [warning] = [each for each in report.warnings if "not sent again" in each]
    assert warning.startswith("users: 1 rejected record is not sent again") and words[how] in warning
    assert report.streams["users"].resent == ResentRecords()
    assert len(shop.store.kept_rejections("shop")) == 1
    # A reset stream is read from the start: its record comes by that, and once.
    sent = [row.get("name") for row in shop.received("users")]
    assert sent.count("longer") == (how == "reset")


def test_what_json_has_no_form_for_is_not_sent_in_another(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, write="append")
    shop.modes = {"users": {"write": "append", "select": ["id", "name", "share"]}}
    shop.sync_of(rows_of("short"))
    [load] = [each.load for each in shop.store.loads("shop") if each.load.parts]
    lease = shop.store.acquire("shop", run_id="r", holder="h", seconds=60)
    plan = shop.store.deliveries("shop")[load.parts[0].stream].plan
    shop.store.keep_rejections(lease, plan, [RejectedContent(RejectedRow(0, "NaN"), '{"share": NaN}', sendable=False)])
    shop.store.release(lease)
    report = shop.sync(RETRY)
    assert "users: 1 rejected record is not sent again: JSON has no form for a value of theirs" in report.warnings
    assert [each.record for each in shop.store.kept_rejections("shop")] == ['{"share": NaN}']


def test_a_destination_that_dies_has_what_it_acknowledged_and_is_sent_the_rest(quick_folder: Path) -> None:
    shop = shop_that_takes(quick_folder, 5)
    names = [f"longer {number}" for number in range(15)]
    shop.sync_of(rows_of(*names))
    take(shop, 20)
    shop.to |= {"dies_after": 8, "once": str(quick_folder / "once")}
    report = shop.sync_of(rows_of(*names), RETRY)
    users = report.streams["users"]
    assert users.status is SyncStatus.FAILED
    assert "`sync --retry-rejected` sends them again" in (users.error or "")
    resent = users.resent or ResentRecords()
    assert (resent.acknowledged, resent.sent) == (5, 5 + resent.unknown)
    assert resent.unknown >= 5
    assert kept_names(shop) == names[5:]
    assert not list((shop.home / "staging").rglob("resend*.parquet"))
    assert shop.sync(RETRY).streams["users"].resent == ResentRecords(10, 10)
    assert kept_names(shop) == []
    assert sorted(set(shop.ids("users"))) == [*range(15)]
    # Those that were acknowledged came once.
    assert [shop.ids("users").count(number) for number in range(5)] == [1] * 5


@pytest.mark.parametrize("word", ["retry", "landed", "lost"])
def test_what_is_unknown_waits_for_a_person(quick_folder: Path, word: str) -> None:
    shop = shop_that_takes(quick_folder, 5, write="append")
    names = [f"longer {number}" for number in range(12)] + ["the longest of all"]
    shop.sync_of(rows_of(*names))
    take(shop, 15)
    shop.to |= {"dies_after": 8, "once": str(quick_folder / "once")}
    shop.offer(rows_of(*names))
    with pytest.raises(CommitUnknown, match="5 of 13 rows are acknowledged, and nobody knows of"):
        shop.sync(RETRY)
    assert kept_names(shop) == names[5:]
    [delivery] = shop.store.deliveries("shop").values()
    with pytest.raises(CommitUnknown, match="they stay among the rejected records"):
        shop.sync(RETRY)
    if word == "retry":
        assert shop.sync(SyncRequest(retries_unknown=True)).recovered_loads == 1
        assert kept_names(shop) == names[12:]
        assert set(shop.ids("users")) == {*range(12)}
        return
    shop.resolve(as_landed=word == "landed")
    first = delivery.announced if word == "landed" else 5
    assert kept_names(shop) == names[first:]
    had = len(shop.ids("users"))
    shop.sync(RETRY)
    assert shop.ids("users")[had:] == [*range(first, 12)]


def test_two_at_once_are_excluded_and_requests_without_sense_refused(quick_folder: Path) -> None:
    shop = shop_that_takes(quick_folder, 5)
    shop.sync_of(rows_of("longer"))
    take(shop, 20)
    shop.offer(rows_of("longer"))
    lease = shop.store.acquire("shop", run_id="other", holder="another run", seconds=60)
    with pytest.raises(StateConflict):
        shop.sync(RETRY)
    assert (kept_names(shop), shop.ids("users")) == (["longer"], [])
    shop.store.release(lease)
    with pytest.raises(ConfigError, match="is read from its beginning"):
        shop.sync(SyncRequest(refresh=True, retries_rejected=True))
    connection = Connection.from_file(shop.connection_file).model_copy(update={"to": None})
    with (
        Engine(Settings.load(shop.home, shop.home / "settings.yaml")) as engine,
        pytest.raises(ConfigError, match="it has no `to`"),
    ):
        sync_connection(engine, connection, RETRY)


_CALLS = (
    "note_folders", "announce", "seal_plan", "begin_delivery", "announce_rows", "acknowledge_rows", "promote",
    "end_run", "kept_rejections", "rejection_reasons", "deliveries", "load",
)  # fmt: skip


@pytest.mark.parametrize(
    ("write", "fault"),
    [
        pytest.param(write, fault, marks=[] if (write, fault) == ("append", CallFault.AFTER) else [pytest.mark.nightly])
        for write in ("append", "append_dedup")
        for fault in (CallFault.BEFORE, CallFault.AFTER)
    ],
)
def test_where_the_store_fails_nothing_is_lost_and_nothing_acknowledged_is_sent_again(
    quick_folder: Path, write: str, fault: CallFault
) -> None:
    shop = shop_that_takes(quick_folder, 5, write=write)
    fired, records = 0, 0
    for call in _CALLS:
        records += 7
        have_rejected(shop, records)
        faults = CallFaults({(call, 1): fault})
        settings = Settings.load(shop.home, shop.home / "settings.yaml")
        with Engine(settings, store=with_faults(shop.store, faults)) as engine, suppress(ProtoError):
            sync_connection(engine, Connection.from_file(shop.connection_file), RETRY)
        fired += len(faults.fired)
        check_end(shop, records, f"{call} failed {fault} its effect")
    assert fired == len(_CALLS)


def have_rejected(shop: RelayedShop, records: int) -> None:
    """Has the newest of so many records rejected, and then a destination that takes them all."""
    names = [f"longer {number}" for number in range(records)]
    take(shop, 5)
    shop.sync_of(rows_of(*names))
    take(shop, 20)
    shop.offer(rows_of(*names))


def check_end(shop: RelayedShop, records: int, where: str) -> None:
    """The next run sends what is still kept, and nothing that has left the kept ones."""
    had, kept = shop.ids("users"), {json.loads(each.record or "")["id"] for each in shop.store.kept_rejections("shop")}
    assert set(had) | kept == set(range(records)), where
    report = shop.sync(SyncRequest(retries_unknown=True, retries_rejected=True))
    assert report.status is SyncStatus.COMPLETE, (where, report)
    assert set(shop.ids("users")[len(had) :]) <= kept, where
    assert set(shop.ids("users")) == set(range(records)), where
    assert not shop.store.kept_rejections("shop"), where


def test_the_command_says_what_became_of_them(quick_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop = shop_that_takes(quick_folder, 5)
    shop.sync_of(rows_of("longer", "the longest"))
    take(shop, 8)
    shop.offer(rows_of("longer", "the longest"))
    words = ["--home", str(shop.home), "--settings", str(shop.home / "settings.yaml")]
    file = str(shop.connection_file)
    assert main([*words, "push", file, "--retry-rejected"]) == 2
    assert f"airbyte-proto sync {file} --retry-rejected" in capsys.readouterr().err
    assert main([*words, "sync", file, "--retry-rejected", "--plan"]) == 2
    capsys.readouterr()
    assert main([*words, "sync", file, "--retry-rejected"]) == 0
    said = capsys.readouterr().out
    assert "users: 2 rejected records sent again: 1 acknowledged, 1 rejected again" in said
    assert "users: 1 row rejected: name: its value is longer than 8 characters" in said
    assert main([*words, "push", "rejected", file]) == 0
    assert "the longest" in capsys.readouterr().out
