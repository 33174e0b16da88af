"""A table whose rows a push sends to a scripted destination, in a world of its own."""

import shutil
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from itertools import takewhile
from typing import NamedTuple

import pyarrow as pa

from dagster_airbyte_proto import points
from dagster_airbyte_proto.checkpoints.load_ending import Resolution
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ProtoError, StagingError
from dagster_airbyte_proto.loads.push import Delivery, PushPosition
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.protocols.destination import DestinationProtocol
from dagster_airbyte_proto.protocols.lookup import PUSH, destination_protocol, state_codec_named
from dagster_airbyte_proto.sync.connector.configured_connector import ConfiguredConnector
from dagster_airbyte_proto.sync.connector.connector_config import connector_config
from dagster_airbyte_proto.sync.connector.queries import LaunchableConnector
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.maintenance.resolve import resolve_load
from dagster_airbyte_proto.sync.push.plan.plan_rows import plan_batches
from dagster_airbyte_proto.sync.push.push_context import LandedRows, PushRequest
from dagster_airbyte_proto.sync.push.run import push_connection
from dagster_airbyte_proto.sync.push_report import PushReport
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.run_options import RunOptions, Timeouts
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, SimulatedDeath, with_faults
from tests.simulation.pushes.push_memory import PushMemory
from tests.simulation.pushes.push_schedule import HANGING, PushKind, PushStep
from tests.simulation.pushes.scripted_destination import (
    REMOVED,
    DestinationContent,
    DestinationLauncher,
    Misbehaviour,
    Sent,
)
from tests.simulation.tables import SimulatedFolders
from tests.simulation.world import LEASE_SECONDS, SOON, Place, PlacedWorld
from tests.sync.push.pushed_table import Patience, replace_rows

_NAME = "crm"
_STREAM = StreamId.of("contacts")
_PEOPLE = TableName("shop", "people")
DELIVERED = TableName("_pushes", "crm__contacts")
_SCHEMA = pa.schema([("id", pa.int64()), ("version", pa.int64()), ("score", pa.float64())])
_BATCH_ROWS = 3


class PushRun(NamedTuple):
    """A run has a report, or an error that ended it before, or neither if it died."""

    report: PushReport | None
    error: ProtoError | None

    @property
    def died(self) -> bool:
        return self.report is None and self.error is None


