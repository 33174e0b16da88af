"""A folder table whose rows a push sends to a fake destination, for tests that need no JVM."""

import json
import secrets
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from dagster_airbyte_proto.checkpoints.kept_values import Asset
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.transform_states import TRANSFORMS
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import StreamId, TableName, WriteMode
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.staging.files.parquet_file import OpenFile
from dagster_airbyte_proto.staging.files.staging_folder import StagingFolder, create_folder, run_staging_folder
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import seconds_awake_or_asleep
from dagster_airbyte_proto.sync.push.plan.plan_rows import plan_batches
from dagster_airbyte_proto.sync.push.push_context import PushRequest
from dagster_airbyte_proto.sync.push.run import push_connection
from dagster_airbyte_proto.sync.push_report import PushedStreamReport, PushReport
from dagster_airbyte_proto.sync.run_options import RunOptions, Timeouts
from dagster_airbyte_proto.testing.faults import CallFaults
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.sync.enrichment.kept_tally import kept_tallies, kept_tally
from tests.sync.faulty_engine import FaultyEngine, end_lease

FORMAT = "dagster_airbyte_proto.testing.folder.format:FOLDER"
PEOPLE = TableName("shop", "people")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("score", pa.float64()), ("bad", pa.bool_())])
Row = dict[str, Any]
_LONG_SECONDS = 3600.0


def person(number: int, name: str = "", **more: Any) -> Row:
    return {"id": number, "name": name or f"person {number}", "score": 0.5, "bad": False, **more}


def is_removal(row: Row) -> bool:
    return bool(row.get("_ab_cdc_deleted_at") or row.get("_sdc_deleted_at"))


_FAKES = [
    [sys.executable, "-m", f"dagster_airbyte_proto.testing.{name}"] for name in ("fake_destination", "fake_syncmaven")
]


