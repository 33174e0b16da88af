"""`status`: what the store knows of each connection, at a glance."""

import json
import os
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.cli.commands.status import sparkline
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.testing import fake_source
from tests.cli.conftest import USERS, Place

TWO = {"streams": {"users": {"records": 25}, "orders": {"records": 4}}, "state_every": 2}


def status_of(place: Place, name: str = "shop", *words: str) -> dict[str, Any]:
    [found] = [each for each in place.json("status", *words)["connections"] if each["connection"] == name]
    return dict(found)


def test_a_store_without_connections_says_so(place: Place) -> None:
    assert place.json("status") == {"connections": []}
    assert place.run("status").out == "no connection has synced into this state store yet\n"


def test_a_complete_sync_is_shown_with_its_rows_and_its_lag(place: Place) -> None:
    place.json("sync", place.connect(TWO))
    found = status_of(place)
    assert (found["status"], found["rows"], found["rejected"], found["failing"]) == ("complete", 29, 0, {})
    assert 0 <= found["lag_seconds"] < 600 and found["seconds"] > 0
    assert found["streams"] == {"users": found["ended_at"], "orders": found["ended_at"]}
    assert (found["oldest_stream"], found["rows_by_run"]) == (None, [29])
    shown = place.run("status")
    assert shown.code == 0
    assert "shop" in shown.out and "█" in shown.out and "ago" in shown.out
    assert "next" not in shown.out and "next_at" not in found  # only Dagster knows that
    assert max(map(len, shown.out.splitlines())) <= 80


def test_the_rows_of_the_last_ten_syncs_are_listed_oldest_first(place: Place) -> None:
    for records in range(1, 13):
        place.json("sync", place.connect({"streams": {"users": {"records": 10 * records}}}))
    assert status_of(place)["rows_by_run"] == [10] * 10
    assert sparkline([0, 50, 100, None]) == "▁▅█·"
    assert sparkline([0, 0]) == "▁▁" and sparkline([]) == ""


def test_failing_streams_are_named_with_their_error_and_the_oldest_one(place: Place) -> None:
    place.json("sync", place.connect(TWO))
    complete = status_of(place)["ended_at"]
    failure = {"kind": "error", "after": 2, "message": "the API says no", "stream": "orders"}
    place.run(
        "sync",
        place.connect({**TWO, "streams": {"users": {"records": 27}, "orders": {"records": 9}}, "failure": failure}),
    )
    found = status_of(place)
    assert found["status"] in ("partial", "failed")
    assert found["complete_at"] == complete
    assert "the API says no" in json.dumps([found["failing"], found["error"]])
    shown = place.run("status").out
    assert "the API says no" in shown


def test_a_sync_whose_connector_cannot_start_is_shown_with_its_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_REGION", "eu")
    launch = {"kind": "local", "command": fake_source.command()}
    file = place.connect(TWO, connector={"protocol": "airbyte", "launch": launch, "env_vars": ["SHOP_REGION"]})
    place.json("sync", file)
    monkeypatch.delenv("SHOP_REGION")
    place.json("sync", file, code=2)
    found = status_of(place)
    assert (found["status"], found["rows_by_run"]) == ("failed", [29, 0])
    assert "SHOP_REGION" in found["error"]


def test_a_sync_that_is_refused_before_it_begins_is_shown_with_its_error(place: Place) -> None:
    file = place.connect(USERS, config={"scenario": {}, "password": "${env:NO_SUCH_SECRET}"})
    place.json("sync", file, code=2)
    found = status_of(place)
    assert (found["status"], found["lag_seconds"], found["rows_by_run"]) == ("failed", None, [0])
    assert "NO_SUCH_SECRET" in found["error"]
    shown = place.run("status").out
    assert "failed" in shown and "never" in shown and "NO_SUCH_SECRET" in shown


def test_a_run_that_its_file_refuses_is_shown_until_another_one_begins(place: Place) -> None:
    file = place.folder / place.connect(USERS)
    place.json("sync", file.name)
    assert status_of(place)["refused"] is None
    good = file.read_text()
    file.write_text(good.replace('"config"', '"confg"'))
    place.json("sync", file.name, "--plan", code=2)
    assert status_of(place)["refused"] is None  # A plan is no run.
    for _ in range(2):
        place.json("sync", file.name, code=2)
    found = status_of(place)
    assert (found["status"], "confg" in found["refused"]["error"]) == ("complete", True)
    [log] = [each for each in Path(".airbyte-proto/logs/shop").glob("*.log") if "confg" in each.read_text()]
    assert (place.folder / log).samefile(found["refused"]["log"])
    assert "shop: a run was refused" in place.run("status").out
    file.write_text(good)
    place.json("sync", file.name)
    assert status_of(place)["refused"] is None


