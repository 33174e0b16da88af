"""The tables of a simulated world, and what others do to them: in a folder, or by Spark in Iceberg and Delta."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.writer import TableWriter
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from dagster_airbyte_proto.testing.folder.tables import FolderTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dagster_airbyte_proto.tables.spark.settings import SparkSettings

Rows = list[tuple[int, int]]
_LogFiles = frozenset[tuple[str, int, int]]


class SimulatedTables(Protocol):
    """The tables of one world after the other. `merge` is the option of the streams that upsert, if they have one."""

    format: str
    merge: str | None

    def clear(self) -> None:
        """Removes all tables."""
        ...

    def open(self) -> TableWriter:
        """The tables as another process opens them."""
        ...

    def rows(self, name: TableName) -> Rows:
        """The rows of a table, sorted; none if it is not there."""
        ...

    def loads(self, name: TableName) -> set[str]:
        """The loads that a table's log names."""
        ...

    def remember(self) -> None:
        """Keeps all tables as they are, to be set back to."""
        ...

    def set_back(self, name: TableName, moment: int) -> None:
        """Sets a table back to how it was at the `moment`-th `remember`. It is gone if it was not there."""
        ...

    def drop(self, name: TableName) -> None: ...

    def maintain(self, name: TableName) -> None:
        """Compacts a table and expires all but its last snapshot, as people's own jobs do."""
        ...


def _sorted_rows(rows: pa.Table) -> Rows:
    return sorted(zip(rows["id"].to_pylist(), rows["version"].to_pylist(), strict=True))


class SimulatedFolders:
    """Folder tables. Nobody can maintain them: they keep each entry of their log and each file, as plain Parquet does,
    and nothing compacts or expires them (`tables/parquet/care.py`)."""

    format = FOLDER_FORMAT
    merge: str | None = None

    def __init__(self, folder: Path) -> None:
        self._warehouse, self._past = folder / "warehouse", folder / "past"
        self._moments = 0
        self._rows: dict[TableName, tuple[_LogFiles, Rows]] = {}

    def clear(self) -> None:
        shutil.rmtree(self._warehouse, ignore_errors=True)
        shutil.rmtree(self._past, ignore_errors=True)
        self._moments = 0
        self._rows.clear()

    def open(self) -> FolderTables:
        return FolderTables(self._warehouse)

    def rows(self, name: TableName) -> Rows:
        tables = self.open()
        log = _files_of(tables.folder(name, "log"))
        known, rows = self._rows.get(name, (None, []))
        if log != known:
            rows = _sorted_rows(tables.rows(name)) if log else []
            self._rows[name] = log, rows
        return rows

    def loads(self, name: TableName) -> set[str]:
        tables = self.open()
        return set(tables.snapshot(name).loads) if name in tables.names() else set()

    def remember(self) -> None:
        _link_files(self._warehouse, self._past / str(self._moments))
        self._moments += 1

    def set_back(self, name: TableName, moment: int) -> None:
        self.drop(name)
        _link_files(self._past / str(moment) / name.namespace / name.name, self.open().folder(name))

    def drop(self, name: TableName) -> None:
        shutil.rmtree(self.open().folder(name), ignore_errors=True)

    def maintain(self, name: TableName) -> None:
        """Does nothing."""


def _files_of(log: Path) -> _LogFiles:
    """Tells the log of a table from any other: no file of it is ever written again."""
    with suppress(FileNotFoundError):
        return frozenset((each.name, each.inode(), each.stat().st_mtime_ns) for each in os.scandir(log))
    return frozenset()


def _link_files(folder: Path, target: Path) -> None:
    """Gives all files of a folder, if it is there, a second name in another folder."""
    for inside, _, files in os.walk(folder):
        there = target / Path(inside).relative_to(folder)
        there.mkdir(parents=True, exist_ok=True)
        for file in files:
            os.link(os.path.join(inside, file), there / file)  # noqa: PTH118 - thousands of times a second


class _SparkTables:
    """Tables that Spark reads."""

    merge: str | None = None

    def __init__(self, session: "SparkSession", settings: "SparkSettings") -> None:
        self._session, self._settings = session, settings
        self._names: set[TableName] = set()
        self._past: list[Mapping[TableName, str]] = []

    def clear(self) -> None:
        for name in self._names:
            self.drop(name)
        self._past.clear()

    def rows(self, name: TableName) -> Rows:
        if not self._exists(name):
            return []
        return _sorted_rows(self._session.table(self._qualified(name)).select("id", "version").toArrow())

    def remember(self) -> None:
        self._past.append({name: self._version(name) for name in self._names if self._exists(name)})

    def drop(self, name: TableName) -> None:
        self._run(f"drop table if exists {self._qualified(name)} purge")

    def _qualified(self, name: TableName) -> str:
        self._names.add(name)
        return f"{self._settings.catalog}.`{name.namespace}`.`{name.name}`"

    def _exists(self, name: TableName) -> bool:
        return bool(self._session.catalog.tableExists(self._qualified(name)))

    def _run(self, sql: str) -> list[list[object]]:
        return [list(row) for row in self._session.sql(sql).collect()]

    def _version(self, name: TableName) -> str:
        raise NotImplementedError


