"""The rows that a mirror removes, at real Singer targets, by a query of each: what docs/push.md says of them."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pyarrow as pa
import pytest
from psycopg.rows import dict_row

from tests.support.postgres import PostgresServer
from tests.sync.push.pushed_table import PushedTable, Row

pytestmark = [pytest.mark.connectors, pytest.mark.nightly, pytest.mark.timeout(900)]

_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
_GONE = (3, 4)

GONE, KEPT, KEPT_AND_MARKED, EMPTY, EMPTY_AND_MARKED = (
    "gone", "as it was", "as it was, and marked", "only its key", "only its key, and marked",
)  # fmt: skip


class Place(NamedTuple):
    """Where a target writes: a folder, and a server with a schema of its own."""

    folder: Path
    server: PostgresServer | None = None
    schema: str = ""


class Target(NamedTuple):
    """A target of the package index: its config, and how its rows are read, by their ids."""

    package: str
    executable: str
    config: Callable[[Place], Row]
    rows: Callable[[Place], list[Row]]


def _postgres_config(place: Place) -> Row:
    assert place.server is not None
    login = {"host": "127.0.0.1", "port": place.server.port, "user": "tester", "password": "none"}
    return {**login, "database": "postgres", "dbname": "postgres", "default_target_schema": place.schema}


def _rows_of_postgres(place: Place) -> list[Row]:
    assert place.server is not None
    with psycopg.connect(place.server.conninfo(), row_factory=dict_row) as connection:
        return connection.execute(f"SELECT * FROM {place.schema}.contacts".encode()).fetchall()


def _duckdb_config(place: Place) -> Row:
    return {"filepath": str(place.folder / "db.duckdb"), "default_target_schema": "main"}


def _rows_of_duckdb(place: Place) -> list[Row]:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(place.folder / "db.duckdb")) as found:
        rows = found.sql("SELECT * FROM main.contacts")
        return [dict(zip(rows.columns, each, strict=True)) for each in rows.fetchall()]


def _csv_config(place: Place) -> Row:
    (place.folder / "out").mkdir()
    names = {"file_naming_scheme": "{stream_name}-{timestamp}.csv", "timestamp_format": "%Y-%m-%dT%H%M%S.%f"}
    return {"output_path": str(place.folder / "out"), **names}


def _rows_of_csv(place: Place) -> list[Row]:
    """The last line of each key."""
    rows: dict[str, Row] = {}
    for file in sorted((place.folder / "out").iterdir()):
        with file.open(newline="") as opened:
            rows |= {row["id"]: row for row in csv.DictReader(opened)}
    return [*rows.values()]


_TARGETS = {
    "meltano postgres": Target(
        "meltanolabs-target-postgres==0.8.1", "target-postgres", _postgres_config, _rows_of_postgres
    ),
    "pipelinewise postgres": Target(
        "pipelinewise-target-postgres==2.1.2", "target-postgres", _postgres_config, _rows_of_postgres
    ),
    "csv": Target("meltanolabs-target-csv==0.5.0", "target-csv", _csv_config, _rows_of_csv),
    "duckdb": Target("target-duckdb==0.8.0", "target-duckdb", _duckdb_config, _rows_of_duckdb),
}
_HARD: Row = {"hard_delete": True}
_BARE: Row = {"add_record_metadata": False, "activate_version": False}
_MARKED: Row = {"add_record_metadata": True}


@pytest.mark.parametrize(
    ("name", "removals", "config", "expected"),
    [
        ("meltano postgres", "version", _HARD, GONE),
        ("meltano postgres", "version", {}, KEPT_AND_MARKED),
        ("meltano postgres", "version", _BARE, KEPT),
        ("meltano postgres", "deleted_at", _HARD, EMPTY_AND_MARKED),
        ("meltano postgres", "deleted_at", {}, EMPTY_AND_MARKED),
        ("meltano postgres", "deleted_at", _BARE, EMPTY),
        ("pipelinewise postgres", "version", _HARD, KEPT),
        ("pipelinewise postgres", "version", {}, KEPT),
        ("pipelinewise postgres", "deleted_at", _HARD, GONE),
        ("pipelinewise postgres", "deleted_at", {}, EMPTY_AND_MARKED),
        ("csv", "version", {}, KEPT),
        ("csv", "deleted_at", {}, EMPTY),
        ("csv", "deleted_at", _MARKED, EMPTY_AND_MARKED),
        ("duckdb", "version", {}, KEPT),
        # It reads its own CSV by DuckDB's guess whether the first line is a heading: of two rows the first was lost.
        ("duckdb", "deleted_at", {}, f"{KEPT}; {EMPTY_AND_MARKED}"),
    ],
)
def test_the_target_makes_of_removed_rows_what_the_docs_say(
    request: pytest.FixtureRequest,
    quick_folder: Path,
    connector_environments: Path,
    name: str,
    removals: str,
    config: Row,
    expected: str,
) -> None:
    target, place = _TARGETS[name], Place(quick_folder)
    if "postgres" in name:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        place = Place(quick_folder, server, server.new_schema())
    table = PushedTable(quick_folder, protocol="singer", schema=_SCHEMA, mode="mirror")
    table.settings.environments_folder.symlink_to(connector_environments)
    table.launch = {"kind": "pypi", "package": target.package, "executable": target.executable}
    table.push["removals"] = removals
    table.config = {**target.config(place), **config}
    for gone in ((), _GONE):
        people = {number: f"person {number}" for number in range(1, 21) if number not in gone}
        table.fill([{"id": number, "name": each} for number, each in people.items()])
        report = table.contacts()
        assert (report.status, report.error) == ("complete", None)
    held = {int(row["id"]): row for row in target.rows(place)}
    assert {number: held[number]["name"] for number in people} == people
    states = [_state(held.get(number), number) for number in _GONE]
    assert "; ".join(states if len(set(states)) > 1 else states[:1]) == expected
    assert table.contacts().planned.to_send == 0


def _state(row: Row | None, number: int) -> str:
    """What has become of a removed row."""
    if row is None:
        return GONE
    is_marked: Any = row.get("_sdc_deleted_at")
    if row["name"] == f"person {number}":
        return KEPT_AND_MARKED if is_marked else KEPT
    assert not row["name"]
    return EMPTY_AND_MARKED if is_marked else EMPTY
