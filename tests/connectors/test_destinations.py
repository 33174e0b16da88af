"""Real Airbyte destinations from the package index: what stands at the destination is what the table has, value by
value."""

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.errors import ConfigError
from tests.support.databases.vector_server import running_vector_server, write_tokenizer
from tests.support.postgres import PostgresServer
from tests.sync.push.pushed_table import PushedTable, Row

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(900)]

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
_ROWS = 200
_CHANGED = (7, 150)

OpenDestination = Callable[..., PushedTable]


def _person(number: int, name: str = "") -> Row:
    return {
        "id": number if number else 9007199254740993,
        "name": name or f'Zoë {number} 🦊 "q" \\ \n',
        "score": number + 0.1,
        "price": Decimal(number * 100 + 99) / 100,
        "day": date(1969, 12, 31) if number % 3 else date(2024, 2, 29),
        "made_at": datetime(2024, 2, 29, 12, 0, number % 60, 123456, UTC) if number % 4 else None,
        "is_new": number % 2 == 0,
    }


def _people(*, changed: Sequence[int] = (), gone: Sequence[int] = ()) -> list[Row]:
    return [_person(each, "renamed" if each in changed else "") for each in range(_ROWS) if each not in gone]


def _with_nulls(rows: Sequence[Row]) -> list[Row]:
    nulls = {"score": None, "price": None, "day": None}
    return [row if row["id"] % 5 else {**row, **nulls} for row in rows]


@pytest.fixture
def destination(quick_folder: Path, connector_environments: Path) -> OpenDestination:
    def opened(package: str, executable: str, config: Row, mode: str) -> PushedTable:
        table = PushedTable(quick_folder, protocol="airbyte", schema=_SCHEMA, mode=mode)
        table.settings.environments_folder.symlink_to(connector_environments)
        table.launch = {"kind": "pypi", "package": package, "executable": executable}
        table.config = config
        table.options = {"batch": {"rows": 50}}
        table.fill(_people())
        return table

    return opened


def _push_twice_then_one_percent(table: PushedTable, *, gone: Sequence[int] = ()) -> None:
    first, nothing = table.contacts(), table.contacts()
    assert (first.error, first.status, first.acknowledged, nothing.sent) == (None, "complete", _ROWS, 0)
    table.fill(_people(changed=_CHANGED, gone=gone))
    second = table.contacts()
    assert second.error is None
    planned = second.planned
    removed = planned.removed or 0  # None in a mode that removes nothing: nobody looked.
    assert (planned.added, planned.changed, removed) == (0, len(_CHANGED), len(gone))
    assert second.acknowledged == second.sent == len(_CHANGED) + len(gone)


@pytest.fixture
def ailake(destination: OpenDestination, quick_folder: Path) -> OpenDestination:
    def opened(mode: str) -> PushedTable:
        embedder = quick_folder / "embedder.py"
        embedder.write_text("import json, sys\nprint(json.dumps([[1.0, 0.0] for _ in json.load(sys.stdin)]))\n")
        config = {
            "table_base_path": str(quick_folder / "lake"),
            "embed_mode": "cmd",
            "embed_cmd": f"{sys.executable} {embedder}",
            "embedding_dim": 2,
            "text_field": "name",
        }
        return destination("airbyte-destination-ailake==0.1.16", "airbyte-destination-ailake", config, mode)

    return opened


@pytest.mark.nightly
def test_ailake(ailake: OpenDestination, quick_folder: Path) -> None:
    _push_twice_then_one_percent(ailake("append"))
    written = [_as_ailake_writes(row) for row in (*_people(), *(_person(each, "renamed") for each in _CHANGED))]
    assert sorted(_rows_of_ailake(quick_folder), key=str) == sorted(written, key=str)


def test_ailake_lacks_a_mode_that_replaces_by_key(ailake: OpenDestination) -> None:
    with pytest.raises(ConfigError, match="mode mirror needs its sync mode append_dedup, and it has overwrite, append"):
        ailake("mirror").contacts()


@pytest.mark.nightly
def test_ailake_adds_where_it_says_that_it_overwrites(ailake: OpenDestination, quick_folder: Path) -> None:
    """If this fails, it has learnt to: docs/push.md says that it has not."""
    table = ailake("overwrite")
    assert [table.contacts().acknowledged for _ in range(2)] == [_ROWS, _ROWS]
    assert len(_rows_of_ailake(quick_folder)) == 2 * _ROWS


