"""Killed syncs into S3: real processes and a catalog in SQLite, read without Spark."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from dagster_airbyte_proto.cli.main import main
from tests.support.object_stores.s3 import ObjectStore
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.killed_connection import KilledConnection
from tests.sync.crashes.spark_connections import CommandLine, IcebergConnection, running_command_line

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]


class ObjectStoreConnection(IcebergConnection):
    """The connection with its warehouse in a bucket."""

    def __init__(self, folder: Path, store: ObjectStore, catalog: str = "lake") -> None:
        FakeConnection.__init__(self, folder)
        self._store, self._bucket = store, store.new_bucket()
        self.settings_file = self.home / "settings.yaml"
        self.errors_file = folder / "stderr.txt"
        warehouse = f"s3://{self._bucket}/ware house"
        self._uri, self._warehouse = f"sqlite:///{folder}/catalog.db", warehouse
        jdbc = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "jdbc.schema-version": "V1"}
        self._configure({"name": catalog, "warehouse": warehouse}, {**jdbc, **store.settings})

    def _configure(self, catalog: dict[str, str], properties: dict[str, str]) -> None:
        """Writes the settings, with properties of the catalog."""
        spark = {
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(self.home.parent / "spark"),
            "spark.jars.packages": "org.xerial:sqlite-jdbc:3.50.3.0",
            **{f"spark.sql.catalog.{catalog['name']}.{key}": value for key, value in properties.items()},
        }
        settings = {"lease_seconds": 1, "catalog": catalog, "spark": spark}
        self.settings_file.write_text(yaml.safe_dump(settings))

    def run(self, *words: str, code: int = 0) -> Any:
        """Runs the command line in this process. Returns the JSON document that it printed."""
        out = io.StringIO()
        with redirect_stdout(out):
            ended = main(["--home", str(self.home), "--settings", str(self.settings_file), *words, "--json"])
        assert ended == code, (words, ended, out.getvalue())
        return json.loads(out.getvalue())

    def push(self, source: str, **options: Any) -> list[dict[str, Any]]:
        """Pushes keys and ids of a table to a file. Returns the rows that this push sent. Options are those of the
        stream; one that is None is left out."""
        sent, file = self.home.parent / "sent.jsonl", self.home.parent / "crm.yaml"
        sent.unlink(missing_ok=True)
        launch = {"kind": "local", "command": [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_destination"]}
        fields = {"key": "key", "id": "id"}
        stream = {"from": source, "key": ["key"], "mode": "upsert", "map": fields, **options}
        written = {
            "connector": {"protocol": "airbyte", "launch": launch},
            "config": {"path": str(sent)},
            "push": {"contacts": {key: value for key, value in stream.items() if value is not None}},
        }
        file.write_text(yaml.safe_dump(written))
        self.run("push", str(file))
        lines = [json.loads(line) for line in sent.read_text().splitlines()] if sent.exists() else []
        return [line["row"] for line in lines if "row" in line]

    @property
    def bucket(self) -> str:
        return self._bucket

    def column(self, stream: str, column: str = "id") -> list[Any]:
        table = self._table(stream)
        return [] if table is None else sorted(table.scan().to_arrow()[column].to_pylist())

    def landed(self, stream: str) -> list[str]:
        table = self._table(stream)
        summaries = [each.summary for each in table.snapshots()] if table else []
        return [load_id for each in summaries if each and (load_id := each.get("airbyte-proto.load-id"))]

    def loose_files(self) -> list[str]:
        named = {
            file.path
            for logged in self.store.loads("shop", limit=10_000)
            for part in logged.load.parts
            for file in part.files
        }
        found = (f"s3://{self._bucket}/{key}" for key in self._store.keys(self._bucket))
        return [path for path in found if path.endswith(".parquet") and path not in named]

    def written(self) -> str:
        """All that a sync wrote to local files, except the settings."""
        files = [path for path in self.home.rglob("*") if path.is_file() and path != self.settings_file]
        texts = [path.read_bytes() for path in (*files, self.report_file, self.errors_file)]
        return b"\n".join(texts).decode(errors="replace")

    def _table(self, stream: str) -> Table | None:
        """None as long as there is no table, or no catalog yet."""
        catalog = SqlCatalog("lake", uri=self._uri, warehouse=self._warehouse, **self._store.settings)
        try:
            return catalog.load_table(("shop", stream))
        except NoSuchTableError:
            return None


def sync_killed_twice(command_line: CommandLine, connection: ObjectStoreConnection) -> None:
    """Kills a sync that has staged files, and one that has committed. The one after them has all rows, each once."""
    killed = KilledConnection(command_line, connection, "append", "stream")
    killed.add_records()
    killed.sync_killed(("stage.file_closed", 2))
    assert connection.loose_files() != []
    killed.sync_killed(("table.committed", 1))
    killed.sync_to_end()
    assert connection.column("users") == list(range(killed.records["users"]))


@pytest.fixture
def command_line() -> Iterator[CommandLine]:
    with running_command_line() as runner:
        yield runner


def test_syncs_that_are_killed_lose_and_double_nothing_and_leave_no_object(
    command_line: CommandLine, object_store: ObjectStore, tmp_path: Path
) -> None:
    connection = ObjectStoreConnection(tmp_path / "home", object_store)
    sync_killed_twice(command_line, connection)
    assert object_store.secret_key not in connection.written()


def test_a_load_of_which_a_bucket_that_refuses_tells_nothing_stays_announced(
    command_line: CommandLine, object_store: ObjectStore, tmp_path: Path
) -> None:
    user = object_store.new_user()
    connection = ObjectStoreConnection(tmp_path / "home", user)
    killed = KilledConnection(command_line, connection, "append", "stream")
    killed.add_records()
    killed.sync_killed(("table.committed", 1))
    [load] = connection.store.announced_loads("shop")
    object_store.refuse(user)
    assert command_line.sync(connection) == 1
    told = connection.errors_file.read_text()
    for word in ("Status Code: 403", load.load_id, "in table shop.", "loads resolve"):
        assert word in told
    assert [each.load_id for each in connection.store.announced_loads("shop")] == [load.load_id]
    object_store.permit(user)
    killed.sync_to_end()


@pytest.mark.usefixtures("spark")
def test_a_push_needs_no_file_system_of_hadoop_for_the_bucket(object_store: ObjectStore, tmp_path: Path) -> None:
    connection = ObjectStoreConnection(tmp_path / "home", object_store, catalog := f"c_{uuid4().hex}")
    connection.modes = {"users": {"read": "incremental", "write": "append_dedup"}}
    for records, sent in ((10, [6, 7, 8, 9]), (11, [10])):
        connection.offer({"streams": {"users": {"records": records, "keys": 4}}})
        connection.run("sync", str(connection.connection_file))
        assert sorted(row["id"] for row in connection.push(f"{catalog}.shop.users")) == sent
    assert not [key for key in object_store.keys(connection.bucket) if "/plans/" in key]
