"""Pushes to real destinations, from the command line and from Dagster: after each push the destination has the rows of
the table, value by value."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto import ConnectorResource, build_push_assets
from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.connection import Connection
from tests.dagster_defs.support.folder_shop import FolderIOManager
from tests.support.databases.vector_server import running_vector_server, write_tokenizer
from tests.support.postgres import PostgresServer
from tests.sync.push.pushed_table import PushedTable, Row

pytestmark = [pytest.mark.connectors, pytest.mark.nightly, pytest.mark.timeout(900)]

# `target-duckdb` 0.8.0 loses rows that it updates in a table with a time: there is none here, nor a mirror of it.
_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("score", pa.float64()), ("is_new", pa.bool_())])
_ROWS, _CHANGED, _GONE = 200, (7, 150), (3, 4, 5)

Values = dict[int, tuple[Any, ...]]


class Place(NamedTuple):
    """Where a destination writes: a folder, and a server with a schema of its own."""

    folder: Path
    server: PostgresServer | None
    schema: str

    def ask(self, sql: str) -> Sequence[Any]:
        assert self.server is not None
        with psycopg.connect(self.server.conninfo()) as connection:
            return connection.execute(sql).fetchall()


class Destination(NamedTuple):
    """A destination of the package index: its config, and how its rows are read. `needs` names its server."""

    protocol: str
    package: str
    executable: str
    mode: str
    config: Callable[[Place], Row]
    held: Callable[[Place], Values]
    needs: str = ""
    batch_folder: str = ""
    removals: str = "deleted_at"


def _postgres_config(place: Place) -> Row:
    assert place.server is not None
    login = {"host": "127.0.0.1", "port": place.server.port, "user": "tester", "password": "none"}
    return {**login, "database": "postgres", "dbname": "postgres", "default_target_schema": place.schema}


def _ailake_config(place: Place) -> Row:
    embedder = place.folder / "embedder.py"
    embedder.write_text("import json, sys\nprint(json.dumps([[1.0, 0.0] for _ in json.load(sys.stdin)]))\n")
    return {
        "table_base_path": str(place.folder / "lake"),
        "embed_mode": "cmd",
        "embed_cmd": f"{sys.executable} {embedder}",
        "embedding_dim": 2,
        "text_field": "name",
    }


def _pgvector_config(place: Place) -> Row:
    assert place.server is not None
    place.server.ask("DROP TABLE IF EXISTS contacts")
    login = {"host": "127.0.0.1", "port": place.server.port, "database": "postgres", "default_schema": "public"}
    return {
        "embedding": {"mode": "fake"},
        "processing": {"chunk_size": 1000, "text_fields": ["name"]},
        "indexing": {**login, "username": "tester", "credentials": {"password": "none"}},
    }


def _folded(rows: Iterator[Row]) -> Values:
    """The rows as the last word on each key leaves them."""
    held: Values = {}
    for row in rows:
        if row.get("_sdc_deleted_at"):
            held.pop(row["id"])
        else:
            held[row["id"]] = (row["name"], row["score"], row["is_new"])
    return held


def _held_as_jsonl(place: Place) -> Values:
    files = sorted((place.folder / "out").iterdir())
    return _folded(json.loads(line) for file in files for line in file.open())


def _held_as_csv(place: Place) -> Values:
    def rows() -> Iterator[Row]:
        for file in sorted((place.folder / "out").iterdir()):
            with file.open(newline="") as opened:
                for row in csv.DictReader(opened):
                    yield {**row, "id": int(row["id"]), "score": float(row["score"]), "is_new": row["is_new"] == "True"}

    return _folded(rows())


def _held_by_duckdb(place: Place) -> Values:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(place.folder / "db.duckdb")) as found:
        rows = found.sql("SELECT id, name, score, is_new FROM main.contacts").fetchall()
    return {row[0]: tuple(row[1:]) for row in rows}


def _held_by_postgres(place: Place, which: str = "WHERE _sdc_deleted_at IS NULL") -> Values:
    sql = f"SELECT id, name, score, is_new FROM {place.schema}.contacts {which}"
    return {int(row[0]): (row[1], float(row[2]), row[3]) for row in place.ask(sql)}


def _held_by_ailake(place: Place) -> Values:
    files = (place.folder / "lake" / "contacts" / "data").glob("*.parquet")
    rows = [
        row
        for file in sorted(files, key=lambda file: file.stat().st_mtime_ns)
        for row in pq.read_table(file).to_pylist()
    ]
    return _folded({**row, "name": row["text"]} for row in rows)


def _held_by_pgvector(place: Place) -> Values:
    rows = [row[0] for row in place.ask("SELECT metadata FROM contacts")]
    return {int(row["id"]): (row["name"], row["score"], row["is_new"]) for row in rows}


def _out(place: Place) -> str:
    (place.folder / "out").mkdir(exist_ok=True)
    return str(place.folder / "out")


def _csv_config(place: Place) -> Row:
    # By itself a timestamp names a second, and a second push within it would begin the same file anew.
    names = {"file_naming_scheme": "{stream_name}-{timestamp}.csv", "timestamp_format": "%Y-%m-%dT%H%M%S.%f"}
    return {"output_path": _out(place), **names}


def _duckdb_config(place: Place) -> Row:
    return {"filepath": str(place.folder / "db.duckdb"), "default_target_schema": "main"}


_CSV = Destination("singer", "meltanolabs-target-csv==0.5.0", "target-csv", "upsert", _csv_config, _held_as_csv)
_MELTANO_POSTGRES = Destination(
    "singer",
    "meltanolabs-target-postgres==0.8.1",
    "target-postgres",
    "mirror",
    _postgres_config,
    _held_by_postgres,
    needs="postgres",
)
_DESTINATIONS = {
    "target-jsonl": Destination(
        "singer",
        "target-jsonl==0.1.4",
        "target-jsonl",
        "mirror",
        lambda place: {"destination_path": _out(place)},
        _held_as_jsonl,
    ),
    "target-csv": _CSV,
    "target-csv by files": _CSV._replace(batch_folder="batches"),
    "target-duckdb": Destination(
        "singer", "target-duckdb==0.8.0", "target-duckdb", "upsert", _duckdb_config, _held_by_duckdb
    ),
    "meltanolabs-target-postgres": _MELTANO_POSTGRES,
    "meltanolabs-target-postgres by files": _MELTANO_POSTGRES._replace(batch_folder="batches"),
    "meltanolabs-target-postgres by versions": _MELTANO_POSTGRES._replace(
        config=lambda place: {**_postgres_config(place), "hard_delete": True},
        held=lambda place: _held_by_postgres(place, which=""),
        removals="version",
    ),
    "pipelinewise-target-postgres": _MELTANO_POSTGRES._replace(
        package="pipelinewise-target-postgres==2.1.2",
        config=lambda place: {**_postgres_config(place), "hard_delete": True},
    ),
    "ailake": Destination(
        "airbyte",
        "airbyte-destination-ailake==0.1.16",
        "airbyte-destination-ailake",
        "append",
        _ailake_config,
        _held_by_ailake,
    ),
    "pgvector": Destination(
        "airbyte",
        "airbyte-destination-pgvector==0.1.4",
        "destination-pgvector",
        "upsert",
        _pgvector_config,
        _held_by_pgvector,
        needs="pgvector",
    ),
}  # fmt: skip


def _people(*, changed: Sequence[int] = (), gone: Sequence[int] = ()) -> list[Row]:
    return [
        {
            "id": number,
            "name": "renamed" if number in changed else f'Zoë {number} 🦊 "q" \\',
            "score": number + 0.5,
            "is_new": number % 2 == 0,
        }
        for number in range(1, _ROWS + 1)
        if number not in gone
    ]


def _values(rows: Sequence[Row]) -> Values:
    return {row["id"]: (row["name"], row["score"], row["is_new"]) for row in rows}


@pytest.fixture(scope="module")
def vector_server(connector_environments: Path) -> Iterator[PostgresServer]:
    with running_vector_server(connector_environments) as server:
        yield server


@pytest.fixture
def place(request: pytest.FixtureRequest, quick_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    needs = _DESTINATIONS[request.getfixturevalue("name")].needs
    if needs == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return Place(quick_folder, server, server.new_schema())
    if needs == "pgvector":
        write_tokenizer(quick_folder)
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(quick_folder))
        return Place(quick_folder, request.getfixturevalue("vector_server"), "public")
    return Place(quick_folder, None, "")


def _push_by_dagster(table: PushedTable, instance: dg.DagsterInstance) -> None:
    assets = build_push_assets(Connection.from_file(table.connection_file()))
    resources = {
        "connector": ConnectorResource(home=str(table.home)),
        "io_manager": FolderIOManager(warehouse=str(table.home / "warehouse")),
    }
    assert dg.materialize([assets], resources=resources, instance=instance).success


def _push_by_command(table: PushedTable, _: dg.DagsterInstance) -> None:
    words = ["--home", str(table.home), "--settings", str(table.settings_file)]
    assert main([*words, "push", str(table.connection_file()), "--json"]) == 0


@pytest.mark.parametrize("push", [_push_by_command, _push_by_dagster])
@pytest.mark.parametrize("name", _DESTINATIONS)
def test_the_destination_has_the_rows_of_the_table(
    place: Place,
    name: str,
    push: Callable[[PushedTable, dg.DagsterInstance], None],
    dagster_instance: dg.DagsterInstance,
    connector_environments: Path,
) -> None:
    destination = _DESTINATIONS[name]
    table = PushedTable(place.folder, protocol=destination.protocol, schema=_SCHEMA, mode=destination.mode)
    table.settings.environments_folder.symlink_to(connector_environments)
    table.launch = {"kind": "pypi", "package": destination.package, "executable": destination.executable}
    table.connector = {"env_vars": ["TIKTOKEN_CACHE_DIR"]} if destination.needs == "pgvector" else {}
    if destination.batch_folder:
        table.connector["batch_folder"] = str(place.folder / destination.batch_folder)
    table.config = destination.config(place)
    table.push["removals"] = destination.removals
    gone = _GONE if destination.mode == "mirror" else ()
    changed = _people(changed=_CHANGED, gone=gone)
    sent_again = len(_CHANGED) if destination.removals == "deleted_at" else len(changed)
    for rows, planned in ((_people(), (_ROWS, 0, 0)), (_people(), (0, 0, 0)), (changed, (0, sent_again, len(gone)))):
        table.fill(rows)
        push(table, dagster_instance)
        with table.engine() as engine:
            [run] = engine.store.runs("crm", limit=1)
        report = json.loads(run.report or "")["streams"]["contacts"]
        found = tuple(report["planned"][kind] or 0 for kind in ("added", "changed", "removed"))
        assert (report["status"], found) == ("complete", planned)
        assert report["acknowledged"] == report["sent"] == sum(planned)
        assert destination.held(place) == _values(rows)
