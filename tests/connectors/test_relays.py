"""Real sources relayed to real destinations: each record is at the destination as its source has it."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.launchers.packages.environments import PinnedPackage, ensure_environment
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run import sync_connection

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(300)]

_PEOPLE: list[dict[str, Any]] = [
    {"id": 1, "name": 'Zürich \\ "q"', "price": 12.34, "tags": ["a", None], "at": "2024-02-29T12:00:00.5Z"},
    {"id": 2, "name": None, "price": None, "tags": [], "o": {"é": [True, None]}},
    {"id": 3, "price": -1e-300, "whole": 9223372036854775807},
]


class RelayedConnection:
    """One connection of real connectors, in a home of its own."""

    def __init__(self, folder: Path, environments: Path) -> None:
        self._file = folder / "relayed.yaml"
        self._settings = Settings.load(folder / "home")
        self._settings.make_home()
        self._settings.environments_folder.symlink_to(environments)

    def sync(self, connection: dict[str, Any]) -> SyncReport:
        self._file.write_text(yaml.safe_dump(connection))
        with Engine(self._settings) as engine:
            report = sync_connection(engine, Connection.from_file(self._file))
        assert report.status == "complete", report
        return report


@pytest.fixture
def relay(quick_folder: Path, connector_environments: Path) -> RelayedConnection:
    return RelayedConnection(quick_folder, connector_environments)


@pytest.mark.nightly
def test_an_airbyte_source_to_a_singer_target(relay: RelayedConnection, quick_folder: Path) -> None:
    out = quick_folder / "out"
    out.mkdir()
    source = {"kind": "pypi", "package": "airbyte-source-faker==7.2.1", "executable": "source-faker"}
    target = {"kind": "pypi", "package": "target-jsonl==0.1.4", "executable": "target-jsonl"}
    connection = {
        "connector": {"protocol": "airbyte", "launch": source},
        "config": {"count": 200, "seed": 1, "parallelism": 1, "always_updated": False},
        "streams": {"users": {}, "products": {}},
        "to": {"connector": {"protocol": "singer", "launch": target}, "config": {"destination_path": str(out)}},
    }
    report = relay.sync(connection)
    assert (report.streams["users"].committed, report.streams["products"].committed) == (200, 100)
    assert relay.sync(connection).streams["users"].emitted == 0
    [file] = out.glob("users-*.jsonl")
    users = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(user["id"] for user in users) == list(range(1, 201))
    assert {"city", "street_number"} <= users[0]["address"].keys()


@pytest.mark.nightly
def test_a_singer_tap_to_an_airbyte_destination(
    relay: RelayedConnection, quick_folder: Path, connector_environments: Path
) -> None:
    file, held = quick_folder / "people.jsonl", quick_folder / "out.sqlite"
    file.write_text("".join(json.dumps(row) + "\n" for row in _PEOPLE))
    cdk = ensure_environment(PinnedPackage.of("airbyte-cdk==7.39.1"), cache=connector_environments, python=None)
    program = Path(__file__).parents[1] / "support" / "sqlite_destination.py"
    launch = {"kind": "local", "command": [str(cdk / "bin" / "python"), str(program)]}
    connection = {
        "connector": {"protocol": "singer", "launch": {"kind": "pypi", "package": "tap-jsonl==0.3.1"}},
        "config": {"path": str(file), "stream_name": "people", "primary_keys": ["id"]},
        "streams": {"people": {"write": "append_dedup", "primary_key": ["id"]}},
        "to": {"connector": {"protocol": "airbyte", "launch": launch}, "config": {"path": str(held)}},
    }
    report = relay.sync(connection)
    assert report.streams["people"].committed == len(_PEOPLE)
    with sqlite3.connect(held) as database:
        rows = [json.loads(data) for (data,) in database.execute('SELECT data FROM "people"')]
    for row, sent in zip(sorted(rows, key=lambda each: each["id"]), _PEOPLE, strict=True):
        assert {name: value for name, value in row.items() if name in sent} == sent
