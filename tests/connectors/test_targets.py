"""Real Singer targets from the package index: what stands at the destination is what the table has, value by value."""

import csv
import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pyarrow as pa
import pytest

from tests.support.postgres import PostgresServer
from tests.sync.push.pushed_table import PushedTable, Row

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(300)]

_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("score", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("made_at", pa.timestamp("us", "UTC")),
        ("is_new", pa.bool_()),
    ]
)
_MADE = datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)
_ROWS: list[Row] = [
    {"id": 1, "name": 'Zoë 🦊 "q" \\ \n,', "score": 0.1, "price": Decimal("12.30"), "day": date(2024, 2, 29)},
    {"id": 2, "name": "", "score": -1.5, "price": Decimal("-0.01"), "day": date(1969, 12, 31)},
    {"id": 3, "name": None, "score": None, "price": None, "day": None},
    {"id": 9007199254740993, "name": "big", "score": 2.5, "price": Decimal("9999999999.99"), "day": date(2000, 1, 1)},
]
_ALL = [{**row, "made_at": _MADE if row["name"] else None, "is_new": row["id"] % 2 == 0} for row in _ROWS]
_CHANGED = [{**_ALL[0], "name": "renamed"}, *_ALL[1:], {**_ALL[1], "id": 5}]

OpenTarget = Callable[..., PushedTable]


@pytest.fixture
def target(quick_folder: Path, connector_environments: Path) -> OpenTarget:
    def opened(package: str, executable: str, config: Row, **more: Any) -> PushedTable:
        table = PushedTable(quick_folder, protocol="singer", schema=_SCHEMA, **more)
        table.settings.environments_folder.symlink_to(connector_environments)
        table.launch = {"kind": "pypi", "package": package, "executable": executable}
        table.config = config
        table.fill(_ALL)
        return table

    return opened


def _push_twice_then_changes(table: PushedTable) -> None:
    first, nothing = table.contacts(), table.contacts()
    assert (first.error, first.status, first.acknowledged, nothing.sent) == (None, "complete", 4, 0)
    table.fill(_CHANGED)
    second = table.contacts()
    assert (second.planned.added, second.planned.changed, second.acknowledged) == (1, 1, 2)


def test_target_jsonl(target: OpenTarget, quick_folder: Path) -> None:
    out = quick_folder / "out"
    out.mkdir()
    _push_twice_then_changes(target("target-jsonl==0.1.4", "target-jsonl", {"destination_path": str(out)}))
    rows = [json.loads(line, parse_float=Decimal) for file in sorted(out.iterdir()) for line in file.open()]
    assert len(rows) == 6
    held = {row["id"]: row for row in rows}
    assert held[1]["name"] == "renamed"
    assert held[9007199254740993]["price"] == Decimal("9999999999.99")
    assert held[9007199254740993]["made_at"] == "2024-02-29T12:00:00.123456Z"
    assert held[3] == {
        "id": 3,
        "name": None,
        "score": None,
        "price": None,
        "day": None,
        "made_at": None,
        "is_new": False,
    }


