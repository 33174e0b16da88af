"""One sync, from its lease to its report."""

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from dagster_airbyte_proto.checkpoints.ledger import Ledger
from dagster_airbyte_proto.checkpoints.store import OpenGeneration
from dagster_airbyte_proto.connection import Connection, DockerLaunch
from dagster_airbyte_proto.errors import InternalError, ProtoError
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import PlannedStream, ReadMode, State, StateScope, StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.protocols.conversation import ReadRequest
from dagster_airbyte_proto.protocols.events import ConfigEvent
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.schema.evolution import Terms as EvolutionTerms
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.stage import Stage, StreamInput
from dagster_airbyte_proto.sync.commit.committer import Committer
from dagster_airbyte_proto.sync.commit.landing import Landing
from dagster_airbyte_proto.sync.commit.loader import Loader, LoadLimits
from dagster_airbyte_proto.sync.commit.targets import Targets, table_spec
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.delivery import Delivered, Delivery, Undelivered
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import LeaseKeeper, Waiting, held_lease
from dagster_airbyte_proto.sync.maintenance.auto_compact import Upkeep, kept_up
from dagster_airbyte_proto.sync.plan.format_check import refuse_unfit
from dagster_airbyte_proto.sync.plan.generations import continued, likenesses_of, note
from dagster_airbyte_proto.sync.plan.resume import fields_read, note_states, resumed
from dagster_airbyte_proto.sync.plan.shapes import Shapes
from dagster_airbyte_proto.sync.plan.shared_state import planned_together
from dagster_airbyte_proto.sync.plan.stream_plan import (
    Wanted,
    is_resumable,
    may_be_refreshed,
    replaces,
    with_generations,
)
from dagster_airbyte_proto.sync.read.pull import Patience, Pull, Surroundings
from dagster_airbyte_proto.sync.read.schema_messages import Described, Redone, as_told
from dagster_airbyte_proto.sync.report import ConnectorReport, Seconds, SyncReport, SyncStatus, overall
from dagster_airbyte_proto.sync.run_log import RunLog, new_run_id
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.tables.writer import KeepsAside

_EVERYTHING = Wanted()


class Watcher(Protocol):
    """Looks on while a sync runs. Called from the reading thread, often: it must be quick."""

    def began(self, run_id: str, runs: Mapping[StreamId, StreamRun]) -> None: ...

    def progressed(self) -> None: ...

    def said(self, level: str, text: str) -> None:
        """A line of the connector's log, masked. May come from another thread."""
        ...


class Unwatched:
    """Nobody looks on."""

    def began(self, run_id: str, runs: Mapping[StreamId, StreamRun]) -> None: ...

    def progressed(self) -> None: ...

    def said(self, level: str, text: str) -> None: ...


class Terms(NamedTuple):
    """How a sync is run, beside what it moves. Setting `cancel` ends it early, with what is covered committed.

    `run_id` may be that of an attempt before. While another run holds the connection it is waited for so long.
    """

    cancel: threading.Event
    watcher: Watcher = Unwatched()
    patience: Patience = Patience()
    delivery: Delivery = Undelivered()
    run_id: str | None = None
    lease_wait_seconds: float = 0.0


class _Done(NamedTuple):
    """A sync that is over, its lease about to be let go of."""

    report: SyncReport
    runs: Collection[StreamRun]


def sync_connection(
    engine: Engine, connection: Connection, wanted: Wanted = _EVERYTHING, terms: Terms | None = None
) -> SyncReport:
    """One sync. What goes wrong before the connector runs is raised; afterwards the report tells it."""
    terms = terms or Terms(threading.Event())
    run_id = terms.run_id or new_run_id()
    with RunLog(engine.settings.logs_folder / connection.name, run_id, on_line=terms.watcher.said) as log:
        with (
            held_lease(
                engine.store, connection.name, run_id, engine.settings.lease_seconds, _waiting(terms, log)
            ) as keeper,
            Committer(engine.store, lambda: engine.tables, keeper.lease, partition=wanted.partition) as committer,
        ):
            reach("run.leased")
            recovered = len(committer.recover())
            source = engine.source(connection, log, wanted.slice.words if wanted.slice else {})
            done = _Sync(engine, source, (wanted, terms), keeper, log).run(committer, recovered)
        return _with_upkeep(done, kept_up(engine, done.runs, log, terms.cancel))


