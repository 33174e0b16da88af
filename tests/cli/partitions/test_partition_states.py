"""The state of one partition on the command line: shown, set, reset and rolled back, and nothing of any other."""

import json
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.kept_values import Asset, ValueChanges
from dagster_airbyte_proto.checkpoints.slot import slot_by_hand
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.lookup import PUSH
from dagster_airbyte_proto.testing import crash_points
from tests.cli.conftest import Place

STREAMS = {"users": {"records": 5}, "orders": {"records": 2}}
POSITIONS = {"users": {"next": 5}, "orders": {"next": 2}}
KEYS = ("monday", "tuesday")


def connected(place: Place, **scenario: Any) -> str:
    """A connection whose partitions have a scenario each."""
    for key in KEYS:
        (place.folder / f"{key}.json").write_text(json.dumps({"streams": STREAMS, **scenario}))
    config = {"scenario": str(place.folder / "{{ partition.key }}.json")}
    return place.connect({}, config=config)


def synced(place: Place, **scenario: Any) -> str:
    file = connected(place, **scenario)
    for key in KEYS:
        place.json("sync", file, "--partition", key)
    return file


def states(place: Place, partition: str) -> Mapping[str | None, object]:
    found = place.json("state", "show", "shop", "--partition", partition)["states"]
    assert {each["partition"] for each in found} <= {partition}
    return {each["stream"]: each["state"] for each in found}


def died(place: Place, file: str, partition: str, at: str = "load.announced") -> None:
    words = ["sync", file, "--partition", partition]
    ended = subprocess.run([*crash_points.command(at), *words], cwd=place.folder, check=False, capture_output=True)
    assert ended.returncode == -9, ended.stderr.decode()


def store() -> SqlStore:
    return SqlStore("sqlite:///.airbyte-proto/state.db")


def test_the_state_of_a_partition_goes_there_and_back_again(place: Place) -> None:
    file = synced(place)
    version = place.json("state", "history", "shop")["history"][0]["version"]
    [change] = place.json("state", "set", "shop", "users", '{"next": 3}', "--partition", "monday")["changes"]
    assert (change["partition"], change["state"]) == ("monday", {"next": 3})
    assert states(place, "monday")["users"] == {"next": 3}
    [change] = place.json("state", "reset", "shop", "users", "--partition", "monday")["changes"]
    assert (change["partition"], change["stream"], change["why"]) == ("monday", "users", "reset")
    assert (states(place, "monday"), states(place, "tuesday")) == ({"orders": {"next": 2}}, POSITIONS)
    place.json("state", "reset", file, "--partition", "monday")
    assert (states(place, "monday"), states(place, "tuesday")) == ({}, POSITIONS)
    assert "partition monday of shop has no states" in place.run("state", "show", "shop", "--partition", "monday").out
    changes = place.json("state", "rollback", "shop", "--to", str(version), "--partition", "monday")["changes"]
    assert {each["partition"] for each in changes} == {"monday"}
    assert states(place, "monday") == states(place, "tuesday") == POSITIONS
    again = place.run("state", "rollback", "shop", "--to", str(version), "--partition", "monday")
    assert "nothing to take back: partition monday of shop is as it was" in again.out
    history = place.json("state", "history", "shop", "--partition", "monday")["history"]
    assert {each["partition"] for each in history} == {"monday"}
    assert [each["why"] for each in history][:2] == ["rollback", "rollback"]
    place.json("state", "reset", "shop", "--partition", "monday")
    report = place.json("sync", file, "--partition", "monday")
    assert (report["status"], states(place, "monday")) == ("complete", POSITIONS)


@pytest.mark.parametrize(
    "words",
    [
        ("show", "shop"),
        ("history", "shop"),
        ("set", "shop", "users", "{}"),
        ("reset", "shop"),
        ("reset", "shop", "users"),
        ("rollback", "shop", "--to", "1"),
    ],
    ids=lambda words: " ".join(words[:1] + words[2:3]),
)
def test_a_partition_that_nobody_knows_is_reported_with_those_that_are_known(
    place: Place, words: tuple[str, ...]
) -> None:
    synced(place)
    before = store().history("shop")
    error = place.json("state", *words, "--partition", "munday", code=2)["error"]["message"]
    for text in ("knows no partition 'munday'", "The nearest is monday", "It knows monday, tuesday."):
        assert text in error, error
    assert store().history("shop") == before
    assert place.run("state", *words, "--partition", "").code == 2


def test_a_connection_without_partitions_says_so(place: Place) -> None:
    place.json("sync", place.connect({"streams": STREAMS}))
    error = place.json("state", "reset", "shop", "--partition", "monday", code=2)["error"]["message"]
    assert "no run of it was one of a partition" in error


def test_states_without_a_partition_and_with_one_are_told_apart(place: Place) -> None:
    synced(place)
    error = place.json("state", "reset", "shop", "users", code=2)["error"]["message"]
    for text in ("all states of connection shop are of partitions", "--partition KEY", "monday, tuesday"):
        assert text in error, error
    for words in (["set", "shop", "users", "{}"], ["reset", "shop"]):
        shown = place.run("state", *words)
        assert (shown.code, "The states of partitions stay: monday, tuesday." in shown.out) == (0, True), shown
    assert states(place, "monday") == states(place, "tuesday") == POSITIONS
    shown = place.run("state", "set", "shop", "users", "{}", "--partition", "monday")
    assert "reads it from the start all the same" in shown.out


