"""A sync whose commit nobody answers, and its ways out, as a user of the command line meets them."""

import json
import shutil
from typing import Any

import pytest

from dagster_airbyte_proto.testing.faults import CallFault
from tests.cli.conftest import USERS, Place
from tests.cli.loads.faulty_format import FAULTY

_TEN_EACH: dict[str, Any] = {"streams": {"users": {"records": 10}, "orders": {"records": 10}}}


@pytest.fixture
def unanswered(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Its first sync lands its load, and nobody says so."""
    settings = {"catalog": {"format": f"{FAULTY.__module__}:FAULTY"}}
    (place.folder / "airbyte-proto.yaml").write_text(json.dumps(settings))
    file = place.connect(_TEN_EACH)
    with monkeypatch.context() as patched:
        patched.setattr(FAULTY, "planned", {("commit", "*"): CallFault.AFTER})
        result = place.run("sync", file)
    assert result.code == 1
    load = waiting(place)
    assert "shop: unknown" in result.out
    for words in (f"Load {load} stays announced", "`airbyte-proto recover shop`", "in table shop.users"):
        assert words in result.out, words
    return place


def waiting(place: Place) -> str:
    [load] = [each for each in place.json("loads", "list", "shop")["loads"] if each["status"] == "announced"]
    assert {stream["rows"] for stream in load["streams"].values()} == {10}
    return str(load["load_id"])


def drop(place: Place, table: str) -> None:
    shutil.rmtree(place.folder / ".airbyte-proto" / "warehouse" / "shop" / table)


def states(place: Place) -> dict[str, object]:
    return {each["stream"]: each["state"] for each in place.json("state", "show", "shop")["states"]}


def test_json_has_a_status_of_its_own_for_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.folder / "airbyte-proto.yaml").write_text(json.dumps({"catalog": {"format": f"{FAULTY.__module__}:FAULTY"}}))
    monkeypatch.setattr(FAULTY, "planned", {("commit", "*"): CallFault.AFTER})
    report = place.json("sync", place.connect(USERS), code=1)
    users = report["streams"]["users"]
    assert (report["status"], users["status"]) == ("unknown", "unknown")
    assert (users["emitted"], users["committed"], users["unknown"], users["state"]) == (25, 0, 25, None)


def test_the_next_sync_finds_out(unanswered: Place) -> None:
    report = unanswered.json("sync", "shop.yaml")
    assert (report["status"], report["recovered_loads"]) == ("complete", 1)
    assert {name: stream["emitted"] for name, stream in report["streams"].items()} == {"users": 0, "orders": 0}


def test_recover_finds_out_too(unanswered: Place) -> None:
    assert "1 load of dead runs recovered" in unanswered.run("recover", "shop").out
    assert states(unanswered) == {"users": {"next": 10}, "orders": {"next": 10}}


@pytest.mark.parametrize("word", ["landed", "lost"])
def test_a_load_of_a_table_that_was_dropped_is_ended_by_a_word(
    unanswered: Place, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = waiting(unanswered)
    drop(unanswered, "users")
    refused = unanswered.run("sync", "shop.yaml")
    assert refused.code == 1
    for words in (load, "table shop.users", f"loads resolve {load} --as landed", "--as lost", f"loads show {load}"):
        assert words in refused.err, words
    assert waiting(unanswered) == load

    monkeypatch.setenv("LOGNAME", "ada")
    ended = unanswered.run("loads", "resolve", load, "--as", word)
    assert ended.code == 0, ended.err
    assert f"{load} of shop: done, " in ended.out and "ada" in ended.out
    # The table of orders can be read, and speaks for itself.
    landed = {"orders": {"next": 10}}
    assert states(unanswered) == ({"users": {"next": 10}, **landed} if word == "landed" else landed)
    report = unanswered.json("sync", "shop.yaml")
    assert report["status"] == "complete"
    assert report["streams"]["users"]["committed"] == (0 if word == "landed" else 10)


def test_a_word_that_is_not_needed_is_refused(unanswered: Place) -> None:
    refused = unanswered.run("loads", "resolve", waiting(unanswered), "--as", "lost")
    assert refused.code == 2
    assert "can be read" in refused.err and "`airbyte-proto recover shop`" in refused.err
    unanswered.json("recover", "shop")
    for ended_or_none in (str(unanswered.json("loads", "list", "shop")["loads"][0]["load_id"]), "no-such-load"):
        again = unanswered.json("loads", "resolve", ended_or_none, "--as", "landed", code=2)
        assert "airbyte-proto loads list C" in again["error"]["remedy"]
