"""Today's code opens a home of the previous release, recovers it and continues it: no row is lost, none comes twice.

If a test fails after a name was changed, that name is stored: give the field its old one back by
`msgspec.field(name=...)`. Do not make the homes anew: users have them.
"""

import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import chdir, closing, redirect_stdout
from io import StringIO
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.checkpoints.sql.load_json import (
    committed_from_json,
    committed_to_json,
    load_from_json,
    load_to_json,
)
from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.stream_profile import StreamProfile
from dagster_airbyte_proto.tables.parquet.log import ENTRY_DECODER
from dagster_airbyte_proto.testing.fake_source import record_data
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.previous_release.home import (
    BOOKS,
    BOOKS_ANNOUNCED,
    CUSTOMERS,
    DAYS,
    DELETED_EVERY,
    FORMATS,
    KEYS,
    ORDERS,
    PRICES,
    USERS,
    VISITS,
    PreviousHome,
)

_PROGRAM = (sys.executable, "-m", "dagster_airbyte_proto")
_JVM_FORMATS = {"iceberg": "lake", "delta": "spark_catalog"}
"""The formats that only Spark reads, with the names of their catalogs."""
# Each command starts a JVM: minutes in all. That stored names are kept is tested for every format each time.
_JVM_MARKS = (pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.nightly)
_OPENED = [pytest.param(each, marks=_JVM_MARKS if each in _JVM_FORMATS else ()) for each in FORMATS]
_SIZE = 7
_DAY, _RECORDS_OF_DAY = min(DAYS), 4

Row = tuple[int, int, str, str | None]


class Table(NamedTuple):
    """The rows that a table must have: `id`, `key`, `name`, and `column` as text, where there is one to check."""

    rows: list[Row]
    column: str = ""


@pytest.fixture
def home(request: pytest.FixtureRequest) -> Iterator[PreviousHome]:
    opened = PreviousHome(request.param)
    with opened.locked():
        opened.unpack()
        yield opened


def answer(home: PreviousHome, *words: str) -> Any:
    """In a process of its own where a JVM is needed, for a process has one session; else in this one, to save time."""
    if home.format in _JVM_FORMATS:
        ended = home.run(_PROGRAM, *words, "--json")
        assert ended.returncode == 0, (words, ended.stdout.decode(), ended.stderr.decode())
        return json.loads(ended.stdout)
    with chdir(home.folder), redirect_stdout(StringIO()) as said:
        code = main(home.words(*words, "--json"))
    assert code == 0, (words, said.getvalue())
    return json.loads(said.getvalue())


def sync(home: PreviousHome, connection: str, *options: str) -> Any:
    report = answer(home, "sync", home.connection(connection), *options)
    assert report["warnings"] == []
    return report


