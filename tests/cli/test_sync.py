"""`sync` and its kin as a user meets them: reports, state, signals, crashes, two at once."""

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.slot import Slot
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.errors import StateConflict
from dagster_airbyte_proto.testing import crash_points
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from tests.cli.conftest import USERS, Place, until

HANGING: dict[str, Any] = {**USERS, "failure": {"kind": "hang", "after": 15}}


def test_a_sync_reports_as_programs_rely_on(place: Place) -> None:
    report = place.json("sync", place.connect(USERS))
    assert (report["connection"], report["status"]) == ("shop", "complete")
    users = report["streams"]["users"]
    assert (users["emitted"], users["committed"], users["rejected"], users["state"]) == (25, 25, 0, {"next": 25})
    assert {"run_id", "recovered_loads", "loads", "lines", "connector", "seconds"} <= set(report)
    again = place.json("sync", "shop.yaml")["streams"]["users"]
    assert (again["emitted"], again["state"]) == (0, {"next": 25})


def test_people_get_a_line_a_stream_on_stdout_and_progress_on_stderr(place: Place) -> None:
    result = place.run(
        "sync", place.connect({**USERS, "lines": ['{"type":"LOG","log":{"level":"WARN","message":"mind"}}']})
    )
    assert result.code == 0
    assert "users" in result.out and "shop: complete, 1 load" in result.out and '{"next": 25}' not in result.out
    assert "shop.users: complete, 25 rows" in result.err
    assert "WARN mind" in result.err


