"""Real taps of a real PostgreSQL, each table read another way, twice: every value beside what a query says of it."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.support.needs import lacks
from tests.support.postgres import PostgresServer
from tests.support.tap_home import TapHome

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(300)]

_COLUMNS = {
    "id": "bigint PRIMARY KEY",
    "changed_at": "timestamptz NOT NULL",
    "price": "numeric(20, 4)",
    "real_": "double precision",
    "small": "smallint",
    "flag": "boolean",
    "name": "text",
    "day": "date",
    "local": "timestamp",
    "at": "timestamptz",
    "clock": "time",
    "blob": "bytea",
    "doc": "jsonb",
    "tags": "text[]",
    "counts": "integer[]",
    "who": "uuid",
    "Mixed Case!": "varchar(10)",
}
_ROWS = r"""
(1, '2024-01-01Z', 12.3400, 1e300, 7, true, E'Zoë 🦊\n"q" \\', '2024-02-29', '2024-02-29 12:00:00.123456',
  '2024-02-29 12:00:00.123456+02:00', '12:34:56.789', '\xdeadbeef00', '{"a": [1, 2.5, null], "é": {}}',
  ARRAY['a', 'b, "c"', NULL, ''], ARRAY[1, NULL, 3], 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'Ü'),
(2, '2024-01-02Z', -0.0001, 0.1, -32768, false, '', '0001-01-01', '0001-01-01', '1970-01-01Z', '00:00', '\x',
  '[]', '{}', '{}', '00000000-0000-0000-0000-000000000000', ''),
(3, '2024-01-03Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(9007199254740993, '2024-01-04 00:00:00.000001Z', 9999999999999999.9999, -1.5e-300, 32767, true, '日本語',
  '9999-12-31', '9999-12-30 23:59:59.999', '9999-12-30 12:00:00Z', '23:59:59.999999', '\x00ff', '"text"',
  ARRAY['ü'], ARRAY[-2147483648, 2147483647], 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'm')
"""
_MORE = "INSERT INTO zoo.{table} (id, changed_at, price) VALUES (10, '2024-02-01Z', 1.5), (11, '2024-02-02Z', 2.5)"
_UPDATE = "UPDATE zoo.{table} SET name = 'new', changed_at = '2024-03-01Z' WHERE id = 2"
_DELETION = "DELETE FROM zoo.{table} WHERE id = 3"
Meant = Callable[[Any], Any]


def _instant(at: datetime | date | None) -> datetime | None:
    """A time of no zone is sent as if it were UTC's, and a day as its midnight."""
    if at is None:
        return None
    at = at if isinstance(at, datetime) else datetime.combine(at, time())
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def _itself(value: Any) -> Any:
    return value


def _nothing(_: Any) -> None:
    return None


def _listed(items: list[Any] | None) -> list[Any]:
    return items or []


def _each_read(texts: list[str | None]) -> list[Any]:
    return [None if text is None else json.loads(text) for text in texts]


_USUAL: Mapping[str, Meant] = {
    "changed_at": _instant,
    "price": float,
    "local": _instant,
    "at": _instant,
    "clock": time.isoformat,
    "blob": bytes.hex,
    "who": str,
}


class _Tap(NamedTuple):
    """`lacks` are columns that it cannot read. `means` tells how it shows values, nulls too, where that is another way
    than the usual, and `reads` how they are read back from the table. `in_log` is how it shows those of a row that the
    log tells of, and `noted` what is noted of the one that the tests update."""

    package: str
    config: Mapping[str, Any]
    means: Mapping[str, Meant] = {}
    reads: Mapping[str, Meant] = {}
    lacks: frozenset[str] = frozenset()
    in_log: Mapping[str, Meant] = {}
    noted: str = ""
    slot: str = ""


_TAPS = {
    "meltano": _Tap(
        "meltanolabs-tap-postgres==0.10.0",
        {
            "database": "postgres",
            "filter_schemas": ["zoo"],
            "replication_idle_exit_seconds": 1,
            "log_based_single_connection": True,
            "auto_bootstrap_log_based": True,
        },
        reads={"doc": json.loads},
        # It hands on what the log has: documents and arrays as text, and no column for lists holds that.
        in_log={"doc": json.dumps, "counts": _nothing},
        noted="counts: NULLED",
        slot="tappostgres",
    ),
    "pipelinewise": _Tap(
        "pipelinewise-tap-postgres==2.1.0",
        {"dbname": "postgres", "filter_schemas": "zoo", "tap_id": "zoo", "logical_poll_total_seconds": 1},
        # It calls a day its midnight, and an array that is null an empty one. What is in arrays lands as text: their
        # schemas lead back to themselves.
        means={"day": _instant, "price": _itself, "tags": _listed, "counts": _listed},
        reads={"doc": json.loads, "tags": _each_read, "counts": _each_read},
        lacks=frozenset({"blob"}),
        # In the log's JSON numbers are floats to it: -0.0001 comes with 67 digits.
        noted="price: TRUNCATED",
        slot="pipelinewise_postgres_zoo",
    ),
}


