"""Rejected records of a relay that must not be sent again: the source sends them itself, or newer ones have gone."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.sql import loads as sql_loads
from dagster_airbyte_proto.checkpoints.store import Lease, LoggedLoad
from dagster_airbyte_proto.loads.load import Load
from dagster_airbyte_proto.model import State, StreamId
from dagster_airbyte_proto.protocols.airbyte.states import AirbyteStates
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.maintenance.reset import reset_state
from dagster_airbyte_proto.sync.relay.record_keys import key_of_record
from dagster_airbyte_proto.sync.report import ResentRecords, SyncReport
from tests.sync.relay.relayed_shop import RelayedShop, Row
from tests.sync.relay.test_resend import RETRY, kept_names, rows_of, shop_that_takes, take

pytest.importorskip("jsonschema_rs", reason="the package jsonschema-rs is not installed")

_USERS = StreamId(None, "users")


def _names(shop: RelayedShop) -> list[str]:
    return [row["name"] for row in shop.received("users")]


def _lease(shop: RelayedShop) -> Lease:
    return shop.store.acquire("shop", run_id="by-hand", holder="a person", seconds=60)


def _state(shop: RelayedShop) -> State:
    [stored] = shop.store.states("shop")
    return stored.state


def _set_state(shop: RelayedShop, state: State | None) -> None:
    lease = _lease(shop)
    shop.store.change_state(lease, _USERS, state, who="a person")
    shop.store.release(lease)


def _roll_back(shop: RelayedShop, version: int) -> None:
    lease = _lease(shop)
    shop.store.rollback(lease, version, who="a person")
    shop.store.release(lease)


def _retry(shop: RelayedShop, offer: Row) -> tuple[ResentRecords | None, str]:
    """Sends again what the destination takes by now. Returns what became of it, and the only warning about it."""
    take(shop, 20)
    report: SyncReport = shop.sync_of(offer, RETRY)
    warnings = [each for each in report.warnings if "not sent again" in each]
    assert len(warnings) <= 1
    return report.streams["users"].resent, warnings[0] if warnings else ""


@pytest.mark.parametrize("how", ["set", "rolled back", "by the source"])
def test_what_a_rewound_source_sends_itself_is_not_sent_twice(quick_folder: Path, how: str) -> None:
    shop = shop_that_takes(quick_folder, 5, write="append")
    shop.sync_of(rows_of("short"))
    old, version = _state(shop), shop.store.history("shop")[0].version
    offer = rows_of("short", "longer")
    shop.sync_of(offer)
    assert kept_names(shop) == ["longer"]
    if how == "set":
        _set_state(shop, old)
    elif how == "rolled back":
        _roll_back(shop, version)
    else:
        # A state without content, which moves with a load as any other.
        reset = State(old.scope, b"", old.stream, is_reset=True)
        lease = _lease(shop)
        load = Load("r-1", "shop", "r", (), (reset,))
        shop.store.announce(lease, load)
        shop.store.promote(lease, load, (reset,), ())
        shop.store.release(lease)
    resent, warning = _retry(shop, offer)
    assert (resent, kept_names(shop)) == (ResentRecords(), ["longer"])
    assert "reset or rolled back since, or set back, and the source sends them again" in warning
    assert _names(shop).count("longer") == 1
    # Nor later: the source has sent it.
    assert _retry(shop, offer)[0] == ResentRecords()
    assert _names(shop).count("longer") == 1


def test_what_a_source_does_not_send_again_is_sent(quick_folder: Path) -> None:
    shop = shop_that_takes(quick_folder, 5, write="append")
    shop.sync_of(rows_of("a", "longer"))
    version = shop.store.history("shop")[0].version
    offer = rows_of("a", "longer", "b")
    shop.sync_of(offer)
    _roll_back(shop, version)  # Behind the rejected record.
    assert _retry(shop, offer) == (ResentRecords(1, 1), "")
    assert _names(shop) == ["a", "b", "longer", "b"]


def test_where_nobody_can_tell_whether_the_source_sends_it_again_it_is_said(quick_folder: Path) -> None:
    shop = shop_that_takes(quick_folder, 5, write="append")
    offer = rows_of("a", "longer", "b")
    shop.sync_of(offer)
    _set_state(shop, AirbyteStates().from_value(_USERS, {"cursor": 1}))
    resent, warning = _retry(shop, offer)
    assert (resent, kept_names(shop)) == (ResentRecords(), ["longer"])
    assert warning.endswith("was changed since: whether the source sends them again is not known")
    # A reset ends the doubt.
    _set_state(shop, None)
    assert "and the source sends them again" in _retry(shop, offer)[1]


@pytest.mark.parametrize("stream", ["orders", "users"])
def test_under_a_shared_state_a_reset_of_another_stream_changes_nothing(quick_folder: Path, stream: str) -> None:
    shop = shop_that_takes(quick_folder, 5, write="append")
    offer = rows_of("a", "longer")
    offer["streams"]["orders"] = {"records": 2}
    offer["state"] = "global"
    everything = [
        {**each, "object_name": "orders", "json_schema": {"type": "object"}} for each in shop.to["operations"]
    ]
    shop.to["operations"] += everything
    shop.sync_of(offer)
    assert kept_names(shop) == ["longer"]
    with Engine(Settings.load(shop.home, shop.home / "settings.yaml")) as engine:
        lease = _lease(shop)
        reset_state(engine.store, lease, StreamId(None, stream), who="a person")
        engine.store.release(lease)
    take(shop, 20)
    shop.to["operations"] += everything
    report = shop.sync_of(offer, RETRY)
    assert report.streams["users"].resent == (ResentRecords() if stream == "users" else ResentRecords(1, 1))
    assert _names(shop) == (["a", "a", "longer"] if stream == "users" else ["a", "longer"])


def test_records_without_a_key_take_no_place_of_each_other(quick_folder: Path) -> None:
    shop = RelayedShop(quick_folder, write="append_dedup")
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    modes = ("append", "append_dedup", "overwrite")
    shop.to["operations"] = [{"object_name": "users", "sync_mode": each, "json_schema": schema} for each in modes]
    offer = rows_of("a", "b", "c", "d")
    rows = offer["streams"]["users"]["rows"]
    for row in rows[:3]:
        row["id"] = None
    shop.sync_of(offer)
    assert (kept_names(shop), _names(shop)) == (["a", "b", "c"], ["d"])
    rows.append({**rows[0], "name": "e"})
    shop.sync_of(offer)
    assert kept_names(shop) == ["a", "b", "c", "e"]


def test_keys_are_one_if_they_are_the_same_value() -> None:
    def key(value: str) -> object:
        return key_of_record(f'{{"id": {value}, "n": 1}}', ["id"])

    assert key("1") == key("1.0") == key("1e0") != key("true")
    assert key("12345678901234567.1") != key("12345678901234567.2")
    assert key('"1"') != key("1") != key("[1]") == key("[1.0]") != key("[true]")
    assert key('{"a": 1, "b": null}') == key('{"b": null, "a": 1.0}') != key('{"a": 1}')
    assert (key("null"), key("1e99999999999999999999"), key_of_record('{"n": 1}', ["id"])) == (None, None, None)
    assert key_of_record('{"id": 1, "n": null}', ["id", "n"]) is None


@pytest.mark.parametrize(
    "other", [{"write": "append"}, {"write": "append_dedup", "primary_key": ["id"], "rename_columns": {"id": "number"}}]
)
def test_after_loads_of_another_mode_or_key_an_older_record_stays(quick_folder: Path, other: Row) -> None:
    shop = shop_that_takes(quick_folder, 5)
    by_key = {"users": {"write": "append_dedup", "primary_key": ["id"]}}
    shop.modes = by_key
    shop.sync_of(rows_of("older 1", ids=(1,)))
    offer = rows_of("older 1", "new", ids=(1, 1))
    shop.modes = {"users": other}
    shop.sync_of(offer)
    shop.modes = by_key
    resent, warning = _retry(shop, offer)
    assert (resent, kept_names(shop), _names(shop)) == (ResentRecords(), ["older 1"], ["new"])
    assert "a later load of their stream went with another key, write mode" in warning


def test_what_an_older_version_kept_is_not_sent(quick_folder: Path) -> None:
    shop = shop_that_takes(quick_folder, 5, write="append")
    offer = rows_of("a", "longer")
    shop.sync_of(offer)
    [file] = [each for each in shop.home.rglob("*") if each.is_file() and each.read_bytes()[:6] == b"SQLite"]
    with closing(sqlite3.connect(file)) as database, database:
        for number, body in database.execute("SELECT number, body FROM airbyte_proto_loads").fetchall():
            load = json.loads(body)
            for part in load["parts"]:
                del part["relayed_as"]
            database.execute("UPDATE airbyte_proto_loads SET body = ? WHERE number = ?", (json.dumps(load), number))
    resent, warning = _retry(shop, offer)
    assert (resent, kept_names(shop), _names(shop)) == (ResentRecords(), ["longer"], ["a"])
    assert "an older version of this program kept them" in warning


def test_what_was_hashed_with_another_key_is_not_sent(quick_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ["the first key of the shop", "the second key of the shop"]
    shop = shop_that_takes(quick_folder, 5, write="append")
    shop.modes = {"users": {"write": "append", "hash": ["name"]}}
    shop.options["hash_key"] = "${env:SHOP_HASH_KEY}"
    offer = rows_of("anybody")
    monkeypatch.setenv("SHOP_HASH_KEY", keys[0])
    shop.sync_of(offer)
    [hashed] = kept_names(shop)
    take(shop, 100)
    monkeypatch.setenv("SHOP_HASH_KEY", keys[1])
    report = shop.sync_of(offer, RETRY)
    assert (report.streams["users"].resent, _names(shop)) == (ResentRecords(), [])
    assert any("another hash_key" in each for each in report.warnings)
    monkeypatch.setenv("SHOP_HASH_KEY", keys[0])
    assert shop.sync_of(offer, RETRY).streams["users"].resent == ResentRecords(1, 1)
    assert _names(shop) == [hashed]
    files = [each for each in shop.home.rglob("*") if each.is_file()]
    assert not any(key.encode() in file.read_bytes() for key in keys for file in files)


def test_the_log_is_read_back_to_the_loads_of_the_kept_records(
    quick_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = shop_that_takes(quick_folder, 5, write="append")
    shop.sync_of(rows_of("a"))
    lease = _lease(shop)
    for number in range(40):
        load = Load(f"l{number}", "shop", "r", (), ())
        shop.store.announce(lease, load)
        shop.store.promote(lease, load, (), ())
    shop.store.release(lease)
    offer = rows_of("a", "longer")
    shop.sync_of(offer)
    parsed: list[str] = []
    as_logged = sql_loads.as_logged

    def counted(row: Any) -> LoggedLoad:
        parsed.append(row.load_id)
        return as_logged(row)

    monkeypatch.setattr(sql_loads, "as_logged", counted)
    assert _retry(shop, offer) == (ResentRecords(1, 1), "")
    assert 0 < len(parsed) < 40
