"""The commands of a connection with a push."""

import json
import sys
from typing import Any

import pytest

from tests.cli.conftest import Place


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
    file = _connect(place, operations=[operation])
    assert place.json("discover", file)["operations"] == [operation]
    assert "append_dedup" in place.run("discover", file).out
    checked = place.json("check", file, code=2)
    assert "object contacts finds its rows by email, and the stream has id" in checked["stream_errors"][0]["message"]
    assert place.run("push", file).code == 2
    assert place.run("discover", file, "--save").code == 2