def test_a_run_that_another_one_keeps_out_is_shown_as_refused(place: Place) -> None:
    file = place.connect(USERS)
    place.json("sync", file)
    with closing(SqlStore("sqlite:///.airbyte-proto/state.db")) as store, acquire_lease(store, "shop", "other", 30):
        place.json("sync", file, code=1)
    found = status_of(place)
    assert (found["status"], found["rows_by_run"]) == ("complete", [25])
    assert "has held it since" in found["refused"]["error"]
    assert datetime.fromisoformat(found["refused"]["at"]) > datetime.fromisoformat(found["ended_at"])
    shown = place.run("status").out
    assert "shop: a run was refused" in shown and "run other" in shown


def test_a_run_that_failed_is_not_shown_as_refused_too(place: Place) -> None:
    place.json("sync", place.connect(USERS, config={"scenario": {}, "password": "${env:NO_SUCH_SECRET}"}), code=2)
    found = status_of(place)
    assert (found["status"], found["refused"]) == ("failed", None)


def test_a_wrong_file_of_a_connection_that_never_ran_leaves_nothing(place: Place) -> None:
    (place.folder / "broken.yaml").write_text("connector: [")
    place.json("sync", "broken.yaml", code=2)
    assert not (place.folder / ".airbyte-proto").exists()


def test_of_many_failing_streams_only_some_are_shown(place: Place) -> None:
    streams = {f"s{number}": {"records": 3} for number in range(9)}
    place.run("sync", place.connect({"streams": streams, "failure": {"kind": "exit", "after": 0}}))
    assert len(status_of(place)["failing"]) == 9
    shown = place.run("status").out
    assert shown.count("exited with code 1") == 5 and "shop: 4 more streams failed; --json has all" in shown


def test_a_stream_that_is_left_out_falls_behind(place: Place) -> None:
    file = place.connect(TWO)
    first = place.json("sync", file) and status_of(place)
    place.json("sync", file, "--streams", "users")
    found = status_of(place)
    assert found["oldest_stream"] == "orders" and found["streams"]["orders"] == first["ended_at"]
    assert "shop: oldest stream orders: last complete" in place.run("status").out


def test_rejected_rows_are_counted(place: Place) -> None:
    rows = [{"id": 1}, {"id": "no number"}]
    users = {"rows": rows, "properties": {"id": {"type": "integer"}}}
    file = place.connect({"streams": {"users": users}}, destination={"schema_policy": "freeze"})
    assert place.json("sync", file)["streams"]["users"]["rejected"] == 1
    assert status_of(place)["rejected"] == 1
    assert "shop: 1 row rejected" in place.run("status").out


def test_rows_that_are_only_not_committed_yet_are_not_called_rejected(place: Place) -> None:
    file = place.connect({**TWO, "failure": {"kind": "exit", "after": 5}, "state_every": 100})
    place.run("sync", file)
    found = status_of(place)
    assert (found["rejected"], found["uncommitted"]) == (0, 5)
    shown = place.run("status").out
    assert "shop: 5 rows not committed yet" in shown and "rejected" not in shown


def test_a_connection_that_never_synced_is_shown_if_its_file_is_named(place: Place) -> None:
    place.json("sync", place.connect(USERS))
    file = place.connect(USERS, "later")
    assert [each["connection"] for each in place.json("status")["connections"]] == ["shop"]
    later = status_of(place, "later", file)
    assert (later["status"], later["lag_seconds"], later["rows_by_run"]) == ("never", None, [])


def test_a_sync_that_runs_and_one_that_died_are_told_apart(place: Place) -> None:
    hang = {"kind": "hang", "after": 12, "once": str(place.folder / "hung")}
    running = place.start("sync", place.connect({**TWO, "failure": hang}))
    while not (place.folder / "hung").exists():
        assert running.process.poll() is None
    assert status_of(place)["status"] == "running"
    os.kill(running.process.pid, signal.SIGKILL)
    running.end()
    died = status_of(place)
    assert (died["status"], died["ended_at"], died["rows_by_run"]) == ("interrupted", None, [None])
    place.json("sync", "shop.yaml")
    assert status_of(place)["status"] == "complete"


@pytest.mark.parametrize("report", ["", "no JSON", '{"streams": {"users": {}}}'])
def test_reports_of_another_version_are_no_error(place: Place, report: str) -> None:
    place.json("sync", place.connect(USERS))
    with closing(sqlite3.connect(".airbyte-proto/state.db")) as store:
        store.execute("UPDATE airbyte_proto_runs SET report = ?", [report])
        store.commit()
    found = status_of(place)
    assert (found["status"], found["rows"]) == ("complete", 0)
    assert datetime.fromisoformat(found["ended_at"]) <= datetime.now(UTC)


def test_a_file_that_cannot_be_read_takes_no_other_connection_away(place: Place) -> None:
    place.json("sync", place.connect(USERS))
    (place.folder / "broken.yaml").write_text("connector: [")
    found = place.json("status", "broken.yaml", "shop.yaml", code=2)
    assert ([each["connection"] for each in found["connections"]], len(found["errors"])) == (["shop"], 1)
    assert "broken.yaml" in found["errors"][0]
    assert "error: " in place.run("status", "broken.yaml").out
    assert place.json("status", "shop")["connections"] and "Known here: shop" in place.run("status", "shpo").out