def test_a_terminal_gets_a_live_table_that_leaves_stdout_alone(place: Place) -> None:
    terminal, process_side = pty.openpty()
    words = [sys.executable, "-m", "dagster_airbyte_proto", "sync", place.connect(USERS), "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=process_side)
    os.close(process_side)
    drawn = bytearray()
    with suppress(OSError):  # how Linux tells that nobody holds the other side of a terminal any more
        while piece := os.read(terminal, 65536):
            drawn += piece
    os.close(terminal)
    out, _ = process.communicate(timeout=30)
    assert json.loads(out)["status"] == "complete"
    assert b"users" in drawn and b"rows/s" in drawn and b"complete" in drawn


def test_parallel_has_several_processes_read_the_streams(place: Place) -> None:
    streams = {"users": {"records": 3}, "orders": {"records": 4}}
    file = place.connect({"streams": streams})
    assert place.json("sync", file, "--parallel", "2")["processes"] == 1
    result = place.run("sync", file, "--parallel", "2")
    assert result.code == 0
    assert "2 processes of the connector read orders; users" in result.err
    assert place.json("sync", file)["processes"] == 1
    assert place.run("sync", file, "--parallel", "0").code == 2


def test_only_the_named_streams_are_synced_and_a_refresh_starts_anew(place: Place) -> None:
    file = place.connect({"streams": {"users": {"records": 3}, "orders": {"records": 4}}})
    assert set(place.json("sync", file, "--streams", "users")["streams"]) == {"users"}
    users = place.json("sync", file, "--streams", " users,users ", "--refresh")["streams"]["users"]
    assert (users["emitted"], users["generation"]) == (3, 1)


def test_a_stream_without_states_lands_at_its_end(place: Place) -> None:
    file = place.connect({"streams": {"users": {"records": 25, "incremental": False}}})
    for generation in (1, 2):
        users = place.json("sync", file)["streams"]["users"]
        assert (users["committed"], users["generation"], users["table_rows"]) == (25, generation, 25)


def test_a_stream_that_fails_makes_the_exit_code_1_and_keeps_the_others(place: Place) -> None:
    streams = {"users": {"records": 20, "incomplete_at": 12}, "orders": {"records": 4}}
    file = place.connect({"streams": streams, "state_every": 5})
    report = place.json("sync", file, code=1)
    assert report["status"] == "partial"
    assert {name: result["status"] for name, result in report["streams"].items()} == {
        "users": "failed",
        "orders": "complete",
    }
    assert report["streams"]["users"]["committed"] == 10
    result = place.run("sync", file)
    assert result.code == 1
    assert "users broke" in result.out


def test_a_cancelled_sync_shows_people_what_is_not_committed_yet_and_no_error(place: Place) -> None:
    running = place.start("sync", place.connect({**HANGING, "failure": {"kind": "hang", "after": 13}}))
    running.wait_for("users: reading")
    until(lambda: place.run("state", "show", "shop").code == 0 or running.process.poll() is not None)
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert ended.code == 130, ended.err
    assert "rejected" not in ended.out and "error" not in ended.out
    assert "users: 3 rows not committed yet: the next sync reads them again" in ended.out
    assert "users: cancelled" in ended.err and "shop: cancelled" in ended.out


def test_a_column_whose_new_type_is_refused_is_told_once(place: Place) -> None:
    def users(records: int, value: object, kind: str) -> str:
        stream = {"records": records, "values": {"size": value}, "properties": {"size": {"type": kind}}}
        return place.connect({"streams": {"users": stream}}, streams={"users": {"write": "append"}})

    assert place.run("sync", users(5, 1, "integer")).code == 0
    refused = place.run("sync", users(9, "big", "string"))
    assert refused.code == 1
    assert (refused.err + refused.out).count("size") == 1, refused.err + refused.out
    assert "users: 4 rows not committed yet: the next sync that can commit reads them again" in refused.out


def test_rows_that_come_again_are_not_called_rejected(place: Place) -> None:
    streams = {"users": {"records": 20, "incomplete_at": 12}}
    result = place.run("sync", place.connect({"streams": streams, "state_every": 5}))
    assert "users: 2 rows not committed yet: the next sync reads them again" in result.out
    head, row = [line.split() for line in result.out.splitlines() if line.split()[:1] in (["stream"], ["users"])]
    assert (head[3:], row[3:]) == (["emitted", "committed", "uncommitted"], ["12", "10", "2"])
    report = place.json("sync", "shop.yaml", "--refresh", code=1)["streams"]["users"]
    assert report["emitted"] == report["committed"] + report["rejected"] + report["unknown"]


def test_values_that_became_null_are_told_by_column(place: Place) -> None:
    users = {"records": 3, "properties": {"size": {"type": "integer"}}, "values": {"size": "big"}}
    result = place.run("sync", place.connect({"streams": {"users": users}}))
    assert (result.code, "warning: users: 3 values of size did not fit BIGINT, now NULL" in result.out) == (0, True)


@pytest.mark.everyday("2")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_commits_what_is_complete_and_exits_130(place: Place, number: signal.Signals) -> None:
    running = place.start("sync", place.connect(HANGING), "--json")
    running.wait_for("users: reading")
    running.process.send_signal(number)
    ended = running.end()
    assert ended.code == 130, ended.err
    users = ended.json["streams"]["users"]
    assert (ended.json["status"], users["status"]) == ("cancelled", "cancelled")
    assert users["emitted"] == users["committed"] + users["rejected"]
    states = place.json("state", "show", "shop")["states"]
    assert [stored["state"] for stored in states] == ([users["state"]] if users["committed"] else [])


def test_the_second_signal_exits_on_the_spot(place: Place) -> None:
    running = place.start(
        "sync", place.connect({**USERS, "failure": {"kind": "ignore_sigterm", "after": 15}}), "--json"
    )
    running.wait_for("users: reading")
    running.process.send_signal(signal.SIGINT)
    running.wait_for("stopping")

    def is_over() -> bool:
        running.process.send_signal(signal.SIGINT)
        return running.process.poll() is not None

    until(is_over)
    ended = running.end()
    assert (ended.code, ended.out) == (130, "")
    assert "the next run recovers" in ended.err


def test_a_signal_before_anything_is_read_gives_the_connection_back(place: Place) -> None:
    started, sleeper = place.folder / "started", place.folder / "sleeper"
    sleeper.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 600\n")
    sleeper.chmod(0o755)
    launch = {"kind": "local", "command": [str(sleeper)]}
    file = place.connect(USERS, connector={"protocol": "airbyte", "launch": launch})
    running = place.start("sync", file, "--json")
    until(started.exists)
    running.process.send_signal(signal.SIGTERM)
    ended = running.end()
    assert ended.code == 130, ended.err
    assert (ended.json["connection"], ended.json["status"]) == ("shop", "cancelled")
    assert place.run("sync", place.connect(USERS)).code == 0


def test_a_second_sync_at_once_is_reported_who_holds_the_connection(place: Place) -> None:
    running = place.start("sync", place.connect(HANGING))
    running.wait_for("users: reading")
    error = place.json("sync", "shop.yaml", code=1)["error"]
    assert error["kind"] == "StateConflict"
    assert f"pid {running.process.pid} on " in error["message"]
    refused = place.json("state", "reset", "shop", code=1)["error"]
    assert refused["kind"] == "StateConflict"


def test_a_sync_dies_at_the_point_it_was_reported_and_recover_ends_its_load(place: Place, tmp_path: Path) -> None:
    log = tmp_path / "points"
    Path("airbyte-proto.yaml").write_text(f"lease_seconds: 1\ncatalog: {{format: {FOLDER_FORMAT}}}\n")
    file = place.connect(USERS)
    died = subprocess.run([*crash_points.command("load.announced:1", log), "sync", file], cwd=place.folder, check=False)
    assert died.returncode == -signal.SIGKILL
    points = log.read_text().splitlines()
    assert points[0] == "run.leased" and points[-1] == "load.announced"
    recovered: list[Any] = []

    def is_recovered() -> bool:
        result = place.run("recover", "shop", "--json")
        recovered.append(result.json)
        return result.code == 0

    until(is_recovered)  # the dead run's lease has to run out first
    [load] = recovered[-1].pop("loads")
    assert recovered[-1] == {"connection": "shop", "status": "complete", "recovered_loads": 1}
    assert (load["load_id"], load["partition"]) == (place.json("loads", "list", "shop")["loads"][0]["load_id"], "")
    assert [load["status"] for load in place.json("loads", "list", "shop")["loads"]] == ["done"]
    assert place.json("sync", file)["streams"]["users"]["emitted"] == 0


def test_files_that_cannot_be_read_take_no_other_connection_along(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRBYTE_PROTO_EXECUTOR_HOME", str(tmp_path / "executor"))
    Path("broken.yaml").write_text("connector: [")
    result = place.run("sync-all", "broken.yaml", place.connect(USERS), "absent.yaml", "--json")
    reports = result.json["connections"]
    assert (result.code, [(each["connection"], each["status"]) for each in reports]) == (
        1,
        [("broken", "failed"), ("shop", "complete"), ("absent", "failed")],
    )
    assert reports[1]["streams"]["users"]["committed"] == 25
    assert "broken.yaml" in reports[0]["error"] and "absent.yaml" in result.err
    alone = place.run("sync-all", "broken.yaml")
    assert (alone.code, "broken.yaml" in alone.out) == (2, True)


def test_a_lease_that_a_wrong_clock_made_endless_is_ended_by_hand(place: Place) -> None:
    file, later = place.connect(USERS), datetime.now(UTC) + timedelta(days=4000)
    place.json("sync", file)
    store = SqlStore(f"sqlite:///{place.folder}/.airbyte-proto/state.db", clock=lambda: later)
    elsewhere = store.acquire("shop", run_id="run-of-a-pod", holder="pid 1 on a-pod", seconds=60)
    refused = place.json("sync", file, code=1)["error"]["message"]
    assert "airbyte-proto recover shop --dead-run run-of-a-pod" in refused
    mistyped = place.run("recover", "shop", "--dead-run", "run-of-a-pod", "--dead-run", "x").err
    assert "Those that have one: run-of-a-pod (pid 1 on a-pod)." in mistyped and "ended the lease" not in mistyped
    assert place.json("recover", "shop", "--dead-run", "run-of-a-pod")["ended_leases"] == ["run-of-a-pod"]
    assert place.json("sync", file)["status"] == "complete"
    with pytest.raises(StateConflict, match="no longer holds the lease"):
        store.renew(elsewhere, 60)


def test_a_recovery_that_fails_says_that_the_lease_has_ended(place: Place) -> None:
    place.json("sync", place.connect(USERS))
    store = SqlStore(f"sqlite:///{place.folder}/.airbyte-proto/state.db")
    for run in ("dead", "at-work"):
        slot = Slot(partition=run, most_runs=2)
        store.acquire("shop", run_id=run, holder=f"pid 1 on {run}", seconds=3600, slot=slot)
    error = place.json("recover", "shop", "--dead-run", "dead", code=1)["error"]["message"]
    assert "run at-work" in error and "The lease of dead has ended: leave --dead-run out" in error
    assert [lease.run_id for lease in store.current_leases("shop")] == ["at-work"]


def test_the_lease_of_a_process_that_is_alive_is_not_ended_by_hand(place: Place) -> None:
    running = place.start("sync", place.connect(HANGING))
    running.wait_for("users: reading")
    [lease] = SqlStore(f"sqlite:///{place.folder}/.airbyte-proto/state.db").current_leases("shop")
    refused = place.json("recover", "shop", "--dead-run", lease.run_id, code=2)["error"]
    assert f"pid {running.process.pid} on " in refused["message"] and "is alive" in refused["message"]


def test_a_stream_whose_key_in_the_source_can_be_none_fails_alone(place: Place) -> None:
    offered = {"users": {"records": 3, "primary_key": [["uid"]]}, "orders": {"records": 2}}
    file = place.connect({"streams": offered})
    saved = place.run("discover", file, "--save")
    assert (saved.code, "saved to" in saved.out) == (0, True)
    assert "syncs refuse stream users: the schema has no field uid" in " ".join(saved.err.split())
    [fault] = place.json("check", file, code=2)["stream_errors"]
    assert fault["stream"] == "users"
    report = place.json("sync", file, code=1)
    users, orders = report["streams"]["users"], report["streams"]["orders"]
    assert (report["status"], users["status"], orders["status"], orders["committed"]) == (
        "partial",
        "failed",
        "complete",
        2,
    )
    assert "Set `primary_key` for the stream. Or use write: append or overwrite" in users["error"]
    [status] = place.json("status")["connections"]
    assert (status["status"], list(status["failing"])) == ("partial", ["users"])
    assert place.json("sync", file, "--streams", "users", code=2)["error"]["stream"] == "users"
