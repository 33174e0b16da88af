"""One connection in a world of its own: its source, state store and tables, and a clock that only steps move."""

import json
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml
from sqlalchemy import text

from dagster_airbyte_proto import points
from dagster_airbyte_proto.checkpoints.load_ending import Resolution
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.protocols.lookup import source_protocol
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.connector_config import connector_config
from dagster_airbyte_proto.sync.connector.queries import LaunchableConnector
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.maintenance.resolve import resolve_load
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.run_options import RunOptions, Timeouts
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, SimulatedDeath, with_faults
from tests.simulation.schedule import HANGING, STREAM_NAMES, Fault
from tests.simulation.scripted_source import KEYS, ScriptedLauncher, SourceContent, positions_in
from tests.simulation.stores import CopiedStore, SimulatedStore, StoreCopy, StoreInFile, StoreInMemory
from tests.simulation.tables import Rows, SimulatedFolders, SimulatedTables

CONNECTION = "shop"
LEASE_SECONDS = 60
SOON = Timeouts(*[0.03] * len(Timeouts._fields))
"""The times of a run whose connector hangs."""
_CREATED = datetime(2026, 1, 1, tzinfo=UTC)


class RunResult(NamedTuple):
    """A run has a report, or an error that ended it before, or neither if it died."""

    report: SyncReport | None
    error: ProtoError | None

    @property
    def died(self) -> bool:
        return self.report is None and self.error is None