class SimulatedIceberg(_SparkTables):
    """Iceberg tables. Those without a snapshot cannot be set back, and are dropped."""

    format = "iceberg"

    def __init__(self, session: "SparkSession", settings: "SparkSettings", merge: str | None = None) -> None:
        super().__init__(session, settings)
        self.merge = merge
        # An earlier test of this session may have left tables of these names.
        self._run(f"create namespace if not exists {settings.catalog}.shop")
        for row in session.sql(f"show tables in {settings.catalog}.shop").collect():
            self._run(f"drop table {settings.catalog}.shop.`{row['tableName']}` purge")

    def open(self) -> TableWriter:
        from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables

        return IcebergTables(self._session, self._settings)

    def loads(self, name: TableName) -> set[str]:
        if not self._exists(name):
            return set()
        found = self._run(f"select summary['airbyte-proto.load-id'] from {self._qualified(name)}.snapshots")
        return {str(load) for [load] in found if load}

    def set_back(self, name: TableName, moment: int) -> None:
        snapshot, present = self._past[moment].get(name, ""), self._exists(name)
        if present and snapshot:
            kept = self._run(f"select snapshot_id from {self._qualified(name)}.history where is_current_ancestor")
            if int(snapshot) in [each for [each] in kept]:  # else it has expired
                self._call("rollback_to_snapshot", name, f"snapshot_id => {snapshot}")
        elif present and not snapshot:
            self.drop(name)

    def maintain(self, name: TableName) -> None:
        if self._exists(name) and self._version(name):
            self._call("rewrite_data_files", name, "options => map('rewrite-all', 'true')")
            self._call("expire_snapshots", name, "older_than => timestamp '2100-01-01', retain_last => 1")

    def _version(self, name: TableName) -> str:
        found = self._run(f"select snapshot_id from {self._qualified(name)}.refs where name = 'main'")
        return str(found[0][0]) if found else ""

    def _call(self, procedure: str, name: TableName, arguments: str) -> None:
        table = f"{name.namespace}.{name.name}"
        self._run(f"call {self._settings.catalog}.system.{procedure}(table => '{table}', {arguments})")


class SimulatedDelta(_SparkTables):
    """Delta tables."""

    format = "delta"

    def __init__(self, session: "SparkSession", settings: "SparkSettings") -> None:
        super().__init__(session, settings)
        # The session's catalog is one for all tests of a worker: another warehouse's tables may have these names.
        # By SQL: `listTables` opens each of them, and fails at one of which the files are gone.
        self._run(f"create database if not exists {self._settings.catalog}.shop")
        for row in session.sql(f"show tables in {self._settings.catalog}.shop").collect():
            self._run(f"drop table if exists {self._settings.catalog}.shop.`{row['tableName']}`")

    def open(self) -> TableWriter:
        from dagster_airbyte_proto.tables.delta.tables import DeltaTables

        return DeltaTables(self._session, self._settings)

    def loads(self, name: TableName) -> set[str]:
        if not self._exists(name):
            return set()
        history = self._session.sql(f"describe history {self._qualified(name)}").select("userMetadata").collect()
        return {load for row in history if row[0] and (load := json.loads(row[0]).get("airbyte-proto.load-id"))}

    def set_back(self, name: TableName, moment: int) -> None:
        version = self._past[moment].get(name, "")
        if self._exists(name) and version:
            with suppress(Exception):  # its files were vacuumed
                self._run(f"restore table {self._qualified(name)} to version as of {version}")
        elif self._exists(name):
            self.drop(name)

    def drop(self, name: TableName) -> None:
        # The table is external: its files are dropped by hand.
        super().drop(name)
        shutil.rmtree(Path(self._settings.warehouse, name.namespace, name.name), ignore_errors=True)

    def maintain(self, name: TableName) -> None:
        if self._exists(name):
            self._run(f"optimize {self._qualified(name)}")
            self._run("set spark.databricks.delta.retentionDurationCheck.enabled = false")
            self._run(f"vacuum {self._qualified(name)} retain 0 hours")

    def _version(self, name: TableName) -> str:
        return str(max(int(str(row[0])) for row in self._run(f"describe history {self._qualified(name)}")))