def _with_upkeep(done: _Done, upkeep: Upkeep) -> SyncReport:
    warnings = (*done.report.warnings, *upkeep.warnings)
    return msgspec.structs.replace(done.report, warnings=warnings, compacted=upkeep.compacted)


def _waiting(terms: Terms, log: RunLog) -> Waiting:
    return Waiting(terms.lease_wait_seconds, terms.cancel, partial(log.write, "NOTE"))


def recover_connection(engine: Engine, name: str) -> int:
    """Ends or removes what dead runs of a connection left, and starts nothing. How many loads it ended."""
    with (
        held_lease(engine.store, name, new_run_id(), engine.settings.lease_seconds) as keeper,
        Committer(engine.store, lambda: engine.tables, keeper.lease) as committer,
    ):
        return len(committer.recover())


class _Staging(NamedTuple):
    """What one run stages and commits with."""

    runs: Mapping[StreamId, StreamRun]
    targets: Targets
    stage: Stage
    ledger: Ledger
    loader: Loader
    sync_id: int


class _Sync:
    """The steps of one run that holds its connection."""

    def __init__(
        self, engine: Engine, source: Source, call: tuple[Wanted, Terms], keeper: LeaseKeeper, log: RunLog
    ) -> None:
        self._engine = engine
        self._store = engine.store
        self._source = source
        self._keeper = keeper
        self._lease = keeper.lease
        self._wanted, self._terms = call
        self._log = log
        self._version = source.identity
        self._hash_key = ""
        self._began = time.monotonic()

    def run(self, committer: Committer, recovered: int) -> _Done:
        wanted = self._wanted
        self._engine.warm()
        self._source.take_kept_config(self._store)
        self._source.check_config()
        stored = self._stored()
        catalog = wanted.catalog or self._source.catalog()
        # Streams of a slice all start from nothing: none can leave another behind.
        shapes = Shapes(self._store, self._lease, self._log)
        chosen = planned_together(self._source, catalog, wanted, () if wanted.slice else stored, shapes.tables)
        refuse_unfit(self._source.connection.name, chosen, self._engine.abilities)
        told = self._source.told() if self._source.protocol.describes_streams else {}
        chosen = shapes.named(as_told(chosen, told))
        if self._source.unkept_config is not None:
            self._store.keep_config(self._lease, self._source.unkept_config, based_on=self._source.config_digest)
        columns = {planned.id: table_columns(planned) for planned in chosen}
        if any(each.shape and each.shape.hashed for each in columns.values()):
            self._hash_key = self._source.hash_key()
        terms = {each.id: self._evolution(shapes, each, columns[each.id]) for each in chosen}
        likenesses = likenesses_of(chosen, columns, self._source.config_digest)
        states = () if wanted.is_anew else resumed(chosen, stored)
        begun = self._store.open_generations(self._source.connection.name)
        going_on = continued(begun, likenesses, states, lambda: self._engine.tables)
        streams, sync_id = self._numbered(chosen, going_on)
        committer.drop_dead_generations()
        states = (*states, *(each.state for each in going_on.values() if each.state is not None))
        request = ReadRequest(self._source.config, streams, states, sync_id, catalog.streams, fields_read(columns))
        shapes.begin(streams, columns)
        shapes.note_gone(catalog)
        specs = {each.id: table_spec(each, columns[each.id], terms[each.id], going_on.get(each.id)) for each in streams}
        staging = self._staging(streams, columns, specs, (request, committer))
        described = self._described(staging, columns, shapes, going_on)
        note_states(staging.runs, stored)
        note(staging.runs, likenesses, going_on, self._source.connection.name)
        self._terms.watcher.began(self._lease.run_id, staging.runs)
        pull = Pull(
            self._source.protocol,
            staging.runs,
            (staging.stage, self._landing(staging, shapes)),
            self._around(staging, described),
            self._terms.patience,
        )
        fatal = self._pull(pull, staging, request)
        newest = {**told, **described.told}
        if newest != told:
            self._source.keep_told(newest.values())
        report = self._report(pull, staging, recovered, fatal)
        report = msgspec.structs.replace(report, warnings=(*shapes.warnings, *report.warnings))
        self._end(report)
        return _Done(report, staging.runs.values())

    def _stored(self) -> list[State]:
        return [
            each.state for each in self._store.states(self._source.connection.name, partition=self._wanted.partition)
        ]

    def _numbered(
        self, chosen: Sequence[PlannedStream], continued: Collection[StreamId]
    ) -> tuple[tuple[PlannedStream, ...], int]:
        wanted = self._wanted
        streams = [planned.id for planned in chosen]
        start = self._store.begin_run(
            self._lease,
            refreshed=[each.id for each in chosen if wanted.begins(each) and each.id not in continued],
            streams=streams,
            continued=[*continued],
            partition=wanted.partition,
        )
        reach("run.begun")
        return with_generations(chosen, start.generations), start.sync_id

    def _staging(
        self,
        streams: Sequence[PlannedStream],
        columns: Mapping[StreamId, Columns],
        specs: Mapping[StreamId, TableSpec],
        asked: tuple[ReadRequest, Committer],
    ) -> _Staging:
        request, committer = asked
        runs = {planned.id: StreamRun(planned) for planned in streams}
        targets = Targets(lambda: self._engine.tables, specs, (self._store, self._lease), self._terms.cancel)
        inputs = [self._input(run, columns[stream], targets) for stream, run in runs.items()]
        protocol = self._source.protocol
        other_names = protocol.other_names(request)
        stage = Stage(
            inputs, protocol.shape, run_id=self._lease.run_id, sync_id=request.sync_id, other_names=other_names
        )
        tracked = [run.planned for run in runs.values() if run.planned.read is ReadMode.INCREMENTAL]
        ledger = Ledger(
            (each.id for each in tracked),
            whole=(each.id for each in tracked if replaces(each)),
            resumable=(each.id for each in streams if is_resumable(each)),
        )
        load = self._source.connection.load
        limits = LoadLimits(load.max_bytes, load.max_seconds)
        loader = Loader(self._lease, (stage, ledger, committer), runs, limits, self._whole)
        return _Staging(runs, targets, stage, ledger, loader, request.sync_id)

    def _input(self, run: StreamRun, columns: Columns, targets: Targets) -> StreamInput:
        target = partial(targets.target, run, self._engine.settings.staging_folder)
        return StreamInput(run.planned, columns, target, self._hash_key, lambda: self._engine.tables)

    def _evolution(self, shapes: Shapes, planned: PlannedStream, columns: Columns) -> EvolutionTerms:
        helps = self._engine.abilities.has_new_columns_with_rows and may_be_refreshed(planned)
        return shapes.terms(planned, columns, refresh_helps=helps)

    def _whole(self, state: State) -> State:
        """A shared state with what it says nothing of: the sub-states of streams that were not asked for this time."""
        if state.scope is not StateScope.GLOBAL:
            return state
        before = tuple(state for state in self._stored() if state.scope is StateScope.GLOBAL)
        return self._source.protocol.merged(before, state)[0]

    def _landing(self, staging: _Staging, shapes: Shapes) -> Landing:
        def settle_tables(runs: Iterable[StreamRun]) -> None:
            waited = list(runs)
            staging.targets.settle(waited)
            shapes.note(waited)

        return Landing(
            staging.runs,
            (staging.stage, staging.ledger, staging.loader),
            settle_tables,
            lambda: isinstance(self._engine.tables_if_open, KeepsAside),
        )

    def _described(
        self,
        staging: _Staging,
        columns: Mapping[StreamId, Columns],
        shapes: Shapes,
        going_on: Mapping[StreamId, OpenGeneration],
    ) -> Described:
        def redo(run: StreamRun, found: Columns) -> Redone:
            terms = self._evolution(shapes, run.planned, found)
            spec = table_spec(run.planned, found, terms, going_on.get(run.planned.id))
            return Redone(self._input(run, found, staging.targets), spec)

        return Described(columns, (staging.stage, staging.loader, staging.targets), shapes, redo)

    def _around(self, staging: _Staging, described: Described) -> Surroundings:
        def is_cancelled() -> bool:
            self._keeper.check()
            return self._terms.cancel.is_set()

        return Surroundings(
            self._log,
            is_cancelled,
            self._keep_config,
            self._terms.watcher.progressed,
            described.take,
            not isinstance(self._source.connection.connector.launch, DockerLaunch),
            partial(self._deliver, staging),
        )

    def _deliver(self, staging: _Staging) -> None:
        last = staging.loader.last_landed
        parts = {part.stream: part for part in last.load.parts} if last else {}
        self._terms.delivery.deliver(
            [
                Delivered(
                    stream,
                    run.planned.table,
                    run.report(self._source.protocol, self._source.mask, is_delivered=True),
                    last.load.load_id if last and stream in parts else None,
                    parts.get(stream),
                    self._version,
                    run.planned,
                    run.location,
                    staging.sync_id,
                    run.lacking,
                )
                for stream, run in staging.runs.items()
                if run.status is SyncStatus.COMPLETE
            ]
        )

    def _keep_config(self, event: ConfigEvent) -> None:
        config = self._source.rewrote_config(event.config)
        if config is not None:
            self._store.keep_config(self._lease, config, based_on=self._source.config_digest)

    def _pull(self, pull: Pull, staging: _Staging, request: ReadRequest) -> ProtoError | None:
        """What ended the sync as a whole, if anything did. Nothing is at work any more when this returns."""
        connector: RunningConnector | None = None
        try:
            if not self._source.protocol.describes_streams:
                staging.targets.prepare_all()
            connector = self._source.connector.launch(self._source.protocol.read(request))
            pull.run(connector)
        except InternalError:
            raise
        except ProtoError as error:
            if connector is None:
                raise
            return error
        finally:
            staging.loader.shut()
            staging.targets.close()
            staging.stage.close()
        return None

    def _report(self, pull: Pull, staging: _Staging, recovered: int, fatal: ProtoError | None) -> SyncReport:
        runs = staging.runs.values()
        if fatal is not None:
            for run in runs:
                run.abandon(fatal)
        ended = pull.exit
        failed = fatal is not None or bool(pull.errors) or ended is None or not ended.ended_cleanly
        return SyncReport(
            connection=self._source.connection.name,
            status=overall([run.status for run in runs], cancelled=pull.cancelled, connector_failed=failed),
            run_id=self._lease.run_id,
            recovered_loads=recovered,
            streams={str(run.planned.id): run.report(self._source.protocol, self._source.mask) for run in runs},
            loads=staging.loader.committed_loads,
            lines=pull.lines,
            connector=ConnectorReport(
                exit_code=ended.code if ended else None,
                seconds=ended.seconds if ended else 0.0,
                signal=ended.signal if ended else None,
                errors=tuple(self._source.mask.text(error) for error in pull.errors),
                version=self._version,
            ),
            seconds=Seconds(
                time.monotonic() - self._began,
                pull.seconds_waiting,
                pull.seconds_staging,
                staging.loader.seconds_committing,
            ),
            error=self._source.mask.text(str(fatal)) if fatal else None,
            warnings=tuple(self._source.mask.text(warning) for warning in self._warnings(pull)),
            partition=self._wanted.partition,
        )

    def _warnings(self, pull: Pull) -> Sequence[str]:
        trouble = self._log.trouble
        return [*pull.warnings, *([f"the log is not whole: {trouble}"] if trouble else [])]

    def _end(self, report: SyncReport) -> None:
        """A run that lost its connection to another has nothing to say in the store any more."""
        self._keeper.check()
        self._store.end_run(self._lease, status=report.status, report=msgspec.json.encode(report.as_json()).decode())
        reach("run.ended")