def test_tables_are_not_rolled_back_by_partition(place: Place) -> None:
    synced(place)
    result = place.run("state", "rollback", "shop", "--to", "1", "--tables", "--partition", "monday")
    assert (result.code, "sync the partition again" in result.err) == (2, True), result


@pytest.mark.parametrize("scope", ["global", "legacy"])
def test_a_state_that_streams_share_is_one_in_each_partition(place: Place, scope: str) -> None:
    synced(place, state=scope)
    before = states(place, "monday")
    result = place.run("state", "reset", "shop", "users", "--partition", "monday")
    if scope == "global":
        assert result.code == 0, result.err
        [rest] = states(place, "monday").values()
        assert "users" not in json.dumps(rest) and "orders" in json.dumps(rest)
    else:
        assert result.code == 2
        assert "airbyte-proto state reset shop --partition monday" in result.err
        assert states(place, "monday") == before
    place.json("state", "reset", "shop", "--partition", "monday")
    assert (states(place, "monday"), states(place, "tuesday")) == ({}, before)


def test_a_load_that_is_announced_holds_up_its_own_partition_alone(place: Place) -> None:
    file = synced(place)
    died(place, file, "monday")
    error = place.json("state", "reset", "shop", "--partition", "monday", code=2)["error"]["message"]
    for text in ("its partition monday, is announced", "recover shop --partition monday"):
        assert text in error, error
    place.json("state", "reset", "shop", "--partition", "tuesday")
    listed = place.json("loads", "list", "shop")["loads"]
    assert (listed[0]["partition"], listed[0]["status"]) == ("monday", "announced")
    assert {each["partition"] for each in listed} == set(KEYS)
    assert "partition" in place.run("loads", "list", "shop").out
    assert "of partition monday of shop: announced" in place.run("loads", "show", listed[0]["load_id"]).out
    status = place.json("status")["connections"][0]
    assert (status["unfinished_loads"], status["unfinished_partitions"]) == (1, ["monday"])
    shown = place.run("status").out
    assert "interrupted [monday]" in shown and "airbyte-proto recover shop --partition monday" in shown
    recovered = place.json("recover", "shop", "--partition", "monday")
    assert recovered["loads"] == [{"load_id": listed[0]["load_id"], "partition": "monday"}]
    place.json("state", "reset", "shop", "--partition", "monday")


def test_a_run_holds_up_its_own_partition_alone(place: Place) -> None:
    file = synced(place)
    died(place, file, "tuesday")
    hang = {"kind": "hang", "after": 1, "once": str(place.folder / "hung")}
    (place.folder / "monday.json").write_text(json.dumps({"streams": STREAMS, "failure": hang}))
    running = place.start("sync", file, "--partition", "monday")
    while not (place.folder / "hung").exists():
        assert running.process.poll() is None
    error = place.json("state", "reset", "shop", "--partition", "monday", code=1)["error"]["message"]
    assert "has held its partition monday since" in error
    assert place.run("recover", "shop").code == 1
    status = place.json("status")["connections"][0]
    assert (status["running_partitions"], status["unfinished_partitions"]) == (["monday"], ["tuesday"])
    assert "runs of partitions work now: monday" in place.run("status").out
    recovered = place.run("recover", "shop", "--partition", "tuesday")
    assert (recovered.code, recovered.out) == (0, "partition tuesday of shop: 1 load of dead runs recovered\n")
    place.json("state", "reset", "shop", "--partition", "tuesday")
    running.process.terminate()
    assert running.end().code == 130
    assert states(place, "monday") == POSITIONS
    place.json("state", "reset", "shop", "--partition", "monday")
    assert "partition monday of shop: complete" in place.run("sync", file, "--partition", "monday").out


def test_kept_values_of_a_partition_are_changed_by_hand(place: Place) -> None:
    synced(place)
    for key in KEYS:
        lease = store().acquire("shop", run_id="r", holder="h", seconds=60, slot=slot_by_hand(key))
        values = ValueChanges({("cursor",): b"1"})
        store().keep_values(lease, Asset("shop", StreamId.of("users"), key), values)
        store().release(lease)
    place.json("state", "set", "shop", "users", "2", "--key", "cursor", "--partition", "monday")
    [users] = place.json("state", "show", "shop", "users", "--partition", "monday")["states"]
    assert users["kept_values"]["values"] == [{"key": ["cursor"], "value": 2}]
    place.json("state", "reset", "shop", "users", "--key", "cursor", "--partition", "monday")
    kept = {size.asset.partition for size in store().kept_sizes("shop")}
    assert (kept, states(place, "monday")) == ({"tuesday"}, POSITIONS)


def test_a_push_has_one_position_for_all_partitions(place: Place) -> None:
    synced(place)
    lease = store().acquire("shop", run_id="r", holder="h", seconds=60)
    store().note_protocol(lease, PUSH)
    store().release(lease)
    for words in (["reset", "shop"], ["rollback", "shop", "--to", "1"], ["set", "shop", "users", "{}"]):
        error = place.json("state", *words, "--partition", "monday", code=2)["error"]["message"]
        assert "one position for all its partitions" in error, words
