"""Records that the destination of a relay rejects: they are kept before a state moves, and listed."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import CommitUnknown, ProtoError
from dagster_airbyte_proto.loads.push import RejectedRow
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.push.row_rules import HALF_LETTER, LOST_RECORD
from dagster_airbyte_proto.sync.relay import rejected_content
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from tests.sync.relay.relayed_shop import RelayedShop, Row

pytest.importorskip("jsonschema_rs", reason="the package jsonschema-rs is not installed")

_LONG = "name: its value is longer than 10 characters"


def _shop(folder: Path, *, write: str = "append_dedup", **more: Any) -> RelayedShop:
    """Its destination takes names of ten characters."""
    shop = RelayedShop(folder, write=write, **more)
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 10}}}
    shop.to["operations"] = [{"object_name": "users", "sync_mode": write, "json_schema": schema}]
    return shop


def _offer(*names: str, **more: Any) -> Row:
    rows = [{"id": number, "name": name, "more": [{"x": None}]} for number, name in enumerate(names)]
    properties = {"id": {"type": "integer"}, "name": {"type": "string"}, "more": {"type": "array"}}
    return {"streams": {"users": {"rows": rows, "properties": properties, **more}}}


def _kept(shop: RelayedShop) -> list[tuple[int, str]]:
    return [(each.row.row, each.record or "") for each in shop.store.kept_rejections("shop")]


def _sync_with(shop: RelayedShop, faults: CallFaults) -> SyncReport:
    """A sync whose store fails as planned."""
    settings = Settings.load(shop.home, shop.home / "settings.yaml")
    with Engine(settings, store=with_faults(shop.store, faults)) as engine:
        return sync_connection(engine, Connection.from_file(shop.connection_file), SyncRequest())


@pytest.mark.parametrize("select", [{}, {"select": ["id", "name", "more"], "rename_columns": {"id": "number"}}])
def test_rejected_records_are_listed_as_they_were_to_be_sent(
    quick_folder: Path, select: Row, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = _shop(quick_folder)
    shop.modes = {"users": {"write": "append_dedup", **select}}
    report = shop.sync_of(_offer("short", "a long name \U0001f600", "also short"))
    assert (report.status, report.streams["users"].rejections) == (SyncStatus.COMPLETE, {_LONG: 1})
    capsys.readouterr()
    words = ["--home", str(shop.home), "--settings", str(shop.home / "settings.yaml")]
    assert main([*words, "push", "rejected", str(shop.connection_file), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    [row] = answer["rejected"]["users"]
    [load] = shop.store.loads("shop")
    assert (row["reason"], row["load_id"]) == (_LONG, load.load.load_id)
    record = json.loads(row["row"])
    assert record.pop("number" if select else "id") == 1
    assert record["name"] == "a long name \U0001f600"
    assert main([*words, "push", "rejected", str(shop.connection_file)]) == 0
    assert "users: 1 row rejected" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["airbyte", "singer", "with a schema"])
def test_a_record_that_is_no_json_is_rejected_and_the_others_arrive(quick_folder: Path, target: str) -> None:
    if target == "with a schema":
        shop = _shop(quick_folder, max_bytes=1 << 20)
    else:
        shop = RelayedShop(quick_folder, target=target, write="append_dedup", max_bytes=1 << 20)
    offer = _offer(*["short"] * 7)
    offer["streams"]["users"]["rows"][3]["more"] = float("nan")
    report = shop.sync_of(offer)
    users = report.streams["users"]
    assert (report.status, users.emitted, users.committed) == (SyncStatus.COMPLETE, 7, 6), report
    assert users.rejections == {LOST_RECORD: 1}
    assert shop.ids("users") == [0, 1, 2, 4, 5, 6]
    assert shop.positions() == {"users": 7}
    [kept] = shop.store.kept_rejections("shop")
    assert (kept.row, kept.record, kept.sendable) == (RejectedRow(3, LOST_RECORD), "", False)
    again = shop.sync(SyncRequest(retries_rejected=True))
    assert any("not sent again: JSON has no form for a value of theirs" in each for each in again.warnings)


@pytest.mark.everyday("select0-airbyte", "select1-singer")
@pytest.mark.parametrize("target", ["airbyte", "singer"])
@pytest.mark.parametrize("select", [{}, {"select": ["id", "more"]}])
def test_a_record_with_half_of_a_letter_is_rejected_and_kept(quick_folder: Path, select: Row, target: str) -> None:
    """Destinations on Airbyte's CDK drop such a line, and acknowledge what follows."""
    shop = RelayedShop(quick_folder, target=target, write="append_dedup", max_bytes=1 << 20)
    shop.modes = {"users": {"write": "append_dedup", **select}}
    offer = _offer(*["short"] * 4)
    rows = offer["streams"]["users"]["rows"]
    rows[1]["more"], rows[2]["more"] = ["cut \ud83d"], ["\\ud83d", "\U0001f600"]
    users = shop.sync_of(offer).streams["users"]
    assert (users.status, users.committed, users.rejections) == (SyncStatus.COMPLETE, 3, {HALF_LETTER: 1})
    assert [row["more"] for row in shop.received("users")] == [rows[0]["more"], rows[2]["more"], rows[3]["more"]]
    [kept] = shop.store.kept_rejections("shop")
    assert (kept.row.row, "cut \\ud83d" in (kept.record or "")) == (1, True)