class Place:
    """A folder in which one world after the other is made. Its state store is opened once, for all of them.

    The store is in memory, or in a file if it is `on_disk`. With the `url` of an empty store on a server, one world is
    made. `looks_by` is another URL of it, by which the tests look at what it has.
    """

    def __init__(
        self,
        folder: Path,
        url: str | None = None,
        looks_by: str | None = None,
        tables: SimulatedTables | None = None,
        *,
        on_disk: bool = False,
    ) -> None:
        self.home = folder / "home"
        self.tables = tables or SimulatedFolders(folder / "tables")
        self.clock: Callable[[], datetime] = lambda: _CREATED
        self.settings = _settings(folder, self.tables.format)
        self._on_disk = on_disk
        self.store = self._open(url)
        self.looked_at = self._open(looks_by) if looks_by else self.store
        self._new_store: StoreCopy | None = None
        self.clear()
        self.store.connections()
        if isinstance(self.store, CopiedStore):
            self._new_store = self.store.copy()

    def move_store(self, url: str) -> None:
        """From now on the store is that at another URL."""
        self.store.close()
        self.looked_at = self.store = self._open(url)

    def close(self) -> None:
        self.store.close()
        self.looked_at.close()

    def clear(self) -> None:
        """Makes the folder as it was at first, with an empty store and no table."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        self.tables.clear()
        if self._new_store is not None and isinstance(self.store, CopiedStore):
            self.store.set_back(self._new_store)

    def _open(self, url: str | None) -> SimulatedStore:
        if url is not None:
            return SimulatedStore(url, clock=self._now)
        return StoreInFile(self.home / "state.db", self._now) if self._on_disk else StoreInMemory(self._now)

    def _now(self) -> datetime:
        return self.clock()


def _settings(folder: Path, tables: str) -> Settings:
    file = folder / "settings.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    # No world is old enough for a history to prune: to look for one takes a tenth of a run.
    written = {"catalog": {"format": tables}, "lease_seconds": LEASE_SECONDS, "keep_history_days": 0}
    file.write_text(yaml.safe_dump(written))
    return Settings.load(folder / "home", file)


class PlacedWorld:
    """A connection in a place that is emptied for it, with a clock that only steps move. Its store can be set back."""

    def __init__(self, place: Place, connection: str) -> None:
        place.clear()
        place.clock = self._tick
        self._place, self._name = place, connection
        self.home, self._settings = place.home, place.settings
        self.now = _CREATED
        self.fired: list[tuple[str, CallFault]] = []
        self._past: list[StoreCopy] = []

    def wait_for_lease(self) -> None:
        """The clock goes on until nobody holds the connection."""
        ends = [lease.expires_at for lease in self._place.looked_at.current_leases(self._name)]
        self.now = max([self.now, *ends]) + timedelta(seconds=1)

    def remember(self) -> None:
        """Keeps the store and the tables as they are, to be set back to."""
        store = self._place.store
        self._past.append(store.copy() if isinstance(store, CopiedStore) else {})
        self._place.tables.remember()

    def set_store_back(self, ago: int) -> None:
        assert isinstance(self._place.store, CopiedStore)
        self._place.store.set_back(self._past[self.moment(ago)])

    def moment(self, ago: int) -> int:
        """The number of the moment so many steps before."""
        return max(0, len(self._past) - ago)

    def _tick(self) -> datetime:
        # No two calls at one moment, as in life.
        self.now += timedelta(milliseconds=1)
        return self.now


class World(PlacedWorld):
    """The connection `shop` into the tables of a place."""

    def __init__(self, place: Place, writes: Sequence[str], state: str, *, parallel: int = 1) -> None:
        super().__init__(place, CONNECTION)
        self._parallel = parallel
        self.streams = STREAM_NAMES[: len(writes)]
        self.content = SourceContent(dict.fromkeys(self.streams, 0), state)
        self.writes = dict(zip(self.streams, writes, strict=True))

    # Runs.

    def sync(self, faults: Sequence[Fault] = (), *, refresh: Sequence[str] | None = None) -> RunResult:
        """Runs a sync. `refresh` names the streams that it reads anew; all others are left out then."""
        planned: dict[tuple[str, int | str], CallFault] = {(fault.where, fault.number): fault.kind for fault in faults}
        calls = CallFaults(planned, lambda: self._sync_meanwhile(calls))
        request = SyncRequest(only=refresh, refresh=True) if refresh is not None else SyncRequest()
        points.arm(calls.reach)
        try:
            with self._engine(calls) as engine:
                return RunResult(sync_connection(engine, self._connection(), request, _options(faults)), None)
        except ProtoError as error:
            return RunResult(None, error)
        except SimulatedDeath:
            return RunResult(None, None)
        finally:
            points.arm(None)
            self.fired += calls.fired

    def resolve(self, load_id: str) -> None:
        """Does what the error says: looks whether the rows of a load are in its tables, and says so."""
        landed = self._has_landed(load_id)
        with self._engine(CallFaults({})) as engine:
            try:
                resolve_load(engine, load_id, Resolution(landed, "a person"))
            except ConfigError:
                # Some of its rows are there, under a state that the streams share: it has to count as landed, and the
                # streams are read again.
                resolve_load(engine, load_id, Resolution(True, "a person"))
                self.sync(refresh=self.streams)

    def _has_landed(self, load_id: str) -> bool:
        """What a person sees: the table's log names the load, or, where that was expired, its last record is there."""
        entry = self._place.looked_at.load(load_id)
        assert entry is not None
        reached = positions_in([json.loads(state.message) for state in entry.load.states])
        for part in entry.load.parts:
            versions = {version for _, version in self.rows(part.stream.name)}
            if (
                load_id not in self._place.tables.loads(part.table)
                and reached.get(part.stream.name, 0) - 1 not in versions
            ):
                return False
        return True

    # What others do to it.

    def set_table_back(self, ago: int) -> None:
        self._place.tables.set_back(self._first_table, self.moment(ago))

    def drop_table(self) -> None:
        self._place.tables.drop(self._first_table)

    def maintain_tables(self) -> None:
        for stream in self.streams:
            self._place.tables.maintain(TableName(CONNECTION, stream))

    def forget_new_fields(self) -> None:
        """Leaves of the store what the previous release would have written."""
        with self._place.store.transaction() as tx:
            for load_id, body in tx.execute(
                text("select load_id, body from airbyte_proto_loads where status = 'announced'")
            ).all():
                value = msgspec.json.decode(body)
                for part in value["parts"]:
                    part.pop("connection", None)
                    part.pop("table_id", None)
                    part.pop("log_position", None)
                    part.pop("follows", None)
                tx.execute(
                    text("update airbyte_proto_loads set body = :body where load_id = :id"),
                    {"body": msgspec.json.encode(value).decode(), "id": load_id},
                )
            tx.execute(text("delete from airbyte_proto_landed_tables"))

    # What there is.

    def rows(self, stream: str) -> Rows:
        """The rows of a table, sorted."""
        return self._place.tables.rows(TableName(CONNECTION, stream))

    def expected(self, stream: str, number: int | None = None) -> list[tuple[int, int]]:
        """The rows that the first `number` records of the source make, or all."""
        records = range(self.content.records[stream] if number is None else number)
        if self.writes[stream] == "append_dedup":
            return sorted({version % KEYS: version for version in records}.items())
        return sorted((version % KEYS, version) for version in records)

    def positions(self) -> Mapping[str, int]:
        """The position in each stream's stored state."""
        return positions_in([json.loads(stored.state.message) for stored in self._place.looked_at.states(CONNECTION)])

    def _engine(self, calls: CallFaults) -> "_SimulatedEngine":
        engine = _SimulatedEngine(
            self._settings,
            store=with_faults(self._place.store, calls),
            tables=with_faults(self._place.tables.open(), calls),
        )
        engine.launcher = with_faults(ScriptedLauncher(self.content), calls)
        return engine

    def _connection(self) -> Connection:
        return _connection(tuple(self.writes.items()), self._place.tables.merge, self._parallel)

    def _sync_meanwhile(self, paused: CallFaults) -> None:
        """While a run is paused or hangs, its lease runs out, others maintain the tables, and another run works."""
        self.wait_for_lease()
        self.maintain_tables()
        self.sync()
        points.arm(paused.reach)

    @property
    def _first_table(self) -> TableName:
        return TableName(CONNECTION, self.streams[0])


@cache
def _connection(writes: tuple[tuple[str, str], ...], merge: str | None, parallel: int) -> Connection:
    streams = {
        stream: {
            "read": "full_refresh" if write == "overwrite" else "incremental",
            "write": write,
            **({"merge": merge} if merge and write == "append_dedup" else {}),
        }
        for stream, write in writes
    }
    return Connection.model_validate(
        {
            "name": CONNECTION,
            "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": ["scripted"]}},
            "config": {},
            "streams": streams,
            "load": {"max_bytes": 1},
            "parallel": parallel,
        }
    )


def _options(faults: Sequence[Fault]) -> RunOptions | None:
    """Where a connector hangs, a run does not wait for hours."""
    if not any(fault.kind is CallFault.HUNG and fault.where in HANGING for fault in faults):
        return None
    return RunOptions(threading.Event(), timeouts=SOON)


class _SimulatedEngine(Engine):
    launcher: ScriptedLauncher

    def source(self, connection: Connection, log: RunLog, window: Mapping[str, str] | None = None) -> Source:
        config = connector_config(connection, {}, window)
        connector = LaunchableConnector(self.launcher, source_protocol("airbyte"))
        return Source(connection, config, connector, self.answer_cache, log)