@pytest.mark.nightly
def test_ailake_loses_the_numbers_that_follow_a_null(ailake: OpenDestination, quick_folder: Path) -> None:
    """If this fails, it keeps them now: docs/push.md says that it does not."""
    table = ailake("append")
    table.fill([{**_person(1), "score": None}, _person(2)])
    assert table.contacts().acknowledged == 2
    assert [row["score"] for row in _rows_of_ailake(quick_folder)] == [None, None]


def _rows_of_ailake(folder: Path) -> list[Row]:
    files = sorted((folder / "lake" / "contacts").glob("data/*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return [{name: value for name, value in row.items() if name != "embedding"} for row in rows]


def _as_ailake_writes(row: Row) -> Row:
    """It keeps fractions in single precision, and times as the text that it got."""
    score, price, made_at = row["score"], row["price"], row["made_at"]
    return {
        "text": row["name"],
        "id": row["id"],
        "score": None if score is None else float(np.float32(score)),
        "price": None if price is None else float(np.float32(price)),
        "day": row["day"].isoformat(),
        "made_at": None if made_at is None else f"{made_at:%Y-%m-%dT%H:%M:%S.%f}Z",
        "is_new": row["is_new"],
    }


@pytest.fixture(scope="module")
def vector_server(connector_environments: Path) -> Iterator[PostgresServer]:
    with running_vector_server(connector_environments) as server:
        yield server


@pytest.fixture
def pgvector(
    destination: OpenDestination, vector_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> OpenDestination:
    write_tokenizer(tmp_path)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    def opened(mode: str) -> PushedTable:
        vector_server.ask("DROP TABLE IF EXISTS contacts")
        config = {
            "embedding": {"mode": "fake"},
            "processing": {"chunk_size": 1000, "text_fields": ["name"]},
            "indexing": {
                "host": "127.0.0.1",
                "port": vector_server.port,
                "database": "postgres",
                "default_schema": "public",  # 0.1.4 replaces by key only where the server finds the table by itself
                "username": "tester",
                "credentials": {"password": "none"},
            },
        }
        table = destination("airbyte-destination-pgvector==0.1.4", "destination-pgvector", config, mode)
        table.connector = {"env_vars": ["TIKTOKEN_CACHE_DIR"]}
        return table

    return opened


@pytest.mark.nightly
def test_pgvector(pgvector: OpenDestination, vector_server: PostgresServer) -> None:
    """If it misses rows, it has learnt to remove them: docs/push.md says that it only acknowledges removals."""
    table = pgvector("mirror")
    _push_twice_then_one_percent(table, gone=(3, 4))
    assert _rows_of_pgvector(vector_server) == _as_pgvector_writes(_people(changed=_CHANGED))
    with_nulls = _with_nulls(_people(changed=_CHANGED))
    table.fill(with_nulls)
    third = table.contacts()
    assert third.acknowledged == sum(row["score"] is None or row["id"] in (3, 4) for row in with_nulls)
    assert _rows_of_pgvector(vector_server) == _as_pgvector_writes(with_nulls)


@pytest.mark.nightly
def test_pgvector_overwrites(pgvector: OpenDestination, vector_server: PostgresServer) -> None:
    table = pgvector("overwrite")
    assert table.contacts().acknowledged == _ROWS
    table.fill(_people(changed=_CHANGED, gone=(3, 4)))
    assert table.contacts().acknowledged == _ROWS - 2
    rows = _rows_of_pgvector(vector_server)
    assert rows == _as_pgvector_writes(_people(changed=_CHANGED, gone=(3, 4)))


def _rows_of_pgvector(server: PostgresServer) -> list[Row]:
    with psycopg.connect(server.conninfo()) as connection:
        sql = "SELECT metadata, document_content, vector_dims(embedding) FROM contacts"
        found = connection.execute(sql).fetchall()
    assert {dimensions for _, _, dimensions in found} == {1536}
    rows = [
        {name: value for name, value in metadata.items() if not name.startswith("_ab_")} | {"text": text}
        for metadata, text, _ in found
    ]
    return sorted(rows, key=lambda row: int(row["id"]))


def _as_pgvector_writes(rows: Sequence[Row]) -> list[Row]:
    written = [
        {
            **row,
            "price": None if row["price"] is None else float(row["price"]),
            "day": None if row["day"] is None else row["day"].isoformat(),
            "made_at": None if row["made_at"] is None else f"{row['made_at']:%Y-%m-%dT%H:%M:%S.%f}Z",
            "text": f"name: {row['name']}".strip(),
        }
        for row in rows
    ]
    return sorted(written, key=lambda row: int(row["id"]))
