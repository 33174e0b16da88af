"""Connections with Iceberg and Delta tables. Each sync is a process with its own JVM; the caller's session reads."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import psutil
import yaml
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto.testing import crash_points
from tests.support.fork_server import Kill
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.shop import until

_TIMEOUT_SECONDS = 240.0


class IcebergConnection(FakeConnection):
    """Tables are read by their paths, so one session of the caller serves any number of connections."""

    format = "iceberg"

    def __init__(self, folder: Path, session: SparkSession, *, kills_compactions: bool = False) -> None:
        super().__init__(folder)
        self._session = session
        self._kills_compactions = kills_compactions
        self.settings_file = self.home / "settings.yaml"
        self.errors_file = folder / "stderr.txt"
        # A killed JVM leaves its scratch files. Here they are removed with the folder.
        spark = {
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(folder / "spark"),
        }
        catalog = {"format": self.format}
        self.settings_file.write_text(yaml.safe_dump({"lease_seconds": 1, "spark": spark, "catalog": catalog}))

    def column(self, stream: str, column: str = "id") -> list[Any]:
        rows = self._read(stream)
        return [] if rows is None else sorted(rows.select(column).toArrow().column(column).to_pylist())

    def rows(self, stream: str) -> list[dict[str, Any]]:
        rows = self._read(stream)
        return [] if rows is None else list(rows.toArrow().to_pylist())

    def landed(self, stream: str) -> list[str]:
        snapshots = self._read(stream, "#snapshots")
        if snapshots is None:
            return []
        found = snapshots.selectExpr("summary['airbyte-proto.load-id'] as load_id").toArrow()
        return [load_id for load_id in found.column("load_id").to_pylist() if load_id]

    def loose_files(self) -> list[str]:
        """Leaves out files of compactions, which a snapshot names and no load. A killed compaction leaves files outside
        of the folders of runs, for `table expire` to remove."""
        loose = super().loose_files()
        if self._kills_compactions:
            loose = [path for path in loose if _is_of_a_run(path)]
        return sorted(set(loose) - self._in_snapshots()) if loose else []

    def _in_snapshots(self) -> set[str]:
        places = (self.home / "warehouse" / "shop").iterdir()
        tables = (self._read(place.name, "#all_files") for place in places)
        return {path for each in tables if each for path in each.toArrow().column("file_path").to_pylist()}

    def branches(self) -> list[str]:
        found = (self._read(stream, "#refs") for stream in ("users", "orders"))
        names = [name for refs in found if refs is not None for name in refs.toArrow().column("name").to_pylist()]
        return [name for name in names if name != "main"]

    def _read(self, stream: str, part: str = "") -> DataFrame | None:
        """None as long as there is no table."""
        table = self.home / "warehouse" / "shop" / stream
        if not any(table.glob("metadata/v*.metadata.json")):
            return None
        return self._session.read.format("iceberg").load(f"{table}{part}")


class DeltaConnection(IcebergConnection):
    """A connection with Delta tables, whose log is read from its files."""

    format = "delta"

    def landed(self, stream: str) -> list[str]:
        return [action["txn"]["appId"] for action in self._log(stream) if "txn" in action]

    def loose_files(self) -> list[str]:
        """Leaves out Parquet files of the log, and those that a merge wrote outside of the folders of runs: a merge
        that is killed, or that only deletes, leaves a file that no log names for `table expire` to remove."""
        return [path for path in super().loose_files() if _is_of_a_run(path)]

    def branches(self) -> list[str]:
        """Delta has no branches."""
        return []

    def _in_snapshots(self) -> set[str]:
        return {
            str(place / unquote(action["add"]["path"]))
            for place in self._namespace_folder.iterdir()
            for action in self._log(place.name)
            if "add" in action
        }

    def _log(self, stream: str) -> list[dict[str, Any]]:
        log = self._namespace_folder / stream / "_delta_log"
        return [json.loads(line) for entry in log.glob("*.json") for line in entry.read_text().splitlines()]

    def _read(self, stream: str, part: str = "") -> DataFrame | None:
        assert not part
        table = self._namespace_folder / stream
        return self._session.read.format("delta").load(str(table)) if any(table.glob("_delta_log/*.json")) else None

    @property
    def _namespace_folder(self) -> Path:
        return self.warehouse / "shop"


def _is_of_a_run(path: str) -> bool:
    """Whether a sync staged this file."""
    return Path(path).parent.name.startswith("run-")


class CommandLine:
    """Runs syncs by the command line, one at a time, with `environment` beside this process's own."""

    def __init__(self, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, connection: FakeConnection, crash: Kill | None = None, *, refresh: bool = False) -> int:
        assert isinstance(connection, IcebergConnection)
        connection.points_file.unlink(missing_ok=True)
        program = crash_points.command(f"{crash[0]}:{crash[1]}" if crash else "", connection.points_file)
        words = ["--home", str(connection.home), "--settings", str(connection.settings_file)]
        sync = [str(connection.connection_file), "--json", *(["--refresh"] if refresh else [])]
        with connection.report_file.open("wb") as out, connection.errors_file.open("wb") as errors:
            self._process = subprocess.Popen(
                [*program, *words, "sync", *sync],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env={**os.environ, **self._environment},
            )
        return self._process.pid

    def end(self) -> int:
        assert self._process is not None
        return self._process.wait(_TIMEOUT_SECONDS)

    def sync(self, connection: FakeConnection, crash: Kill | None = None, *, refresh: bool = False) -> int:
        self.start(connection, crash, refresh=refresh)
        return self.end()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def running_command_line(**environment: str) -> Iterator[CommandLine]:
    """A command line with `environment` beside this process's own. Fails at its end if a process of it lives on."""
    mark = ("AIRBYTE_PROTO_TEST", uuid4().hex)
    runner = CommandLine({**dict([mark]), **environment})
    yield runner
    runner.close()
    until(lambda: not any(processes_with(mark)), "the end of every JVM and connector")


def processes_with(mark: tuple[str, str]) -> Iterator[psutil.Process]:
    """The processes with that variable in their environment: all that the syncs of a marked runner started."""
    name, value = mark
    for process in psutil.process_iter():
        try:
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except psutil.Error:  # it has just ended, or it is somebody else's
            continue
