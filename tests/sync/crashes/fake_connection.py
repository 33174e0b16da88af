"""A home folder with one connection to the fake source, and its tables: for tests that break things."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.model import StateScope, TableName
from dagster_airbyte_proto.protocols.lookup import source_protocol
from dagster_airbyte_proto.testing import fake_tap
from dagster_airbyte_proto.testing.fake_source import catalog_stream, command
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from dagster_airbyte_proto.testing.folder.tables import FolderTables

_ONLY_IN_READS = ("state", "state_every", "interleave", "statuses", "late_states", "counts", "miscount")


class FakeConnection:
    """One connection, `shop`, into folder tables."""

    format = FOLDER_FORMAT
    protocol = "airbyte"
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed
    lease_wait_seconds = 0.0

    def __init__(self, folder: Path, *, write: str = "append", read: str = "incremental", max_bytes: int = 1) -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.warehouse = self.home / "warehouse"
        self.connection_file = folder / "shop.yaml"
        self.report_file = folder / "report.json"
        self.points_file = folder / "points.txt"
        self._scenario_file = folder / "scenario.json"
        self._program_file = folder / "program.json"
        self._answers: dict[str, Any] | None = None
        self.modes: dict[str, Any] = {"*": {"read": read, "write": write}}
        self.config: dict[str, Any] = {}
        self.connector_options: dict[str, Any] = {}
        self._max_bytes = max_bytes
        (self.home / "settings.yaml").write_text(
            yaml.safe_dump({"catalog": {"format": self.format}, "lease_seconds": 1})
        )
        self.store = SqlStore(f"sqlite:///{self.home / 'state.db'}")
        self.tables = FolderTables(self.home / "warehouse")

    def offer(self, scenario: dict[str, Any]) -> None:
        """Sets what the source has from now on."""
        self._scenario_file.write_text(json.dumps(scenario))
        connection = {
            "connector": {"protocol": self.protocol, "launch": self._launch(scenario), **self.connector_options},
            "config": {"scenario": str(self._scenario_file), **self.config},
            "streams": self.modes,
            "load": {"max_bytes": self._max_bytes},
            **self.more,
        }
        self.connection_file.write_text(yaml.safe_dump(connection))

    def _launch(self, scenario: dict[str, Any]) -> dict[str, Any]:
        return {"kind": "local", "command": self._connector(scenario)}

    def _connector(self, scenario: dict[str, Any]) -> list[str]:
        """The command of the source, with a new program file only where its spec or catalog has changed. Otherwise the
        answers of the last program stay cached, and the sync does not query them again."""
        streams = scenario.get("streams", {}).items()
        answers = {key: value for key, value in scenario.items() if key not in ("streams", *_ONLY_IN_READS)}
        tap = self.protocol == "singer"
        answers["streams"] = [
            fake_tap.catalog_entry(name, stream) if tap else catalog_stream(name, stream) for name, stream in streams
        ]
        if answers != self._answers:
            self._answers = answers
            self._program_file.write_text(json.dumps(scenario))
        return (fake_tap.command if tap else command)(self._program_file)

    @property
    def report(self) -> dict[str, Any]:
        return dict(json.loads(self.report_file.read_text()))

    @property
    def points(self) -> list[str]:
        """The points that the last run reached, in order."""
        return self.points_file.read_text().split() if self.points_file.exists() else []

    def column(self, stream: str, column: str = "id") -> list[Any]:
        rows = self.tables.rows(TableName("shop", stream))
        return sorted(rows.column(column).to_pylist()) if column in rows.column_names else []

    def rows(self, stream: str) -> list[dict[str, Any]]:
        return list(self.tables.rows(TableName("shop", stream)).to_pylist())

    def landed(self, stream: str) -> list[str]:
        """The load ids in the table's log. A load that is there twice has landed twice, even where the rows hide it."""
        entries = (self.home / "warehouse" / "shop" / stream / "log").glob("[0-9]*.json")
        return [load_id for entry in entries if (load_id := json.loads(entry.read_bytes())["load_id"])]

    def branches(self) -> list[str]:
        """The branches of all tables."""
        return [branch for table in self.tables.names() for branch in self.tables.branches(table)]

    def positions(self) -> dict[str, int]:
        """The position in each stream's state, whatever its scope."""
        found: dict[str, int] = {}
        for stored in self.store.states("shop"):
            protocol = source_protocol(self.store.protocol("shop"))
            value, parts_of = protocol.states.value(stored.state), protocol.states.parts(stored.state)
            if parts_of is not None:
                found |= {stream.name: part["next"] for stream, part in parts_of.items()}
            elif stored.state.scope is StateScope.STREAM:
                assert stored.state.stream is not None
                found[stored.state.stream.name] = value["next"]
            else:
                message = json.loads(stored.state.message)
                parts = message.get("global", {}).get("stream_states", [])
                found |= {part["stream_descriptor"]["name"]: part["stream_state"]["next"] for part in parts}
                found |= {name: part["next"] for name, part in (message.get("data") or {}).items()}
        return found

    def loose_files(self) -> list[str]:
        """Parquet files that lie in a table's data folder and that no load names."""
        named = {
            file.path
            for logged in self.store.loads("shop", limit=10_000)
            for part in logged.load.parts
            for file in part.files
        }
        found = self.warehouse.rglob("*.parquet")
        return [str(path) for path in found if str(path) not in named]


class TapConnection(FakeConnection):
    """A connection whose connector speaks Singer."""

    protocol = "singer"


class TransformedConnection(FakeConnection):
    """The same with transforms that every row passes, with a column more."""

    more = {  # noqa: RUF012 - never changed
        "transforms": [
            {"sql": "SELECT *, id + 1 AS next FROM input WHERE id IS NOT NULL"},
            {"validate": [{"assert_range": {"next": {"min": 1}}}]},
        ]
    }


class ParallelConnection(FakeConnection):
    """A connection whose streams two processes of the connector read, once their states are known."""

    more = {"parallel": 2}  # noqa: RUF012 - never changed


class ExecutorConnection(FakeConnection):
    """A connection whose connector runs on an executor."""

    more = {"run_on": "executors"}  # noqa: RUF012 - never changed
    lease_wait_seconds = 60.0
    """A task outlives its driver until it hears of that, and has the lease meanwhile."""


class ParquetConnection(FakeConnection):
    """A connection into plain Parquet tables, which are read from their path as any reader does."""

    format = "parquet"

    def column(self, stream: str, column: str = "id") -> list[Any]:
        place = self.home / "warehouse" / "shop" / stream / "current"
        rows = pq.read_table(place) if place.exists() else pa.table({})
        return sorted(rows.column(column).to_pylist()) if column in rows.column_names else []

    def loose_files(self) -> list[str]:
        """Leaves out the folders for readers, which hold links to the same files."""
        return [path for path in super().loose_files() if Path(path).parts[-3] == "data"]
