"""A connector's states are bounded: in size, and in how long they alone keep a sync alive."""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.run_options import RunOptions, Timeouts
from tests.sync.conftest import OpenShop

COMPLETE, FAILED, PARTIAL = SyncStatus.COMPLETE, SyncStatus.FAILED, SyncStatus.PARTIAL
_LIMIT = 1000
_STREAMS = {"users": {"records": 9}, "orders": {"records": 4}}


def _record(stream: str, number: int) -> str:
    data = {"id": number, "key": number, "name": "n", "updated_at": "2026-11-21T00:00:00Z"}
    return json.dumps({"type": "RECORD", "record": {"stream": stream, "emitted_at": 1_700_000_000_000, "data": data}})


def _stream_state(stream: str, position: int, pad: int = 0) -> dict[str, Any]:
    return {"stream_descriptor": {"name": stream}, "stream_state": {"next": position, "pad": "x" * pad}}


def _state(stream: str, position: int, pad: int = 0) -> str:
    state = {"type": "STREAM", "stream": _stream_state(stream, position, pad)}
    return json.dumps({"type": "STATE", "state": state})


def _global_state(users: int, orders: int, pad: int = 0) -> str:
    parts = [_stream_state("users", users, pad), _stream_state("orders", orders)]
    return json.dumps({"type": "STATE", "state": {"type": "GLOBAL", "global": {"stream_states": parts}}})


def _reading(*lines: str) -> dict[str, Any]:
    return {"streams": _STREAMS, "answers": {"read": {"lines": lines}}}


@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
def test_a_state_that_is_too_large_fails_its_stream_alone_and_loses_nothing(max_bytes: int, shop: OpenShop) -> None:
    place = shop(max_bytes=max_bytes)
    place.load["max_state_bytes"] = _LIMIT
    users = [
        _record("users", 0),
        _record("users", 1),
        _state("users", 2),
        _record("users", 2),
        _state("users", 3, _LIMIT),
    ]
    orders = [*(_record("orders", number) for number in range(4)), _state("orders", 4)]
    report = place.sync_of(_reading(*users, *orders))
    assert (report.status, report.streams["orders"].status) == (PARTIAL, COMPLETE)
    error = report.streams["users"].error or ""
    assert "(stream users): it sent a state of 1," in error
    assert "at most 1,000 are taken (load: max_state_bytes)" in error
    assert place.positions() == {"users": 2, "orders": 4}
    assert place.column("users") == [0, 1]
    assert place.sync_of({"streams": _STREAMS}).status is COMPLETE
    assert place.column("users") == list(range(9))
    assert place.column("orders") == list(range(4))


def test_a_shared_state_that_is_too_large_ends_the_sync(shop: OpenShop) -> None:
    place = shop()
    place.load["max_state_bytes"] = _LIMIT
    lines = [_record("users", 0), _global_state(1, 0), _record("orders", 0), _global_state(1, 1, _LIMIT)]
    report = place.sync_of(_reading(*lines))
    assert report.status is FAILED
    assert "it sent a state of" in report.connector.errors[0]
    assert place.positions() == {"users": 1, "orders": 0}
    assert place.sync_of({"streams": _STREAMS, "state": "global"}).status is COMPLETE
    assert place.column("users") == list(range(9))


def test_a_report_does_not_repeat_a_large_shared_state_for_each_stream(shop: OpenShop) -> None:
    place = shop()
    first = place.sync_of(_reading(_record("users", 0), _record("orders", 0), _global_state(1, 1, 1 << 20)))
    second = place.sync_of(_reading(_record("users", 1), _global_state(2, 1)))
    assert (first.status, second.status) == (COMPLETE, COMPLETE)
    found = "bytes for all streams: `airbyte-proto state show` has it"
    for name in _STREAMS:
        assert found in first.streams[name].state
        assert found in second.streams[name].state_before
        assert [part["stream_state"]["next"] for part in second.streams[name].state["stream_states"]] == [2, 1]
    assert place.column("users") == [0, 1]


def test_rows_that_an_earlier_state_covers_land_before_a_provisional_one_that_is_too_large(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.protocol = "singer"
    place.load["max_state_bytes"] = _LIMIT
    values = ({"next": 2}, {"next": 2, "progress_markers": {"next": 3}, "pad": "x" * _LIMIT})
    states = [{"type": "STATE", "value": {"bookmarks": {"users": value}}} for value in values]
    records = [
        {"type": "RECORD", "stream": "users", "record": {"id": number, "updated_at": "2026-11-21T00:00:00Z"}}
        for number in range(3)
    ]
    said = [json.dumps(line) for line in (*records[:2], states[0], records[2], states[1])]
    report = place.sync_of({"streams": {"users": {"records": 9}}, "answers": {"read": {"lines": said}}})
    assert report.status is FAILED
    assert "it sent a state of" in report.connector.errors[0]
    assert (place.column("users"), place.positions()) == ([0, 1], {"users": 2})


_ENDLESS = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
if "read" in sys.argv:
    number = 0
    while True:
        number += int(sys.argv[2])
        state = {"stream_descriptor": {"name": "users"}, "stream_state": {"next": 0, "at": number}}
        print(json.dumps({"type": "STATE", "state": {"type": "STREAM", "stream": state}}), flush=True)
        time.sleep(0.02)
from dagster_airbyte_proto.testing import fake_source
del sys.argv[1:3]
fake_source.run(fake_source.main)
"""


@pytest.mark.parametrize(
    ("step", "found"),
    [(0, "no record and no new state was received for 1 s"), (1, "only states and no record were received for 3 s")],
)
def test_states_alone_do_not_keep_a_sync_alive(step: int, found: str, shop: OpenShop, tmp_path: Path) -> None:
    place = shop()
    script = tmp_path / "endless.py"
    script.write_text(_ENDLESS)
    place.program = [sys.executable, str(script), str(Path(__file__).parents[3]), str(step)]
    place.offer({"streams": {"users": {"records": 3}}})
    timeouts = Timeouts(startup_seconds=30.0, heartbeat_seconds=1.0, exit_seconds=0.5, states_seconds=3.0)
    report = place.sync(options=RunOptions(threading.Event(), timeouts=timeouts))
    assert report.status is FAILED
    assert found in report.connector.errors[0]
    assert place.positions() == {"users": 0}
