"""A scripted source whose records go to a scripted destination, in a world of its own."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache, partial

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto import points
from dagster_airbyte_proto.checkpoints.load_ending import Resolution
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.loads.load import FileContent
from dagster_airbyte_proto.loads.push import Delivery
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.destination import DestinationProtocol
from dagster_airbyte_proto.protocols.lookup import destination_protocol, source_protocol
from dagster_airbyte_proto.schema.columns import WHOLE_RECORD
from dagster_airbyte_proto.sync.connector.configured_connector import ConfiguredConnector
from dagster_airbyte_proto.sync.connector.connector_config import connector_config
from dagster_airbyte_proto.sync.connector.queries import LaunchableConnector
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.maintenance.resolve import resolve_load
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.run_options import RunOptions, Timeouts
from dagster_airbyte_proto.tables.writer import TableWriter
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, SimulatedDeath, with_faults
from tests.simulation.pushes.scripted_destination import Misbehaviour, Sent
from tests.simulation.relays.peculiar_destination import Behaviour, PeculiarLauncher, RelayedContent
from tests.simulation.relays.relay_memory import Known, StreamMemory
from tests.simulation.relays.relay_schedule import HANGING, RelayKind, RelayStep, streams_of
from tests.simulation.scripted_source import KEYS, ScriptedLauncher, SourceContent, positions_in
from tests.simulation.world import SOON, Place, PlacedWorld, RunResult
from tests.sync.push.pushed_table import Patience

_NAME = "forward"
_BATCH_ROWS = 3


class RelayWorld(PlacedWorld):
    """The connection `forward`: the records of its streams, keys with versions that only grow, go to a destination."""

    def __init__(self, place: Place, kind: RelayKind) -> None:
        super().__init__(place, _NAME)
        self.kind = kind
        self.streams = streams_of(kind)
        self.writes = dict(zip(self.streams, kind.writes, strict=True))
        self.source = SourceContent(dict.fromkeys(self.streams, 0), kind.state)
        self.contents = {stream: RelayedContent(kind.manner, partial(self.arrives, stream)) for stream in self.streams}
        self.memories = {stream: StreamMemory() for stream in self.streams}
        self.violations: list[str] = []
        self.times_paused = 0
        self.past_records: dict[str, set[int]] = {stream: {0} for stream in self.streams}
        """The numbers of records that the source had when it was read."""
        self._plans: dict[str, list[Sent]] = {}
        self._looked: dict[str, int] = {}

    # Runs.

    def sync(self, step: RelayStep | None = None, request: SyncRequest = SyncRequest()) -> RunResult:  # noqa: B008 - frozen
        """Runs a sync, with the faults of a step and the behaviour that the destination has in it."""
        behaviour = step.behaviour if step else Behaviour()
        for number, content in enumerate(self.contents.values()):
            content.behaviour = behaviour if step and step.odd == number else Behaviour()
            content.misbehaves = Misbehaviour() if content.behaviour.is_bad else content.behaviour.breaks
        return self._run(step, request)

    def _run(self, step: RelayStep | None, request: SyncRequest) -> RunResult:
        faults = step.faults if step else ()
        planned: dict[tuple[str, int | str], CallFault] = {(fault.where, fault.number): fault.kind for fault in faults}
        calls = CallFaults(planned, lambda: self._work_meanwhile(calls))
        for stream, number in self.source.records.items():
            self.past_records[stream].add(number)
        if request.retries_unknown:
            for stream, rows in self.unknown().items():
                self.memories[stream].may_be_twice.update(rows)
        points.arm(calls.reach)
        try:
            with self._engine(calls) as engine:
                return RunResult(sync_connection(engine, _connection(self.kind), request, self._options(step)), None)
        except ProtoError as error:
            return RunResult(None, error)
        except SimulatedDeath:
            for content in self.contents.values():
                content.caller_has_died()
            return RunResult(None, None)
        finally:
            points.arm(None)
            self.fired += calls.fired
            self.look()

    def resolve(self, load_id: str, *, as_landed: bool) -> bool:
        """Ends a load by the word of a person. False if that is refused: others of its streams have landed."""
        rows = self.rows_of_load(load_id)
        with self._engine(CallFaults({})) as engine:
            try:
                resolve_load(engine, load_id, Resolution(as_landed, "a person"))
            except ConfigError:
                return False
        for stream, of_stream in rows.items():
            if as_landed:
                self.contents[stream].proved.update(of_stream)
            else:
                self.memories[stream].may_be_twice.update(of_stream)
        return True

    # What others do to it.

    def offer(self, records: Sequence[int]) -> None:
        for stream, more in zip(self.streams, records, strict=True):
            self.source.records[stream] += more

    def set_store_back(self, ago: int) -> None:
        """The store knows as little as then: what the destination got since may come again."""
        super().set_store_back(ago)
        for stream, memory in self.memories.items():
            memory.may_be_twice.update(self.contents[stream].visible)

    def move_clock(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    # What there is.

    def expected(self, stream: str, number: int) -> dict[int, int]:
        """The newest version of each key among the first records of a stream, without the rejected ones."""
        rejected = self.contents[stream].rejected
        return {row.id: row.version for row in rows_before(number) if row not in rejected}

    def positions(self) -> Mapping[str, int]:
        """The position in each stream's stored state."""
        return positions_in([json.loads(stored.state.message) for stored in self._place.looked_at.states(_NAME)])

    def announced(self) -> set[str]:
        return {load.load_id for load in self._place.looked_at.announced_loads(_NAME)}

    def deliveries(self) -> Mapping[str, Delivery]:
        """The delivery of each stream whose load is announced."""
        announced, found = self.announced(), self._place.looked_at.deliveries(_NAME)
        return {stream.name: each for stream, each in found.items() if each.plan.plan_id in announced}

    def unknown(self) -> Mapping[str, Sequence[Sent]]:
        """The rows on which a person has to decide."""
        return {
            stream: self._plans.get(f"{each.plan.plan_id} {stream}", [])[each.acknowledged : each.announced]
            for stream, each in self.deliveries().items()
            if each.undecided
        }

    def undecided_loads(self) -> set[str]:
        return {each.plan.plan_id for each in self.deliveries().values() if each.undecided}

    def rows_of_load(self, load_id: str) -> Mapping[str, Sequence[Sent]]:
        entry = self._place.looked_at.load(load_id)
        assert entry is not None
        return {
            part.stream.name: self._rows(
                f"{load_id} {part.stream.name}",
                [file.path for file in part.files if file.content is FileContent.ROWS],
            )
            for part in entry.load.parts
        }

    def staged_files(self) -> list[str]:
        return sorted(str(path) for path in (self.home / "staging").rglob("*.parquet"))

    def look(self) -> None:
        """Takes in what the store knows by now."""
        positions = self.positions()
        found = self._place.looked_at.deliveries(_NAME)
        announced = self.announced() if found else set()
        for stream, memory in self.memories.items():
            delivery = found.get(StreamId.of(stream))
            acknowledged: frozenset[Sent] = frozenset()
            if delivery is not None:
                plan = delivery.plan
                rows = self._rows(f"{plan.plan_id} {stream}", [file.path for file in plan.files])
                acknowledged = frozenset(rows[: delivery.acknowledged] if plan.plan_id in announced else ())
            memory.known = Known(positions.get(stream, 0), acknowledged, delivery.plan.mode if delivery else None)

    def _rows(self, plan: str, files: Sequence[str]) -> list[Sent]:
        """The rows of a stream in a load; those that are known already if its files are gone by now."""
        if plan not in self._plans:
            with suppress(OSError, pa.ArrowException):
                records = [json.loads(text) for path in files for text in _texts(path)]
                self._plans[plan] = [Sent(record["id"], record["version"]) for record in records]
        return self._plans.get(plan, [])

    def arrives(self, stream: str, row: Sent) -> None:
        """A row comes to the destination."""
        content = self.contents[stream]
        if self._looked.get(stream) != content.batches:
            self._looked[stream] = content.batches
            self.look()
        if fault := self.memories[stream].fault_of(row, content.visible):
            self.violations.append(f"{stream}: {fault}")

    def _work_meanwhile(self, paused: CallFaults) -> None:
        """While a run is paused or hangs, its lease runs out, another run works, and a third that has newer records."""
        self.times_paused += 1
        self.wait_for_lease()
        self._run(None, SyncRequest())
        self.offer([1] * len(self.streams))
        self._run(None, SyncRequest())
        points.arm(paused.reach)

    def _options(self, step: RelayStep | None) -> RunOptions:
        faults = step.faults if step else ()
        hangs = any(fault.kind is CallFault.HUNG and fault.where in HANGING for fault in faults)
        is_soon = hangs or any(content.behaviour.breaks.hangs_after for content in self.contents.values())
        timeouts = SOON if is_soon else Timeouts()
        return RunOptions(Patience(), timeouts=timeouts, clock=lambda: self.now.timestamp())

    def _engine(self, calls: CallFaults) -> "_RelayEngine":
        store, tables = with_faults(self._place.store, calls), self._place.tables.open()
        engine = _RelayEngine(self._settings, store=store, tables=tables)
        engine.calls = calls
        engine.launchers = (
            with_faults(ScriptedLauncher(self.source), calls),
            with_faults(PeculiarLauncher(self.contents), calls),
        )
        return engine