class _Zoo:
    """The schema `zoo` as the tap reads it, and as a query does."""

    def __init__(self, tap: _Tap, home: TapHome, port: int, streams: Mapping[str, Any]) -> None:
        self._tap = tap
        self._home = home
        access = {"host": "127.0.0.1", "port": port, "user": "tester", "password": "unasked"}
        home.connect({**access, **tap.config}, {f"zoo-{name}": modes for name, modes in streams.items()})

    def sync(self) -> dict[str, int]:
        """How many rows of each table were committed."""
        return {name.removeprefix("zoo-"): committed for name, committed in self._home.sync().items()}

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self._home.rows(f"zoo-{table}")

    def values(self, table: str) -> list[dict[str, Any]]:
        """The source's columns, each value as the source has it, as far as the tap tells."""
        columns = [name for name in _COLUMNS if name not in self._tap.lacks]
        reads = self._tap.reads
        return [
            {name: row[name] if row[name] is None else reads.get(name, _itself)(row[name]) for name in columns}
            for row in self.rows(table)
        ]

    def meant(self, database: psycopg.Connection[Any], table: str) -> list[dict[str, Any]]:
        cursor = database.execute(f"SELECT * FROM zoo.{table} ORDER BY id".encode())
        names = [each.name for each in cursor.description or ()]
        kept = [name for name in names if name not in self._tap.lacks]
        found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return [{name: self._meant(name, row[name]) for name in kept} for row in found]

    def _meant(self, name: str, value: Any) -> Any:
        if name in self._tap.means:
            return self._tap.means[name](value)
        return value if value is None else _USUAL.get(name, _itself)(value)


Connect = Callable[..., _Zoo]


@pytest.fixture(params=_TAPS)
def tap(request: pytest.FixtureRequest) -> _Tap:
    return _TAPS[request.param]


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_server.conninfo(), autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.execute("CREATE SCHEMA zoo")
        yield connection
        connection.execute("DROP SCHEMA zoo CASCADE")


@pytest.fixture
def connect(tap: _Tap, open_tap: Callable[..., TapHome], postgres_server: PostgresServer) -> Connect:
    def connected(**streams: Mapping[str, Any]) -> _Zoo:
        home = open_tap({"package": tap.package, "executable": "tap-postgres"})
        return _Zoo(tap, home, postgres_server.port, streams)

    return connected


def _fill(database: psycopg.Connection[Any], table: str) -> None:
    columns = ", ".join(f'"{name}" {kind}' for name, kind in _COLUMNS.items())
    database.execute(f"CREATE TABLE zoo.{table} ({columns})".encode())
    database.execute(f"INSERT INTO zoo.{table} VALUES {_ROWS}".encode())


def _change(database: psycopg.Connection[Any], table: str, *statements: str) -> None:
    for statement in statements:
        database.execute(statement.format(table=table).encode())


@pytest.mark.everyday("pipelinewise-folders")
def test_every_value_is_that_of_the_source_and_the_second_sync_adds_what_is_new(
    connect: Connect, database: psycopg.Connection[Any]
) -> None:
    for table in ("whole", "newer"):
        _fill(database, table)
    zoo = connect(whole={"read": "full_refresh"}, newer={"read": "incremental", "cursor": "changed_at"})
    assert zoo.sync() == {"whole": 4, "newer": 4}
    for table in ("whole", "newer"):
        assert zoo.values(table) == zoo.meant(database, table)
    _change(database, "whole", _MORE, _UPDATE, _DELETION)
    _change(database, "newer", _MORE, _UPDATE)
    # The row at the bookmark is sent again: taps read from there on, itself included.
    assert zoo.sync() == {"whole": 5, "newer": 4}
    for table in ("whole", "newer"):
        assert zoo.values(table) == zoo.meant(database, table)
        assert [row["_airbyte_meta"]["changes"] for row in zoo.rows(table)] == [[]] * len(zoo.rows(table))


@pytest.fixture
def logged(tap: _Tap, database: psycopg.Connection[Any]) -> Iterator[str]:
    """A table whose changes are kept for the tap from now on."""
    _fill(database, "logged")
    try:
        database.execute("SELECT pg_create_logical_replication_slot(%s, 'wal2json')", (tap.slot,))
    except psycopg.errors.UndefinedFile:
        lacks("wal2json", "the server has no wal2json (Debian: apt-get install postgresql-15-wal2json)")
    yield "logged"
    database.execute("SELECT pg_drop_replication_slot(%s)", (tap.slot,))


@pytest.mark.everyday("pipelinewise-folders-append_dedup")
@pytest.mark.parametrize("write", ["append_dedup", "soft_delete"])
def test_what_the_log_tells_lands_and_what_was_deleted_goes(
    tap: _Tap, write: str, logged: str, connect: Connect, database: psycopg.Connection[Any]
) -> None:
    zoo = connect(logged={"read": "incremental", "write": write})
    assert zoo.sync() == {"logged": 4}
    assert zoo.values(logged) == zoo.meant(database, logged)
    _change(database, logged, _MORE, _UPDATE, _DELETION)
    meant = {row["id"]: row for row in zoo.meant(database, logged)}
    meant[2].update({name: shows(meant[2][name]) for name, shows in tap.in_log.items()})
    for again in (False, True):
        committed = zoo.sync()[logged]
        # The update, the deletion, and two new rows; some or all of them again, for neither goes by its bookmark alone.
        assert again or committed == 4
        rows = {row["id"]: row for row in zoo.rows(logged)}
        gone = {number for number, row in rows.items() if row["_sdc_deleted_at"] is not None}
        assert gone == ({3} if write == "soft_delete" else set())
        assert {row["id"]: row for row in zoo.values(logged) if row["id"] not in gone} == meant
        noted = {number: row["_airbyte_meta"]["changes"] for number, row in rows.items()}
        assert [f"{each['field']}: {each['change']}" for each in noted.pop(2)] == [tap.noted]
        assert not any(noted.values())