def test_each_load_adds_its_own_and_a_refresh_takes_the_place_of_all(quick_folder: Path) -> None:
    shop = _shop(quick_folder)
    shop.to["operations"].append({**shop.to["operations"][0], "sync_mode": "overwrite"})
    shop.sync_of(_offer("a long name 1", "short"))
    shop.sync_of(_offer("a long name 1", "short", "a long name 2"))
    assert [json.loads(record)["name"] for _, record in _kept(shop)] == ["a long name 1", "a long name 2"]
    assert shop.sync_of(_offer("short", "short", "a long name 2"), SyncRequest(refresh=True)).status == "complete"
    assert [json.loads(record)["name"] for _, record in _kept(shop)] == ["a long name 2"]
    assert shop.sync_of(_offer("short"), SyncRequest(refresh=True)).status == "complete"
    assert _kept(shop) == []


def test_the_newest_are_kept_and_none_that_is_too_long(quick_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejected_content, "MOST_KEPT_REJECTIONS", 3)
    monkeypatch.setattr(rejected_content, "MOST_KEPT_BYTES", 150)
    monkeypatch.setattr(rejected_content, "LONGEST_KEPT_BYTES", 100)
    shop = _shop(quick_folder, max_bytes=1 << 20)
    report = shop.sync_of(_offer(*(f"a long name {number}" for number in range(5)), "x" * 200))
    # Two of 60 bytes, and one that is too long, whose reason is kept.
    assert [(row, bool(record)) for row, record in _kept(shop)] == [(3, True), (4, True), (5, False)]
    assert "users: of 6 rejected records the last 3 are kept" in report.warnings


@pytest.mark.parametrize("by", ["the run that failed", "the next run"])
def test_what_was_rejected_is_kept_before_a_load_is_left_to_a_person(quick_folder: Path, by: str) -> None:
    shop = _shop(quick_folder, write="append", max_bytes=1 << 20)
    shop.to |= {"dies_after": 8, "once": str(quick_folder / "once"), "echo": "each"}
    shop.offer(_offer(*("a long name" if number == 2 else "short" for number in range(15))))
    faults = CallFaults({("keep_rejections", 1): CallFault.BEFORE} if by == "the next run" else {})
    report = _sync_with(shop, faults)
    assert report.streams["users"].status is SyncStatus.UNKNOWN
    if by == "the next run":
        assert any("its rejected records could not be kept" in warning for warning in report.warnings)
        assert _kept(shop) == []
        with pytest.raises(CommitUnknown, match="--retry-unknown"):
            shop.sync()
    assert [row for row, _ in _kept(shop)] == [2]
    shop.resolve(as_landed=False)
    assert _kept(shop) == []
    assert shop.sync().status is SyncStatus.COMPLETE
    assert [row for row, _ in _kept(shop)] == [2]


def test_records_that_come_again_with_a_load_that_was_given_up_are_kept_once(quick_folder: Path) -> None:
    shop = _shop(quick_folder, max_bytes=1 << 20)
    shop.to |= {"dies_after": 8, "once": str(quick_folder / "once"), "echo": "each"}
    offer = _offer(*("a long name" if number == 2 else "short" for number in range(15)))
    assert shop.sync_of(offer).streams["users"].status is SyncStatus.FAILED
    assert _kept(shop) == []
    assert shop.sync().status is SyncStatus.COMPLETE
    assert [row for row, _ in _kept(shop)] == [2]


@pytest.mark.everyday("append-fault0", "append_dedup-fault2")
@pytest.mark.parametrize(
    "fault",
    [("keep_rejections", CallFault.BEFORE), ("keep_rejections", CallFault.AFTER), ("promote", CallFault.BEFORE)],
)
@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_rejected_records_are_kept_once_where_the_store_fails(
    quick_folder: Path, write: str, fault: tuple[str, CallFault]
) -> None:
    shop = _shop(quick_folder, write=write, max_bytes=1 << 20)
    shop.offer(_offer("short", "a long name 1", "short", "a long name 2"))
    call, kind = fault
    faults = CallFaults({(call, 1): kind})
    with suppress(ProtoError):
        assert _sync_with(shop, faults).streams["users"].status is not SyncStatus.COMPLETE
    assert len(faults.fired) == 1
    assert "users" not in shop.positions()
    had = shop.ids("users")
    assert shop.sync().status is SyncStatus.COMPLETE
    assert shop.ids("users") == had == [0, 2]
    assert [row for row, _ in _kept(shop)] == [1, 3]