@cache
def _connection(kind: RelayKind) -> Connection:
    manner, launch = kind.manner, {"kind": "local", "command": ["scripted"]}
    streams = {
        stream: {"read": "full_refresh" if write == "overwrite" else "incremental", "write": write}
        for stream, write in zip(streams_of(kind), kind.writes, strict=True)
    }
    return Connection.model_validate(
        {
            "name": _NAME,
            "connector": {"protocol": "airbyte", "launch": launch},
            "config": {},
            "streams": streams,
            "load": {"max_bytes": 1 << 20 if kind.whole_loads else 1},
            "to": {"connector": {"protocol": manner.protocol, "launch": launch}, "config": {}},
            "batch": {"rows": _BATCH_ROWS},
            **({"checkpoint_rows": kind.checkpoint_rows} if kind.checkpoint_rows else {}),
            **({"acknowledge": "exit"} if manner.echo == "exit" else {}),
            **({"catalog": "none"} if manner.protocol == "airbyte" else {}),
        }
    )


class _RelayEngine(Engine):
    """The engine of a relay. The storage of its destination fails as planned, too."""

    calls: CallFaults
    launchers: tuple[ScriptedLauncher, PeculiarLauncher]

    def with_tables(self, tables: TableWriter) -> "_RelayEngine":
        options = self._connector_options._replace(answer_cache=self.answer_cache)
        faulty = with_faults(tables, self.calls)
        engine = _RelayEngine(self.settings, store=self.store, tables=faulty, connector_options=options)
        engine.calls, engine.launchers = self.calls, self.launchers
        return engine

    def source(self, connection: Connection, log: RunLog, window: Mapping[str, str] | None = None) -> Source:
        connector = LaunchableConnector(self.launchers[0], source_protocol("airbyte"))
        return Source(connection, connector_config(connection, {}, window), connector, self.answer_cache, log)

    def destination(self, connection: Connection, log: RunLog) -> ConfiguredConnector[DestinationProtocol]:
        connector = LaunchableConnector(self.launchers[1], destination_protocol(connection.connector.protocol))
        return ConfiguredConnector(connection, connector_config(connection, {}, {}), connector, self.answer_cache, log)


def _texts(path: str) -> list[str]:
    with pq.ParquetFile(path) as file:
        texts: list[str] = file.read([WHOLE_RECORD], use_threads=False)[WHOLE_RECORD].to_pylist()
    return texts


def rows_before(number: int) -> list[Sent]:
    """The first records of a stream, as rows."""
    return [Sent(version % KEYS, version) for version in range(number)]
