"""The fake source follows its scenario."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.testing.fake_source import command

NO_STATUSES: Mapping[str, Any] = {"statuses": False, "counts": False}


class Ended:
    def __init__(self, code: int, out: bytes) -> None:
        self.code = code
        whole = [line for line in out.splitlines() if line.endswith(b"}")]
        self.messages = [json.loads(line) for line in whole]
        self.ids = [
            (message["record"]["stream"], message["record"]["data"]["id"])
            for message in self.messages
            if message["type"] == "RECORD"
        ]
        self.states = [message["state"] for message in self.messages if message["type"] == "STATE"]


def read(folder: Path, scenario: Mapping[str, Any], *, states: Any = None, mode: str = "incremental") -> Ended:
    chosen = [{"stream": {"name": name}, "sync_mode": mode} for name in scenario["streams"]]
    files = {"config": {"scenario": scenario}, "catalog": {"streams": chosen}}
    if states is not None:
        files["state"] = states
    words = [*command(), "read"]
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
        words += [f"--{name}", str(folder / name)]
    ended = subprocess.run(words, capture_output=True, check=False, timeout=30)
    return Ended(ended.returncode, ended.stdout)


@pytest.mark.parametrize("state", ["stream", "global", "legacy"])
def test_it_goes_on_from_the_state_it_sent(tmp_path: Path, state: str) -> None:
    streams = {"users": {"records": 7}, "orders": {"records": 3, "namespace": "eu"}}
    scenario = {"streams": streams, "state": state, "state_every": 2, "failure": {"kind": "exit", "after": 5}}
    first = read(tmp_path, scenario)
    assert (first.code, len(first.ids)) == (1, 5)
    handed_back = first.states[-1]["data"] if state == "legacy" else first.states[-1:]
    second = read(tmp_path, {**scenario, "failure": None}, states=handed_back)
    assert second.ids == [("users", 4), ("users", 5), ("users", 6), ("orders", 0), ("orders", 1), ("orders", 2)]
    assert second.code == 0


def test_interleaved_streams_take_turns_and_share_a_global_state(tmp_path: Path) -> None:
    scenario = {"streams": {"a": {"records": 3}, "b": {"records": 1}}, "interleave": True, "state": "global"}
    ended = read(tmp_path, {**scenario, "state_every": 2})
    assert ended.ids == [("a", 0), ("b", 0), ("a", 1), ("a", 2)]
    assert ended.states[0]["global"]["shared_state"] == {"total": 2}
    assert sum(state["sourceStats"]["recordCount"] for state in ended.states) == 4


def test_a_full_refresh_sends_everything_and_no_state(tmp_path: Path) -> None:
    scenario = {"streams": {"users": {"records": 3}}}
    ended = read(tmp_path, scenario, states=[stream_state("users", 2)], mode="full_refresh")
    assert (len(ended.ids), ended.states) == (3, [])


def test_an_incomplete_stream_leaves_the_others_alone(tmp_path: Path) -> None:
    ended = read(tmp_path, {"streams": {"users": {"records": 3, "incomplete_at": 1}, "orders": {"records": 1}}})
    said = [message["trace"] for message in ended.messages if message["type"] == "TRACE"]
    statuses = [trace["stream_status"]["status"] for trace in said if trace["type"] == "STREAM_STATUS"]
    assert statuses == ["STARTED", "RUNNING", "INCOMPLETE", "STARTED", "RUNNING", "COMPLETE"]
    assert (ended.code, len(ended.ids)) == (0, 2)


def test_a_failure_that_strikes_once_leaves_the_next_run_alone(tmp_path: Path) -> None:
    failure = {"kind": "signal", "after": 2, "once": str(tmp_path / "struck")}
    scenario = {"streams": {"users": {"records": 3}}, "failure": failure}
    assert read(tmp_path, scenario).code == -9
    assert read(tmp_path, scenario).code == 0


def test_without_statuses_and_states_there_are_records_alone(tmp_path: Path) -> None:
    ended = read(tmp_path, {"streams": {"users": {"records": 4, "keys": 2}}, "state": "none", **NO_STATUSES})
    assert [message["record"]["data"]["key"] for message in ended.messages] == [0, 1, 0, 1]


def stream_state(name: str, position: int) -> dict[str, Any]:
    state = {"stream_descriptor": {"name": name}, "stream_state": {"next": position}}
    return {"type": "STREAM", "stream": state}