def counts(report: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    return {name: (stream["emitted"], stream["committed"]) for name, stream in report["streams"].items()}


def new(**records: int) -> dict[str, tuple[int, int]]:
    return {name: (number, number) for name, number in records.items()}


def positions(home: PreviousHome, connection: str) -> dict[str, int]:
    """The position of each stream, whether it has its own state or a part of a shared one."""
    found: dict[str, int] = {}
    for state in answer(home, "state", "show", connection)["states"]:
        value = state["state"]
        if state["scope"] == "stream":
            found[state["stream"]] = value["next"]
        else:
            parts = value["stream_states"]
            found |= {part["stream_descriptor"]["name"]: part["stream_state"]["next"] for part in parts}
    return found


def load_statuses(home: PreviousHome, connection: str) -> list[str]:
    """The statuses of the loads, newest first."""
    return [load["status"] for load in answer(home, "loads", "list", connection)["loads"]]


@pytest.mark.everyday("parquet", "folder")
@pytest.mark.parametrize("home", _OPENED, indirect=True)
def test_states_and_loads_of_the_previous_release_are_shown(home: PreviousHome) -> None:
    connections = {each["connection"]: each["states"] for each in answer(home, "state", "list")["connections"]}
    others = [*(["books"] if home.has_branches else []), *(["days"] if home.has_slices else [])]
    assert sorted(connections) == sorted(["shop", "market", *others])
    keyed = {"customers": CUSTOMERS[0]} if home.has_keys else {}
    assert positions(home, "shop") == {"users": USERS[0], **keyed}
    assert positions(home, "market") == {"orders": ORDERS[0], "visits": VISITS[0]}
    assert load_statuses(home, "shop") == ["announced", "done"]
    assert load_statuses(home, "market") == ["done"]
    announced = answer(home, "loads", "list", "shop")["loads"][0]["load_id"]
    parts = {part["stream"]: part for part in answer(home, "loads", "show", announced)["parts"]}
    assert {name: part["rows"] for name, part in parts.items()} == {
        "users": USERS[1] - USERS[0],
        "prices": PRICES[1],
        **({"customers": CUSTOMERS[1] - CUSTOMERS[0]} if home.has_keys else {}),
    }
    assert all(part["files"] for part in parts.values())
    if home.has_branches:
        assert load_statuses(home, "books") == ["announced", "done", "done"]


@pytest.mark.parametrize("home", FORMATS, indirect=True)
def test_stored_json_keeps_the_names_of_the_previous_release(home: PreviousHome) -> None:
    """A field of another name gets its default without a word, where it has one."""
    with closing(sqlite3.connect(home.path / "state.db")) as database:
        loads = database.execute("SELECT body, committed FROM airbyte_proto_loads").fetchall()
        profiles = database.execute("SELECT body FROM airbyte_proto_shapes").fetchall()
    assert loads and profiles
    for body, committed in loads:
        assert_kept(body, load_to_json(load_from_json(body)))
        assert_kept(committed, committed_to_json(committed_from_json(committed)))
    for (body,) in profiles:
        assert_kept(body, msgspec.json.encode(msgspec.json.decode(body, type=StreamProfile)))
    for entry in home.warehouse.glob("*/*/log/[0-9]*.json"):
        assert_kept(entry.read_bytes(), msgspec.json.encode(ENTRY_DECODER.decode(entry.read_bytes())))


def assert_kept(before: str | bytes, now: str | bytes) -> None:
    """All that an older version wrote is written again. A newer one may write more."""
    remaining = [(json.loads(before), json.loads(now))]
    while remaining:
        old, new = remaining.pop()
        if isinstance(old, dict) and isinstance(new, dict):
            assert set(old) <= set(new)
            remaining += [(value, new[name]) for name, value in old.items()]
        elif isinstance(old, list) and isinstance(new, list):
            remaining += zip(old, new, strict=True)
        else:
            assert old == new


@pytest.mark.everyday("parquet", "folder")
@pytest.mark.parametrize("home", _OPENED, indirect=True)
def test_a_home_of_the_previous_release_is_recovered_and_continued(home: PreviousHome) -> None:
    before = {stream: commit_labels(home, stream) for stream in home.shop_streams(0)}
    tables = {**continue_shop(home), **continue_market(home)}
    if home.has_branches:
        tables |= continue_books(home)
    if home.has_slices:
        tables |= continue_days(home)
    assert rows_found(home, tables) == {name: table.rows for name, table in tables.items()}
    for stream, labels in before.items():
        now = commit_labels(home, stream)
        assert labels and [name for name in labels if now[name] <= labels[name]] == [], stream


def commit_labels(home: PreviousHome, stream: str) -> Counter[str]:
    """The names of what we note in the commits to a table of `shop`, each with the number of commits that have it."""
    table = home.warehouse / "shop" / stream
    noted: list[dict[str, Any]]
    if home.format == "iceberg":
        newest = max(table.glob("metadata/v*.metadata.json"), key=lambda path: int(path.name.split(".")[0][1:]))
        noted = [snapshot["summary"] for snapshot in json.loads(newest.read_bytes())["snapshots"]]
    elif home.format == "delta":
        lines = [line for path in table.glob("_delta_log/*.json") for line in path.read_text().splitlines()]
        infos = [json.loads(line).get("commitInfo", {}) for line in lines]
        noted = [json.loads(info["userMetadata"]) for info in infos if "userMetadata" in info]
    else:
        return Counter(name for path in table.glob("log/[0-9]*.json") for name in json.loads(path.read_bytes()))
    # The number of rows is noted only where it is known.
    ours = (name for labels in noted for name in labels if name.startswith("airbyte-proto."))
    return Counter(name for name in ours if name != "airbyte-proto.table-rows")


def continue_shop(home: PreviousHome) -> dict[str, Table]:
    """Recovers the announced load. Then the source has more records, and a column that the table lacks."""
    streams = home.shop_streams(2)
    streams["users"] |= {"values": {"size": _SIZE}, "properties": {"size": {"type": "integer"}}}
    home.offer("shop", streams, state_every=3)
    assert answer(home, "recover", "shop")["recovered_loads"] == 1
    keyed = {"customers": CUSTOMERS[1]} if home.has_keys else {}
    assert positions(home, "shop") == {"users": USERS[1], **keyed}
    report = sync(home, "shop")
    keyed = {"customers": CUSTOMERS[2] - CUSTOMERS[1]} if home.has_keys else {}
    assert counts(report) == new(users=USERS[2] - USERS[1], prices=PRICES[2], **keyed)
    assert (report["recovered_loads"], report["streams"]["prices"]["deleted"]) == (0, PRICES[1])
    # The columns of the streams are those that the previous release has noted, but for the new one.
    changes = {
        name: [(change["what"], change["column"]) for change in stream["schema_changes"]]
        for name, stream in report["streams"].items()
    }
    assert changes == {name: [("column_added", "size")] if name == "users" else [] for name in changes}
    keyed = {"customers": CUSTOMERS[2]} if home.has_keys else {}
    assert positions(home, "shop") == {"users": USERS[2], **keyed}
    assert load_statuses(home, "shop") == ["done", "done", "done"]
    customers = [number for number in range(CUSTOMERS[2] - KEYS, CUSTOMERS[2]) if (number + 1) % DELETED_EVERY]
    return {
        "shop.users": Table(
            rows_of("users", range(USERS[1])) + rows_of("users", range(USERS[1], USERS[2]), f"{_SIZE}"), "size"
        ),
        "shop.prices": Table(rows_of("prices", range(PRICES[2]), "3"), "_airbyte_generation_id"),
        **({"shop.customers": Table(rows_of("customers", customers, keys=KEYS))} if home.has_keys else {}),
    }


def continue_market(home: PreviousHome) -> dict[str, Table]:
    """Only the config that the connector has rewritten names the scenario with more records."""
    home.offer("market-stored", home.market_streams(2), state="global", state_every=4)
    report = sync(home, "market")
    assert (counts(report), report["recovered_loads"]) == (
        new(orders=ORDERS[2] - ORDERS[0], visits=VISITS[2] - VISITS[0]),
        0,
    )
    assert positions(home, "market") == {"orders": ORDERS[2], "visits": VISITS[2]}
    return {
        "market.orders": Table(rows_of("orders", range(ORDERS[2]))),
        "market.visits": Table(rows_of("visits", range(VISITS[2]))),
    }


def continue_books(home: PreviousHome) -> dict[str, Table]:
    """Continues the generation after the load that was announced, and publishes it."""
    # A generation is continued within a day, and this one is older.
    with closing(sqlite3.connect(home.path / "state.db", isolation_level=None)) as database:
        changed = database.execute(
            "UPDATE airbyte_proto_open_generations SET changed_at = strftime('%Y-%m-%d %H:%M:%f000', 'now')"
        )
        assert changed.rowcount == 1
    home.offer("books", home.books_streams(2), state_every=4)
    report = sync(home, "books")
    assert (counts(report), report["recovered_loads"]) == (new(books=BOOKS[2] - BOOKS_ANNOUNCED), 1)
    stream = report["streams"]["books"]
    assert (stream["generation"], stream["state_before"], stream["deleted"]) == (2, {"next": BOOKS_ANNOUNCED}, BOOKS[0])
    assert load_statuses(home, "books") == ["done"] * 4
    return {"books.books": Table(rows_of("books", range(BOOKS[2]), "2"), "_airbyte_generation_id")}


def continue_days(home: PreviousHome) -> dict[str, Table]:
    """Replaces one partition, and leaves the other as it was."""
    home.offer(_DAY, {"sales": {"records": _RECORDS_OF_DAY}})
    report = sync(home, "days", "--partition", _DAY)
    assert counts(report) == new(sales=_RECORDS_OF_DAY)
    assert report["streams"]["sales"]["deleted"] == DAYS[_DAY]
    days = {**DAYS, _DAY: _RECORDS_OF_DAY}
    rows = [row for day, records in days.items() for row in rows_of("sales", range(records), day)]
    return {"days.sales": Table(sorted(rows), "_airbyte_partition")}


def rows_of(stream: str, ids: range | list[int], value: str | None = None, *, keys: int | None = None) -> list[Row]:
    written = {} if keys is None else {"keys": keys}
    records = (record_data(stream, written, number) for number in ids)
    return [(record["id"], record["key"], record["name"], value) for record in records]


def rows_found(home: PreviousHome, tables: Mapping[str, Table]) -> dict[str, list[Row]]:
    """The rows of all tables, in order."""
    if home.format in _JVM_FORMATS:
        return rows_queried(home, tables)
    found = {}
    for name, table in tables.items():
        read = table_read(home, *name.split("."))
        more = read.column(table.column).cast(pa.string()).to_pylist() if table.column else [None] * read.num_rows
        columns = (read.column(column).to_pylist() for column in ("id", "key", "name"))
        found[name] = sorted(zip(*columns, more, strict=True), key=lambda row: (row[0], row[3] or ""))
    return found


def rows_queried(home: PreviousHome, tables: Mapping[str, Table]) -> dict[str, list[Row]]:
    """By one query, for each starts a JVM."""
    catalog = _JVM_FORMATS[home.format]
    queries = [
        f"SELECT '{name}' AS place, id, key, name, CAST({table.column or 'NULL'} AS STRING) AS more"
        f" FROM {catalog}.{name}"
        for name, table in tables.items()
    ]
    found: dict[str, list[Row]] = {name: [] for name in tables}
    for name, *row in answer(home, "query", f"{' UNION ALL '.join(queries)} ORDER BY place, id, more")["rows"]:
        found[name].append((row[0], row[1], row[2], row[3]))
    return found


def table_read(home: PreviousHome, namespace: str, name: str) -> pa.Table:
    if home.format == "parquet":
        return pq.read_table(home.warehouse / namespace / name / "current")
    return FolderTables(home.warehouse).rows(TableName(namespace, name))
