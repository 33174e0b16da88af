"""The commands of a connection with a push."""

import json
import sys
from typing import Any

import pytest

from tests.cli.conftest import USERS, Place


@pytest.fixture
def file(place: Place) -> str:
    return _connect(place)


def _connect(place: Place, **config: Any) -> str:
    command = [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_destination"]
    document = {
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": command}},
        "config": {"path": "out.jsonl", **config},
        "push": {"contacts": {"from": "shop.people", "key": ["id"], "mode": "upsert"}},
    }
    (place.folder / "crm.yaml").write_text(json.dumps(document))
    return "crm.yaml"


def test_a_destination_without_a_catalog_takes_any_stream(place: Place, file: str) -> None:
    assert place.json("discover", file) == {"connection": "crm", "operations": []}
    assert "it takes any stream" in place.run("discover", file).out
    assert place.json("check", file)["status"] == "succeeded"


def test_a_destination_lists_its_objects_and_streams_are_checked_against_them(place: Place) -> None:
    operation = {"object_name": "contacts", "sync_mode": "append_dedup", "matching_keys": [["email"]]}
    schema = {"type": "object", "properties": {"email": {"type": "string"}, "age": {}}, "required": ["email"]}
    file = _connect(place, operations=[{**operation, "json_schema": schema}])
    assert place.json("discover", file)["operations"] == [{**operation, "row_schema": schema}]
    shown = place.run("discover", file).out
    assert "append_dedup" in shown and "email*, age" in shown
    checked = place.json("check", file, code=2)
    assert "object contacts finds its rows by email, and the stream has id" in checked["stream_errors"][0]["message"]
    assert place.run("push", file).code == 2
    assert place.run("discover", file, "--save").code == 2


def test_the_streams_of_a_relay_are_checked_against_the_objects_of_its_destination(place: Place) -> None:
    command = [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_destination"]
    to = {
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": command}},
        "config": {"path": "out.jsonl", "operations": [{"object_name": "people", "sync_mode": "append"}]},
    }
    streams = {"users": {"write": "append"}}
    shop = place.connect(USERS, to=to, streams=streams)
    assert place.run("discover", shop, "--save").code == 0
    [fault] = place.json("check", shop, code=2)["stream_errors"]
    assert "the destination has no object users; it has people" in fault["message"]
    streams["users"]["rename"] = "people"
    assert place.json("check", place.connect(USERS, to=to, streams=streams))["stream_errors"] == []