class Patience(threading.Event):
    """A cancellation that never comes. Waits of a second and more for it are noted, and take no time."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None or timeout < 1:
            return super().wait(timeout)
        self.waited.append(timeout)
        return self.is_set()


def replace_rows(tables: FolderTables, table: TableName, rows: pa.Table) -> None:
    """Replaces the rows of a table."""
    target = tables.prepare(TableSpec(table, rows.schema))
    folder = StagingFolder.at(run_staging_folder(target, secrets.token_hex(4)), target.storage)
    create_folder(folder)
    files: tuple[StagedFile, ...] = ()
    if rows.num_rows:
        file = OpenFile(folder, "rows.parquet", target.schema, FileContent.ROWS)
        file.write(rows)
        files = (file.close(),)
    part = StagedRows(StreamId.of("people"), table, WriteMode.OVERWRITE, files=files, rows=rows.num_rows)
    tables.commit(secrets.token_hex(8), part)


class PushedTable:
    """The table `shop.people`, and the connection `crm` that pushes it to a file."""

    def __init__(
        self, folder: Path, *, protocol: str = "airbyte", mode: str = "upsert", schema: pa.Schema = SCHEMA
    ) -> None:
        self.folder, self.protocol, self._schema = folder, protocol, schema
        options = ["--takes-updates"] if mode == "update" else []
        self.launch: Row = {"kind": "local", "command": [*_FAKES[protocol == "syncmaven"], *options]}
        self.home, self.out, self.points_file = folder / "home", folder / "out.jsonl", folder / "points"
        self.stream = "contacts"
        self.config: Row = {}
        self.connector: Row = {}
        # How long a silent destination is waited for. A test in which it is silent for good sets less.
        self.silence_seconds = 20.0
        self.heartbeat_seconds: float | None = None
        self.faults: CallFaults | None = None
        self.grace_seconds = 0.2
        # So long has the machine slept, by the clock of a run.
        self.slept_seconds = 0.0
        self.result_seconds: float | None = None
        self.push: Row = {"from": "shop.people", "mode": mode, "max_removed": "100 %", "max_rejected": "100 %"}
        if mode not in ("overwrite",):
            self.push["key"] = ["id"]
        self.options: Row = {"batch": {"rows": 5}}
        self.other_streams: Row = {}
        self.settings_file = folder / "settings.yaml"
        self.settings_file.write_text(yaml.safe_dump({"catalog": {"format": FORMAT}, "lease_seconds": 30}))
        self.settings = Settings.load(self.home, self.settings_file)
        self.settings.make_home()

    def run_in_container(self, image: str, **launch: Any) -> None:
        """From now on the destination runs in a container of this image, and writes into a folder that it shares."""
        shared = self.folder / "out"
        shared.mkdir()
        shared.chmod(0o777)  # In the container it writes as another user.
        self.launch = {"kind": "docker", "image": image, "volumes": [f"{shared}:/out"], **launch}
        self.out, self.config = shared / "out.jsonl", {"path": "/out/out.jsonl"}

    @property
    def tables(self) -> FolderTables:
        with Engine(self.settings) as engine:
            tables = engine.tables
            assert isinstance(tables, FolderTables)
            return tables

    @property
    def connection_name(self) -> str:
        return str(self.options.get("name", "crm"))

    @property
    def is_fake(self) -> bool:
        return self.launch.get("command", [])[:3] in _FAKES

    def fill(self, rows: Sequence[Row]) -> None:
        """Replaces the rows of the table."""
        self.fill_table(PEOPLE, rows)

    def fill_table(self, table: TableName, rows: Sequence[Row]) -> None:
        """Replaces the rows of any table."""
        replace_rows(self.tables, table, pa.Table.from_pylist(list(rows), self._schema))

    def connection_file(self) -> Path:
        path = self.folder / "crm.yaml"
        written = {
            "connector": {"protocol": self.protocol, "launch": self.launch, **self.connector},
            "config": {"path": str(self.out), **self.config} if self.is_fake else self.config,
            "push": {self.stream: self.push, **self.other_streams},
            **self.options,
        }
        path.write_text(yaml.safe_dump(written, sort_keys=False))
        return path

    def engine(self) -> Engine:
        if self.faults is None:
            return Engine(self.settings, connector_options=ConnectorOptions(stop_grace_seconds=self.grace_seconds))
        return FaultyEngine(self.settings, self.faults, self.tables, self.grace_seconds)

    def run(self, *, cancel: threading.Event | None = None, file: Path | None = None, **request: Any) -> PushReport:
        """Pushes within this process. Before it tries a fake again it does not wait, unless it can be cancelled."""
        seconds = self.silence_seconds if self.is_fake else 60.0
        timeouts = Timeouts(
            heartbeat_seconds=self.heartbeat_seconds or seconds,
            exit_seconds=seconds,
            result_seconds=self.result_seconds or seconds,
        )
        clock = seconds_awake_or_asleep
        cancel = cancel or (Patience() if self.is_fake else threading.Event())
        options = RunOptions(cancel, timeouts=timeouts, clock=lambda: clock() + self.slept_seconds)
        with self.engine() as engine:
            connection = Connection.from_file(file or self.connection_file())
            return push_connection(engine, connection, PushRequest(**request), options)

    def run_until_sent(self, rows: int) -> PushedStreamReport:
        """Pushes, and cancels the push once so many rows are on their way. Returns the report of the only stream."""
        cancel = threading.Event()

        def wait_for_rows() -> None:
            store = SqlStore(self.settings.state_url)
            while not cancel.wait(0.05):
                if any(each.announced >= rows for each in store.deliveries(self.connection_name).values()):
                    cancel.set()
            store.close()

        watch = threading.Thread(target=wait_for_rows)
        watch.start()
        try:
            return self.run(cancel=cancel).streams["contacts"]
        finally:
            cancel.set()
            watch.join()

    def run_meanwhile(self) -> None:
        """While a push sleeps past its lease, another one runs."""
        faults, self.faults = self.faults, None
        self.end_lease()
        self.slept_seconds += _LONG_SECONDS
        self.run()
        self.faults = faults

    def end_lease(self) -> None:
        """Ends the lease of a push that died in this process."""
        end_lease(self.settings, self.connection_name)

    def contacts(self, **request: Any) -> PushedStreamReport:
        """Pushes, and returns the report of the only stream."""
        return self.run(**request).streams["contacts"]

    def received(self, stream: str | None = None) -> list[Row]:
        """The rows of a stream, or of all, that the destination has written, in their order."""
        return [line["row"] for line in self._lines() if "row" in line and stream in (None, line.get("stream"))]

    def messages(self) -> list[Row]:
        return [line["message"] for line in self._lines() if "message" in line]

    def held(self) -> dict[int, Row]:
        """What a destination has that upserts by `id` and heeds removals."""
        held: dict[int, Row] = {}
        for row in self.received():
            if is_removal(row):
                held.pop(row["id"], None)
            else:
                held[row["id"]] = {name: value for name, value in row.items() if name in SCHEMA.names}
        return held

    def held_by_version(self) -> dict[int, Row]:
        """The rows of a target that upserts by `id`, heeds versions, and knows no other form of removals."""
        held: dict[int, tuple[int, Row]] = {}
        for line in self._lines():
            if "row" in line:
                held[line["row"]["id"]] = line["generation"], line["row"]
            elif line["message"]["type"] == "ACTIVATE_VERSION":
                held = {number: each for number, each in held.items() if each[0] >= line["generation"]}
        return {number: row for number, (_, row) in held.items()}

    def versions(self) -> list[int]:
        """The versions of the rows that the destination has written, in their order."""
        return [line["generation"] for line in self._lines() if "row" in line]

    def shown(self) -> list[Row]:
        """The rows of the generation that a destination shows which replaces all by the next one that is complete."""
        shown: list[Row] = []
        rows: dict[int, list[Row]] = {}
        for line in self._lines():
            if "row" in line:
                rows.setdefault(line["generation"], []).append(line["row"])
            elif line["message"]["type"] in ("ACTIVATE_VERSION", "TRACE"):
                shown = list(rows.get(line["generation"], []))
        return shown

    def delivered(self) -> dict[int, Row]:
        """The rows of the delivered table."""
        rows = self.tables.rows(TableName("_pushes", "crm__contacts")).to_pylist()
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row for row in rows}

    def planned_ids(self) -> set[tuple[int, bool]]:
        """The rows of the plan that is under way, and whether each is removed."""
        with closing(SqlStore(self.settings.state_url)) as store:
            plans = [each.plan for each in store.deliveries(self.connection_name).values() if not each.is_complete]
        batches = [batch for plan in plans for batch in plan_batches(plan, LOCAL, 0, plan.rows)]
        return {(number, batch.is_removal) for batch in batches for number in batch.rows.column("id").to_pylist()}

    def acknowledged_ids(self) -> set[tuple[int, bool]]:
        """The rows that the store knows as acknowledged of the plan that is under way, and whether each is removed."""
        store = SqlStore(self.settings.state_url)
        found = set()
        for delivery in store.deliveries(self.connection_name).values():
            # The files of a plan go with its end, one after the other.
            files = (*delivery.plan.files, *delivery.plan.removal_files)
            if not delivery.is_complete or all(Path(each.path).exists() for each in files):
                for batch in plan_batches(delivery.plan, LOCAL, 0, delivery.acknowledged):
                    found |= {(number, batch.is_removal) for number in batch.rows.column("id").to_pylist()}
        store.close()
        return found

    def unknown_ids(self) -> list[int]:
        """The rows that were announced and not acknowledged, as the store has them."""
        return [row["id"] for row in self.unknown_rows()]

    def unknown_rows(self) -> list[Row]:
        """The same, with all their columns."""
        store = SqlStore(self.settings.state_url)
        found: list[Row] = []
        for delivery in store.deliveries(self.connection_name).values():
            if delivery.unknown:
                for batch in plan_batches(delivery.plan, LOCAL, delivery.acknowledged, delivery.announced):
                    found += batch.rows.to_pylist()
        store.close()
        return found

    def kept_names(self) -> dict[int, str]:
        """The names that a Syncmaven destination keeps of rows by the state server."""
        store = SqlStore(self.settings.state_url)
        kept = list(store.kept_values(Asset("crm", StreamId.of("contacts"))))
        store.close()
        return {int(each.key[1]): json.loads(each.value) for each in kept if each.key[0] != TRANSFORMS}

    def tally(self) -> int:
        """The number of rows that an enrichment keeps."""
        with closing(SqlStore(self.settings.state_url)) as store:
            return kept_tally(store, self.connection_name, self.stream)

    def tallies(self) -> list[int]:
        """The numbers of rows that the enrichments of a chain keep."""
        with closing(SqlStore(self.settings.state_url)) as store:
            return kept_tallies(store, self.connection_name, self.stream)

    def _lines(self) -> list[Row]:
        return [json.loads(line) for line in self.out.read_text().splitlines()] if self.out.exists() else []
