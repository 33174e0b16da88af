"""A home folder with one connection to the fake source, and what stands in its tables: for tests that break things."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStateStore
from dagster_airbyte_proto.model import StateScope, TableName
from dagster_airbyte_proto.protocols.lookup import protocol_of_state
from dagster_airbyte_proto.tables.folder.tables import FolderTables, read_file
from tests.support import fake_tap
from tests.support.fake_source import command, offered

_TOLD_IN_READS = ("state", "state_every", "interleave", "statuses", "late_states", "counts", "miscount")


class _Files:
    """Reads each file again only if it is another than the last time: for who looks at tables after every sync."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, int, int, int], pa.Table] = {}

    def __call__(self, path: str) -> pa.Table:
        found = Path(path).stat()
        known = path, found.st_ino, found.st_mtime_ns, found.st_size
        if known not in self._read:
            self._read[known] = read_file(path)
        return self._read[known]


class House:
    """One connection, `shop`, into folder tables."""

    format = "folder"
    protocol = "airbyte"

    def __init__(self, folder: Path, *, write: str = "append", read: str = "incremental", max_bytes: int = 1) -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.connection_file = folder / "shop.yaml"
        self.report_file = folder / "report.json"
        self.points_file = folder / "points.txt"
        self._scenario_file = folder / "scenario.json"
        self._program_file = folder / "program.json"
        self._answers: dict[str, Any] | None = None
        self.modes: dict[str, Any] = {"*": {"read": read, "write": write}}
        self.config: dict[str, Any] = {}
        self._max_bytes = max_bytes
        (self.home / "settings.yaml").write_text(
            yaml.safe_dump({"catalog": {"format": self.format}, "lease_seconds": 1})
        )
        self.store = SqlStateStore(f"sqlite:///{self.home / 'state.db'}")
        self.tables = FolderTables(self.home / "warehouse", _Files())

    def offer(self, scenario: dict[str, Any]) -> None:
        """What the source has from now on."""
        self._scenario_file.write_text(json.dumps(scenario))
        connection = {
            "connector": {"protocol": self.protocol, "launch": self._launch(scenario)},
            "config": {"scenario": str(self._scenario_file), **self.config},
            "streams": self.modes,
            "load": {"max_bytes": self._max_bytes},
        }
        self.connection_file.write_text(yaml.safe_dump(connection))

    def _launch(self, scenario: dict[str, Any]) -> dict[str, Any]:
        return {"kind": "local", "command": self._connector(scenario)}

    def _connector(self, scenario: dict[str, Any]) -> list[str]:
        """Another one, as programs are told apart by their files, only where it would answer otherwise than the last:
        so it is not asked for its spec and its catalog each time."""
        streams = scenario.get("streams", {}).items()
        answers = {key: told for key, told in scenario.items() if key not in ("streams", *_TOLD_IN_READS)}
        tap = self.protocol == "singer"
        answers["streams"] = [
            fake_tap.entry(name, stream) if tap else offered(name, stream) for name, stream in streams
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
        """The load ids in the table's log: one that stands there twice landed twice, also where the rows hide it."""
        entries = (self.home / "warehouse" / "shop" / stream / "log").glob("[0-9]*.json")
        return [load_id for entry in entries if (load_id := json.loads(entry.read_bytes())["load_id"])]

    def aside(self) -> list[str]:
        """The branches that stand beside what readers see."""
        return [branch for table in self.tables.names() for branch in self.tables.aside(table)]

    def positions(self) -> dict[str, int]:
        """Where each stream's state stands, whatever its scope."""
        found: dict[str, int] = {}
        for stored in self.store.states("shop"):
            protocol = protocol_of_state(stored.state)
            value, parts_of = protocol.state_value(stored.state), protocol.state_parts(stored.state)
            if parts_of is not None:
                found |= {stream.name: part["next"] for stream, part in parts_of.items()}
            elif stored.state.scope is StateScope.STREAM:
                assert stored.state.stream is not None
                found[stored.state.stream.name] = value["next"]
            else:
                message = json.loads(stored.state.message)
                parts = message.get("global", {}).get("stream_states", [])
                found |= {part["stream_descriptor"]["name"]: part["stream_state"]["next"] for part in parts}
                found |= {name: told["next"] for name, told in (message.get("data") or {}).items()}
        return found

    def loose_files(self) -> list[str]:
        """Parquet files that lie in a table's data folder and that no load names."""
        named = {
            file.path
            for logged in self.store.loads("shop", limit=10_000)
            for part in logged.load.parts
            for file in part.files
        }
        found = (self.home / "warehouse").rglob("*.parquet")
        return [str(path) for path in found if str(path) not in named]


class TapHouse(House):
    """Whose connector speaks Singer."""

    protocol = "singer"


class ParquetHouse(House):
    """Into plain Parquet, of which is known what any reader finds under a plain path."""

    format = "parquet"

    def column(self, stream: str, column: str = "id") -> list[Any]:
        place = self.home / "warehouse" / "shop" / stream / "current"
        rows = pq.read_table(place) if place.exists() else pa.table({})
        return sorted(rows.column(column).to_pylist()) if column in rows.column_names else []

    def loose_files(self) -> list[str]:
        """Readers' folders hold other names of the same files."""
        return [path for path in super().loose_files() if Path(path).parts[-3] == "data"]
