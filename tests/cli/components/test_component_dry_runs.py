"""Dry runs of components: the first rows as their table would get them, and nothing that changes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.components.test_component_syncs import CONFIG, checkpoint
from tests.cli.conftest import Place
from tests.support.wasm import guests

pytestmark = pytest.mark.everyday("test_the_first_rows_are_shown_and_nothing_lands")


def _connect(place: Place, script: str, **written: Any) -> str:
    (place.folder / "source.wasm").write_bytes(guests.built().read_bytes())
    connector = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "source.wasm"}}
    file = place.connect({}, connector=connector, config={**CONFIG, "script_users": script}, streams=["users"])
    Path(file).write_text(json.dumps({**json.loads(Path(file).read_text()), **written}))
    return file


def test_the_first_rows_are_shown_and_nothing_lands(place: Place) -> None:
    transforms = [{"sql": "SELECT *, id * 10 AS tenfold FROM input WHERE id <> 2"}]
    streams = {"users": {"exclude": ["raw"], "write": "append"}}
    script = f"limits;ipc first;put 1 page s;{checkpoint(3)};ipc second"
    file = _connect(place, script, streams=streams, transforms=transforms)
    shown = place.run("sync", file, "--plan", "--sample", "2", "--json")
    assert shown.code == 0, shown.err
    users = shown.json["streams"]["users"]
    assert (shown.json["is_plan"], users["status"], users["emitted"]) == (True, "complete", 2)
    assert users["samples"] == [
        {"id": 1, "name": "name-1", "score": 0.25, "at": "2026-01-03T03:04:05.678901", "tenfold": 10}
    ]
    assert users["rejections"] == {"dropped by a transform": 1}
    log = next((place.folder / ".airbyte-proto/logs/shop/asked").glob("*.log")).read_text()
    assert "limits dry 2" in log
    assert '"page"' not in json.dumps(place.json("state", "list"))
    assert not list((place.folder / ".airbyte-proto").glob("warehouse/shop/*"))
    assert "limits none" in place.run("sync", file, "--verbose").err


def test_a_component_that_does_not_stop_is_stopped(place: Place) -> None:
    file = _connect(place, "ipc first;spin", streams=["users"])
    assert [row["id"] for row in place.json("sync", file, "--plan")["streams"]["users"]["samples"]] == [1, 2, 3]


def test_it_goes_on_from_the_state(place: Place) -> None:
    file = _connect(place, f"!ipc first;!{checkpoint(3)};?ipc second;?{checkpoint(5)}")
    place.json("sync", file)
    for _ in range(2):
        assert [row["id"] for row in place.json("sync", file, "--plan")["streams"]["users"]["samples"]] == [4, 5]
    assert place.json("sync", file)["streams"]["users"]["committed"] == 2


@pytest.mark.parametrize(("script", "found"), [("ipc first;fail", "rate-limit/BOOM"), ("trap", "trapped")])
def test_an_error_is_told(place: Place, script: str, found: str) -> None:
    report = place.json("sync", _connect(place, script), "--plan", "--sample", "9", code=1)
    assert (report["status"], report["streams"]["users"]["status"]) == ("failed", "failed")
    assert found in report["streams"]["users"]["error"]


def test_people_see_rows_and_rejected_records(place: Place) -> None:
    file = _connect(place, "dlq users {} bad data;ipc first")
    shown = place.run("sync", file, "--plan")
    assert "users: 2 rows for shop.users; nothing has landed" in shown.out
    assert "1 row rejected: rejected by the connector: data" in shown.out


def test_other_connectors_have_none(place: Place) -> None:
    shown = place.run("sync", place.connect({"streams": {"users": {"records": 3}}}), "--plan")
    assert (shown.code, "airbyte connectors have no dry run" in shown.err) == (2, True)


def test_a_stream_that_cannot_be_planned_fails_alone(place: Place) -> None:
    file = _connect(place, "ipc first", streams={"users": {}, "orders": {"select": ["nope"], "write": "append"}})
    report = place.json("sync", file, "--plan", code=1)
    users, orders = report["streams"]["users"], report["streams"]["orders"]
    assert ([row["id"] for row in users["samples"]], orders["status"], orders["samples"]) == ([1, 2, 3], "failed", [])
    assert "no field nope" in orders["error"]
