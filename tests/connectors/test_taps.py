"""Real taps from the package index into real Iceberg tables, by the command line, as a user would: one of meltano's
SDK, and one of singer-python that reads a database of the tests' own."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.connectors.test_airbyte_sources import House, Table
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.nightly, pytest.mark.connectors, pytest.mark.spark, pytest.mark.timeout(900)]

_USERS = 3000
_NEW_USERS = 40
_PEOPLE: list[dict[str, Any]] = [
    {"id": 1, "name": "Zürich 🏔", "price": 12.34, "tags": ["a", None], "at": "2024-02-29T12:00:00.5Z"},
    {"id": 2, "name": 'O\'Fallon, "Mo"', "price": None, "tags": [], "at": "2024-03-01T00:00:00Z"},
]
_JSONL = {"kind": "pypi", "package": "tap-jsonl==0.3.1"}
# The package and the program are called differently.
_POSTGRES = {"kind": "pypi", "package": "pipelinewise-tap-postgres==2.1.0"}


class Landed(NamedTuple):
    reports: Mapping[str, Any]
    tables: Mapping[str, Table]
    left_in_files: list[str]
    batch_log: str

    def committed(self, report: str) -> dict[str, int]:
        return {name: told["committed"] for name, told in self.reports[report]["streams"].items()}


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_server.conninfo(), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA shop")
        connection.execute(
            "CREATE TABLE shop.users (id int PRIMARY KEY, name text, price numeric(12, 4), at timestamptz, shape point)"
        )
        connection.execute("CREATE TABLE shop.orders (id bigint PRIMARY KEY, weight double precision)")
        _insert_users(connection, 1, _USERS)
        connection.execute("INSERT INTO shop.orders SELECT n, n / 3.0 FROM generate_series(1, 200) n")
        yield connection
        connection.execute("DROP SCHEMA shop CASCADE")


@pytest.fixture(scope="module")
def landed(
    tmp_path_factory: pytest.TempPathFactory,
    connector_environments: Path,
    postgres_server: PostgresServer,
    database: psycopg.Connection,
) -> Landed:
    """Both synced twice, with more in the sources the second time; then one look at all tables."""
    house = House(tmp_path_factory.mktemp("taps"), connector_environments)
    file = house.folder / "people.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in _PEOPLE))
    config = {"path": str(file), "stream_name": "people", "primary_keys": ["id"]}
    house.connect("files", config, _JSONL, protocol="singer")
    handed_over = house.folder / "handed over"
    handed_over.mkdir()
    # The SDK takes the path as it stands behind `file://`: percent-encoded it would be another folder.
    storage = {"root": f"file://{handed_over}", "prefix": "part-"}
    batches = {"encoding": {"format": "jsonl", "compression": "gzip"}, "storage": storage}
    house.connect("batches", {**config, "batch_config": batches}, _JSONL, protocol="singer", batch_folder="handed over")
    access = {"host": "127.0.0.1", "port": postgres_server.port, "user": "tester", "dbname": "postgres"}
    streams = {
        "shop-users": {"read": "incremental", "cursor": "id", "exclude": ["price"]},
        "shop-orders": {"read": "full_refresh"},
    }
    secret = {"password": "${env:CONNECTORS_SECRET}"}
    house.connect("base", {**access, **secret}, _POSTGRES, protocol="singer", streams=streams)
    checks = {name: house.json("check", f"{name}.yaml") for name in ("files", "base")}
    assert {told["status"] for told in checks.values()} == {"succeeded"}
    reports = {name: house.json("sync", f"{name}.yaml") for name in ("files", "batches", "base")}
    left = [path.name for path in handed_over.iterdir()]
    file.write_text("".join(json.dumps(row) + "\n" for row in [*_PEOPLE, {"id": 3, "name": "new"}]))
    _insert_users(database, _USERS + 1, _USERS + _NEW_USERS)
    database.execute("DELETE FROM shop.orders WHERE id > 150")
    reports |= {f"{name} again": house.json("sync", f"{name}.yaml") for name in ("files", "base")}
    names = ["files.people", "batches.people", "base.shop-users", "base.shop-orders"]
    tables = house.tables(names, keyed=names, whole=["files.people", "base.shop-orders"])
    [log] = (house.folder / ".airbyte-proto" / "logs" / "batches").glob("*.log")
    return Landed(reports, tables, left, log.read_text())


def _insert_users(connection: psycopg.Connection, first: int, last: int) -> None:
    connection.execute(
        "INSERT INTO shop.users SELECT n, 'user ' || n, n * 1.25, timestamptz '2024-01-01Z' + n * interval '1 min',"
        " point(n, n) FROM generate_series(%s::int, %s::int) n",
        (first, last),
    )


def test_every_row_of_a_tap_is_there_once(landed: Landed) -> None:
    for name, report in landed.reports.items():
        for stream, told in report["streams"].items():
            assert told["status"] == "complete", (name, stream, told)
            assert (told["emitted"], told["rejected"]) == (told["committed"], 0), (name, stream)
            assert (told["ignored_fields"], told["changed"]) == ({}, 0), (name, stream)
    counts = {name: (table.rows, table.keys) for name, table in landed.tables.items()}
    users = _USERS + _NEW_USERS
    people = {"files.people": (3, 3), "batches.people": (2, 2)}
    assert counts == {**people, "base.shop-users": (users, users), "base.shop-orders": (150, 150)}


def test_what_a_tap_hands_over_in_files_is_gone_once_it_has_landed(landed: Landed) -> None:
    assert landed.left_in_files == []
    assert '"metric":"batch_count","value":1' in landed.batch_log


def test_a_second_sync_goes_on_from_the_bookmark(landed: Landed) -> None:
    assert landed.committed("base") == {"shop-users": _USERS, "shop-orders": 200}
    # The last row of all is sent again: taps read from the bookmark on, itself included.
    assert landed.committed("base again") == {"shop-users": _NEW_USERS + 1, "shop-orders": 150}
    state = landed.reports["base again"]["streams"]["shop-users"]["state"]
    assert (state["replication_key"], state["replication_key_value"]) == ("id", _USERS + _NEW_USERS)


def test_values_are_those_of_the_source(landed: Landed, database: psycopg.Connection) -> None:
    people = {row["id"]: row for row in landed.tables["files.people"].content}
    assert {name: people[1][name] for name in ("name", "price", "tags")} == {
        "name": "Zürich 🏔",
        "price": 12.34,
        "tags": '["a",null]',
    }
    assert (people[1]["at"], people[3]["name"], people[3]["price"]) == ("2024-02-29T12:00:00.500000Z", "new", None)
    orders = {row["id"]: row["weight"] for row in landed.tables["base.shop-orders"].content}
    assert orders == dict(database.execute("SELECT id, weight FROM shop.orders").fetchall())
