"""Prepares what stages and commits the records of one planned sync, before its connector is started.

A table is prepared early only where that is surely needed: most scheduled syncs bring no rows, and a JVM costs more
than all the rest of such a sync. So a table that an earlier sync prepared by the same spec is opened with the first
row, and all others beside the start of the connector.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.checkpoints.ledger import Ledger
from dagster_airbyte_proto.checkpoints.load_ending import LoadEnding
from dagster_airbyte_proto.checkpoints.store import LandedTable, StateStore
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.push import Delivery
from dagster_airbyte_proto.model import (
    REPLACING,
    PlannedStream,
    PushMode,
    ReadMode,
    State,
    StateScope,
    StreamId,
    WriteMode,
)
from dagster_airbyte_proto.protocols.rapidbyte.changes import sends_changes
from dagster_airbyte_proto.staging.files.staging_folder import staging_id
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.stage import Stage
from dagster_airbyte_proto.sync.commit.rejected_rows import RejectedRows
from dagster_airbyte_proto.sync.commit.table_witness import Remembered
from dagster_airbyte_proto.sync.commit.target_tables import TargetTables
from dagster_airbyte_proto.sync.enrichment.transform_state import states_before
from dagster_airbyte_proto.sync.landing.loader import Loader, LoadSteps, LoadThresholds
from dagster_airbyte_proto.sync.plan.generations import assign_generations
from dagster_airbyte_proto.sync.plan.resume import set_states_before
from dagster_airbyte_proto.sync.plan.stream_plan import can_resume_generation, replaces_table
from dagster_airbyte_proto.sync.plan.sync_plan import SyncPlan
from dagster_airbyte_proto.sync.read.batch_policies import batch_policy
from dagster_airbyte_proto.sync.read.schema_messages import RowLander, SchemaUpdates
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.sync.sync_context import SyncContext


class PreparedSync(NamedTuple):
    """The parts of one sync that stage and commit its records. `warnings` come from them while it runs."""

    runs: Mapping[StreamId, StreamRun]
    targets: TargetTables
    steps: LoadSteps
    loader: Loader
    schema_updates: SchemaUpdates
    warnings: Sequence[str]

    @property
    def stage(self) -> Stage:
        return self.steps.stage


def open_tables_early(context: SyncContext) -> None:
    """Starts to open the tables if the previous sync emitted rows, or nothing is known of one."""
    report = context.store.newest_report(context.connection)
    streams = msgspec.json.decode(report).get("streams", {}) if report else {}
    # One without streams ended before its connector ran. That of a push, whose name the connection has now, counts no
    # emitted rows.
    if not streams or any(stream.get("emitted", 1) for stream in streams.values()):
        context.engine.start_opening_tables()


def prepare_sync(context: SyncContext, plan: SyncPlan) -> PreparedSync:
    """Makes the stage, the ledger and the loader, and starts to prepare the tables that need it."""
    runs = {planned.id: StreamRun(planned, context.engine.sql_name(planned.table)) for planned in plan.streams}
    set_states_before(runs, plan.stored_states, plan.version_before)
    assign_generations(runs, plan.fingerprints, plan.continued, context.connection)
    landed = context.store.landed_tables(context.connection, partition=context.request.partition)
    deliveries = context.engine.store.deliveries(context.connection) if context.destination is not None else {}
    remembered = {
        stream: Remembered(
            _depended_on(context.store, run, landed.get(stream)),
            begins_changes=stream not in landed and _begins_changes(run, context.request.partition),
            unproved=_unproved_replacement(context.store, run.planned, deliveries.get(stream)),
        )
        for stream, run in runs.items()
        if not replaces_table(run.planned)
    }
    targets = TargetTables(context.engine, plan.specs, context.lease, context.options.cancel, remembered)
    _keep_prepared_tables_closed(context, runs, targets)
    stage = Stage(
        [
            StreamInput(
                run.planned,
                plan.columns[stream],
                hash_key=plan.hash_key,
                transform_states=states_before(context, run.planned, is_continued=stream in plan.continued),
                batch_policy=batch_policy(
                    context.source.connection, run.planned, plan.read_request.fields.get(run.planned.id)
                ),
            )
            for stream, run in runs.items()
        ],
        RunInput(
            context.protocol.record_wire,
            staging_id(context.lease.run_id, context.lease.fence),
            plan.read_request.sync_id,
            other_names=context.protocol.stream_aliases(plan.read_request),
            enrichers=context.enrichers,
        ),
    )
    warnings: list[str] = []
    rejected_rows = None
    if context.destination is None and context.source.connection.on_error == "reject":
        rejected_rows = RejectedRows(context.engine, context.lease, context.request.partition, warnings.append)
    load = context.source.connection.load
    steps = LoadSteps(stage, _ledger(plan), context.committer, rejected_rows)
    loader = Loader(
        context.lease,
        steps,
        runs,
        LoadThresholds(load.max_bytes, load.max_seconds),
        partial(_complete_shared_state, context, stage),
    )

    schema_updates = SchemaUpdates(context, plan, RowLander(stage, loader, targets))
    return PreparedSync(runs, targets, steps, loader, schema_updates, warnings)


def _begins_changes(run: StreamRun, partition: str) -> bool:
    """True if all rows come of a stream of changes, as to an empty table. Of the rows of one partition a table that all
    share tells nothing."""
    return not partition and not run.state_before and sends_changes(run.planned)


def _unproved_replacement(store: StateStore, planned: PlannedStream, delivery: Delivery | None) -> str:
    """The load that was to replace all rows of a destination, and that it did not acknowledge, though it may show it:
    an error ended it, and no state moved. By key the rows that come again are there once."""
    is_begun = delivery is not None and delivery.plan.mode is PushMode.OVERWRITE and delivery.attempts > 0
    if delivery is None or not is_begun or delivery.is_complete or not _adds_rows(planned):
        return ""
    logged = store.load(delivery.plan.plan_id)
    is_there = logged is not None and logged.ending is LoadEnding.RESOLVED_AS_LANDED
    return "" if is_there else delivery.plan.plan_id


def _depended_on(store: StateStore, run: StreamRun, landed: LandedTable | None) -> LandedTable | None:
    """The last load of a stream, if something depends on it: a state, or rows that this sync would append again, or
    that it would leave there where the source has deleted them."""
    if landed is None or run.state_before or not landed.load_id:
        return landed
    if landed.is_covered:
        return None
    appends_all = run.planned.read is ReadMode.INCREMENTAL and _adds_rows(run.planned)
    was_replaced = landed.write in REPLACING
    return landed if (was_replaced and appends_all) or _leaves_deleted(store, run.planned, landed) else None


def _leaves_deleted(store: StateStore, planned: PlannedStream, landed: LandedTable) -> bool:
    """True if the stream is read by its changes now, and was read whole before. Changes say nothing of what was deleted
    before the first of them. A refresh of changes reads no stream whole: a source that sends no checkpoint with it is
    not refused for ever."""
    logged = store.load(landed.load_id) if sends_changes(planned) else None
    parts = logged.load.parts if logged is not None else ()
    return any(part.read_whole and not _keeps_all(part) for part in parts if part.stream == planned.id)


def _adds_rows(planned: PlannedStream) -> bool:
    """True if a row that is sent again is there twice. Rows for a destination are staged so by any mode but one."""
    is_by_key = planned.relay is not None and planned.relay.mode is PushMode.UPSERT
    return planned.write is WriteMode.APPEND and not is_by_key


def _keeps_all(part: StagedRows) -> bool:
    """True if its rows were added to all those before. Rows for a destination are staged so by any mode but one."""
    return part.write is WriteMode.APPEND and part.relay_mode is not PushMode.UPSERT


def _keep_prepared_tables_closed(
    context: SyncContext, runs: Mapping[StreamId, StreamRun], targets: TargetTables
) -> None:
    known = {
        stream: profile
        for stream, profile in context.profiles.with_prepared_tables(targets.digests()).items()
        if not replaces_table(runs[stream].planned)
    }
    for stream, profile in known.items():
        runs[stream].table.use_known(profile)
    targets.note_ready(known)
    if len(known) < len(runs) or context.engine.has_started_opening:
        targets.start()


def _ledger(plan: SyncPlan) -> Ledger:
    tracked = [planned for planned in plan.streams if planned.read is ReadMode.INCREMENTAL]
    return Ledger(
        (each.id for each in tracked),
        whole=(each.id for each in tracked if replaces_table(each)),
        resumable=(each.id for each in plan.streams if can_resume_generation(each)),
    )


def _complete_shared_state(context: SyncContext, stage: Stage, state: State) -> State:
    """A GLOBAL state, with the stored sub-states of streams that were not requested. Other states are returned as they
    are.

    A tap that takes no catalog reads such streams too, and names in its state how far. None of those rows land, so the
    stored sub-state stays.
    """
    if state.scope is not StateScope.GLOBAL:
        return state
    states = context.protocol.states
    before = tuple(state for state in context.stored_states() if state.scope is StateScope.GLOBAL)
    state = states.merge(before, state)[0]
    if not (ignored := stage.unconfigured):
        return state
    stored = states.values_by_stream(before[-1], exact=True) if before else {}
    for stream in ignored:
        kept = states.with_stream(state, stream, stored[stream]) if stream in stored else None
        state = kept or states.without_stream(state, stream) or state
    return state