class PushWorld(PlacedWorld):
    """The connection `crm`, which pushes the table `shop.people`: keys with versions that only grow. Some of these have
    a score that JSON has no form for, and are rejected."""

    def __init__(self, place: Place, kind: PushKind) -> None:
        super().__init__(place, _NAME)
        assert isinstance(place.tables, SimulatedFolders)
        self._folders = place.tables
        self.kind = kind
        self.content = DestinationContent(kind.manner, self._arrives)
        self.people: dict[int, int] = {}
        self.memory = PushMemory(kind, self.content.written)
        self.violations: list[str] = []
        self.times_paused = 0
        self.past_rows: set[frozenset[Sent]] = set()
        """The rows that the table has had at any time."""
        self._last_id = self._last_version = 0
        self._known: tuple[object, Delivery | None] = (None, None)
        self._fill()

    # Runs.

    def push(self, step: PushStep | None = None, request: PushRequest = PushRequest()) -> PushRun:  # noqa: B008 - frozen
        """Runs a push, with the faults of a step."""
        faults = step.faults if step else ()
        planned: dict[tuple[str, int | str], CallFault] = {(fault.where, fault.number): fault.kind for fault in faults}
        calls = CallFaults(planned, lambda: self._push_meanwhile(calls))
        self.content.misbehaves = step.misbehaves if step else Misbehaviour()
        self.memory.begin(self._unknown() if request.retries_unknown else ())
        points.arm(calls.reach)
        try:
            with self._engine(calls) as engine:
                return PushRun(push_connection(engine, _connection(self.kind), request, self._options(step)), None)
        except ProtoError as error:
            return PushRun(None, error)
        except SimulatedDeath:
            self.content.caller_has_died()
            return PushRun(None, None)
        finally:
            points.arm(None)
            self.fired += calls.fired
            self.look()

    def resolve(self, load_id: str) -> None:
        """Does what the error says: looks whether a load is in the delivered table, and says so."""
        has_landed = load_id in self._folders.loads(DELIVERED)
        with self._engine(CallFaults({})) as engine:
            resolve_load(engine, load_id, Resolution(has_landed, "a person"))

    def reset(self) -> None:
        """Forgets the state of the stream, by the hand of a person."""
        with self._engine(CallFaults({})) as engine, acquire_lease(engine.store, _NAME, "reset", LEASE_SECONDS) as held:
            engine.store.change_state(held.lease, _STREAM, None, who="a person")

    # What others do to it.

    def change(self, added: int, changed: int, removed: int) -> None:
        """Changes rows of the pushed table, the oldest first; removes some, and adds some."""
        oldest = sorted(self.people, key=lambda key: self.people[key])
        for key in oldest[:changed]:
            self.people[key] = self._next_version()
        for key in oldest[changed : changed + removed]:
            del self.people[key]
        for _ in range(added):
            self._last_id += 1
            self.people[self._last_id] = self._next_version()
        self._fill()

    def remember(self) -> None:
        super().remember()
        self.memory.remember()

    def set_store_back(self, ago: int) -> None:
        super().set_store_back(ago)
        self.memory.set_store_back(self.moment(ago))
        self._forget()

    def set_table_back(self, ago: int) -> None:
        """Sets the delivered table back. Files beside it stay, as in a table that is rolled back."""
        folder = self._folders.open().folder(DELIVERED)
        plans, kept = folder / "plans", self.home / "plans kept"
        if plans.exists():
            shutil.move(plans, kept)
        self._folders.set_back(DELIVERED, self.moment(ago))
        if kept.exists():
            shutil.rmtree(plans, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            shutil.move(kept, plans)
        self._forget()

    def move_clock(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    def drop_table(self) -> None:
        self._folders.drop(DELIVERED)
        self._forget()

    # What there is.

    def sendable_rows(self) -> frozenset[Sent]:
        """The rows of the pushed table that JSON has a form for."""
        return frozenset(row for each in self.people.items() if (row := Sent(*each)).is_sendable)

    def delivery(self) -> Delivery | None:
        """The delivery of the stream, as the store has it now."""
        version = self._place.looked_at.version()
        if self._known[0] != version:  # It is looked at before each row.
            self._known = version, self._place.looked_at.deliveries(_NAME).get(_STREAM)
        return self._known[1]

    def delivered(self) -> Mapping[int, str]:
        """The keys of the delivered table, with their status."""
        tables = self._folders.open()
        if DELIVERED not in tables.names():
            return {}
        return {row["id"]: row["_status"] for row in tables.rows(DELIVERED).to_pylist()}

    def landed(self) -> LandedRows:
        """The number of unknown rows up to the first one that the destination lacks, by the eye of a person."""
        delivery, written = self.delivery(), {*self.content.written}
        landed = takewhile(lambda row: row in written or not row.is_sendable, self._unknown())
        return LandedRows(len([*landed]), delivery.undecided if delivery is not None else 0)

    def plan_files(self) -> list[str]:
        """The files of plans that are still there."""
        return sorted(path.name for path in self.home.parent.rglob("plans/**/*.parquet") if "past" not in path.parts)

    def _rows_of(self, delivery: Delivery, start: int, end: int) -> list[Sent] | None:
        """Rows of a plan; None if its files are gone."""
        found = []
        try:
            for batch in plan_batches(delivery.plan, LOCAL, start, end):
                ids = batch.rows.column("id").to_pylist()
                versions = [REMOVED] * len(ids) if batch.is_removal else batch.rows.column("version").to_pylist()
                found += [Sent(*row) for row in zip(ids, versions, strict=True)]
        except StagingError:
            return None
        return found

    def look(self) -> None:
        """Takes in what the store knows by now."""
        delivery = self.delivery()
        if delivery is not None and delivery.plan.plan_id not in self.memory.plans:
            rows = self._rows_of(delivery, 0, delivery.plan.rows)
            if rows is not None:
                self.memory.sealed(delivery.plan, rows, self.people)
        if delivery is not None:
            self.memory.acknowledged(delivery)

    def _unknown(self) -> list[Sent]:
        """The rows on which a person has to decide."""
        delivery = self.delivery()
        if delivery is None or not delivery.undecided:
            return []
        return self._rows_of(delivery, delivery.acknowledged, delivery.announced) or []

    def _forget(self) -> None:
        delivery = self.delivery()
        planned = self._rows_of(delivery, self._folded(delivery), delivery.announced) if delivery is not None else []
        self.memory.forget(self.content.held(), [*self.delivered(), *(row.id for row in planned or [])])

    def _folded(self, delivery: Delivery) -> int:
        """The rows of a plan that had come into the delivered table: the next push does not bring them in again."""
        codec = state_codec_named(PUSH)
        found = [PushPosition.of(codec.value(stored.state)) for stored in self._place.looked_at.states(_NAME)]
        return max((each.rows for each in found if each and each.plan_id == delivery.plan.plan_id), default=0)

    def _arrives(self, row: Sent) -> None:
        self.look()
        if fault := self.memory.fault_of(row):
            self.violations.append(fault)

    def _push_meanwhile(self, paused: CallFaults) -> None:
        """While a run is paused or hangs, its lease runs out, another run works, and a third that has newer rows."""
        self.times_paused += 1
        self.wait_for_lease()
        self.push()
        self.change(added=0, changed=1, removed=0)
        self.push()
        points.arm(paused.reach)

    def _fill(self) -> None:
        self.past_rows.add(self.sendable_rows())
        rows = [
            {"id": key, "version": version, "score": 0.5 if Sent(key, version).is_sendable else float("nan")}
            for key, version in self.people.items()
        ]
        replace_rows(self._folders.open(), _PEOPLE, pa.Table.from_pylist(rows, _SCHEMA))

    def _next_version(self) -> int:
        self._last_version += 1
        return self._last_version

    def _options(self, step: PushStep | None) -> RunOptions:
        faults = step.faults if step else ()
        hangs = any(fault.kind is CallFault.HUNG and fault.where in HANGING for fault in faults)
        is_soon = hangs or (step is not None and step.misbehaves.hangs_after > 0)
        timeouts = SOON if is_soon else Timeouts()
        return RunOptions(Patience(), timeouts=timeouts, clock=lambda: self.now.timestamp())

    def _engine(self, calls: CallFaults) -> "_PushEngine":
        tables = with_faults(self._folders.open(), calls)
        engine = _PushEngine(self._settings, store=with_faults(self._place.store, calls), tables=tables)
        engine.launcher = with_faults(DestinationLauncher(self.content), calls)
        return engine


@cache
def _connection(kind: PushKind) -> Connection:
    manner = kind.manner
    push = {"from": "shop.people", "mode": kind.mode, "changes": kind.changes, "key": ["id"]}
    cursor = {"cursor": "version"} if kind.changes == "cursor" else {}
    return Connection.model_validate(
        {
            "name": _NAME,
            "connector": {"protocol": manner.protocol, "launch": {"kind": "local", "command": ["scripted"]}},
            "config": {},
            "push": {"contacts": {**push, **cursor, "max_removed": "100 %", "max_rejected": "100 %"}},
            "batch": {"rows": _BATCH_ROWS},
            **({"checkpoint_rows": kind.checkpoint_rows} if kind.checkpoint_rows else {}),
            **({"acknowledge": "exit"} if manner.echo == "exit" else {}),
            **({"catalog": "none"} if manner.protocol == "airbyte" else {}),
        }
    )


class _PushEngine(Engine):
    launcher: DestinationLauncher

    def destination(self, connection: Connection, log: RunLog) -> ConfiguredConnector[DestinationProtocol]:
        connector = LaunchableConnector(self.launcher, destination_protocol(connection.connector.protocol))
        return ConfiguredConnector(connection, connector_config(connection, {}, {}), connector, self.answer_cache, log)