@pytest.mark.nightly
def test_target_csv(target: OpenTarget, quick_folder: Path) -> None:
    out = quick_folder / "out"
    out.mkdir()
    config = {"output_path": str(out), "file_naming_scheme": "{stream_name}.csv"}
    table = target("meltanolabs-target-csv==0.5.0", "target-csv", config)
    first = table.contacts()
    assert (first.error, first.acknowledged) == (None, 4)
    with (out / "contacts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [str(row["id"]) for row in _ALL]
    assert rows[0]["name"] == _ALL[0]["name"]


def test_a_target_that_writes_what_it_has_at_its_end_is_let_do_so(target: OpenTarget, quick_folder: Path) -> None:
    out = quick_folder / "out"
    out.mkdir()
    config = {"output_path": str(out), "file_naming_scheme": "{stream_name}-{timestamp}.csv"}
    table = target("meltanolabs-target-csv==0.5.0", "target-csv", config)
    rows = [{**_ALL[0], "id": number} for number in range(60)]
    table.fill(rows)
    table.options |= {"rate": {"rows_per_second": 2}, "batch": {"rows": 2}}
    table.grace_seconds = 60.0  # It takes as long as it needs: on a busy machine more than the usual five.
    report = table.run_until_sent(20)
    assert (report.status, report.unknown) == ("cancelled", 0)
    assert 0 < report.acknowledged < len(rows)
    del table.options["rate"]
    assert table.contacts().acknowledged == len(rows) - report.acknowledged
    written = [int(row["id"]) for file in out.iterdir() for row in csv.DictReader(file.open(newline=""))]
    assert sorted(written) == list(range(60))


@pytest.mark.nightly
def test_target_duckdb(target: OpenTarget, quick_folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = quick_folder / "db.duckdb"
    config = {"filepath": str(path), "default_target_schema": "main"}
    table = target("target-duckdb==0.8.0", "target-duckdb", config)
    # 0.8.0 loses a row that it updates, and acknowledges it, in a table with a timestamp: by itself, too.
    table.push["map"] = {name: name for name in _SCHEMA.names if name != "made_at"}
    _push_twice_then_changes(table)
    with duckdb.connect(str(path)) as found:
        rows = found.sql("SELECT id, name, score, price, day FROM main.contacts ORDER BY id").fetchall()
    assert [row[0] for row in rows] == [1, 2, 3, 5, 9007199254740993]
    assert rows[0][1] == "renamed"


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("package", "executable", "schema_key"),
    [
        ("meltanolabs-target-postgres==0.8.1", "target-postgres", "default_target_schema"),
        pytest.param(
            "pipelinewise-target-postgres==2.1.2",
            "target-postgres",
            "default_target_schema",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_targets_of_postgresql(
    target: OpenTarget, postgres_server: PostgresServer, package: str, executable: str, schema_key: str
) -> None:
    schema = postgres_server.new_schema()
    config = {**_database(postgres_server), schema_key: schema}
    _push_twice_then_changes(target(package, executable, config))
    rows = _rows(postgres_server, f"SELECT id, name, score, price, is_new, made_at FROM {schema}.contacts ORDER BY id")
    meant = sorted(_CHANGED, key=lambda row: row["id"])
    # The targets choose the types of their columns: a number may be numeric or of double precision, a time may be in
    # the server's own zone. One of them writes empty text as NULL.
    assert [(row[1] or None, row[4], *map(_number, (row[0], row[2], row[3]))) for row in rows] == [
        (each["name"] or None, each["is_new"], *map(_number, (each["id"], each["score"], each["price"])))
        for each in meant
    ]
    zone = ZoneInfo(_rows(postgres_server, "SELECT current_setting('TimeZone')")[0][0])
    for row, each in zip(rows, meant, strict=True):
        times = (None,) if row[5] is None else (row[5].replace(tzinfo=UTC), row[5].replace(tzinfo=zone))
        assert each["made_at"] in times


_SDK, _PIPELINEWISE = "meltanolabs-target-postgres==0.8.1", "pipelinewise-target-postgres==2.1.2"


@pytest.mark.nightly
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("package", "options", "after_removal", "after_overwrite"),
    [
        (_SDK, {}, "marked", "marked"),
        (_SDK, {"hard_delete": True}, "marked", "gone"),
        (_SDK, {"add_record_metadata": False, "activate_version": False}, "emptied", "emptied"),
        (_PIPELINEWISE, {}, "marked", "marked"),
        (_PIPELINEWISE, {"hard_delete": True}, "gone", "gone"),
    ],
)
def test_a_row_that_a_mirror_removes(
    target: OpenTarget,
    postgres_server: PostgresServer,
    package: str,
    options: Row,
    after_removal: str,
    after_overwrite: str,
) -> None:
    schema = postgres_server.new_schema()
    config = {**_database(postgres_server), "default_target_schema": schema, **options}
    table = target(package, "target-postgres", config, mode="mirror")

    def fate_of_1() -> str:
        found = _rows(
            postgres_server, f"SELECT name, to_jsonb(c)->>'_sdc_deleted_at' FROM {schema}.contacts c WHERE id = 1"
        )
        return "gone" if not found else "marked" if found[0][1] else "emptied" if found[0][0] is None else "there"

    assert (table.contacts().error, fate_of_1()) == (None, "there")
    table.fill(_ALL[1:])
    report = table.contacts()
    assert (report.error, report.planned.removed, report.acknowledged) == (None, 1, 1)
    assert fate_of_1() == after_removal
    table.push["mode"] = "overwrite"
    assert (table.contacts().error, fate_of_1()) == (None, after_overwrite)
    table.push["mode"] = "mirror"
    table.fill(_ALL)
    again = table.contacts()
    assert (again.error, again.sent, fate_of_1()) == (None, 1, "there")


def _database(server: PostgresServer) -> Row:
    return {
        "host": "127.0.0.1",
        "port": server.port,
        "user": "tester",
        "password": "none",
        "database": "postgres",
        "dbname": "postgres",
    }


def _number(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))


def _rows(server: PostgresServer, sql: str) -> Sequence[Any]:
    with psycopg.connect(server.conninfo()) as connection:
        return connection.execute(sql).fetchall()
