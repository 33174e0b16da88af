"""Plans one sync: everything that is decided before a table is prepared and the connector reads.

The order matters:

- The config is checked, and streams are chosen, before generations begin: a user's fault ends none that can be resumed.
- A connector may rewrite its config when it is merely asked for its catalog. The new one is stored before it is used.
- Column names are saved before any table is touched: a field keeps the column name that it was given first.

A stream that cannot be planned is refused, alone: for its key, its options or its transforms beside what its source
declares today, for its table, its state or another stream. Where the settings name a stream that is not there, or are
at fault for all, nothing is synced.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.store import OpenGeneration
from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import Catalog, PlannedStream, State, StateScope, StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.protocols.conversation import ReadRequest
from dagster_airbyte_proto.protocols.events import SchemaEvent
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.schema.evolution import EvolutionRules
from dagster_airbyte_proto.sync.plan.format_check import streams_unfit_for_format
from dagster_airbyte_proto.sync.plan.generations import continued_generations, fingerprints, is_outdated
from dagster_airbyte_proto.sync.plan.relay_check import streams_refused_by_destination
from dagster_airbyte_proto.sync.plan.relayed_stream import with_hash_key
from dagster_airbyte_proto.sync.plan.resume import selected_fields, states_to_resume, streams_without_place
from dagster_airbyte_proto.sync.plan.shared_state import plan_with_shared_state, streams_left_behind
from dagster_airbyte_proto.sync.plan.stream_choice import unknown_transformed_streams
from dagster_airbyte_proto.sync.plan.stream_clashes import clashing_streams, streams_held_back
from dagster_airbyte_proto.sync.plan.stream_plan import (
    ChosenStreams,
    SyncRequest,
    plan_streams,
    refresh_can_change_columns,
    with_generations,
)
from dagster_airbyte_proto.sync.plan.stream_schemas import table_spec, with_stored_schemas
from dagster_airbyte_proto.sync.state_server.component_values import source_values
from dagster_airbyte_proto.sync.sync_context import SyncContext
from dagster_airbyte_proto.transforms.landed_columns import landed_columns


class RefusedStream(NamedTuple):
    """A stream that fails before the connector reads, alone."""

    planned: PlannedStream
    error: ConfigError | TableError


@dataclass(frozen=True)
class SyncPlan:
    """The streams of one sync, their columns and tables, and the request to the connector. `refused` are not among
    `streams`.

    `hash_key` is empty where no column is hashed. `stored_states` are those before the sync, at `version_before`;
    `stored_schemas` the last schema messages of an earlier one.
    """

    streams: tuple[PlannedStream, ...]
    columns: Mapping[StreamId, Columns]
    specs: Mapping[StreamId, TableSpec]
    read_request: ReadRequest
    stored_states: Sequence[State]
    version_before: int
    stored_schemas: Mapping[StreamId, SchemaEvent]
    refused: Sequence[RefusedStream]
    fingerprints: Mapping[StreamId, str]
    continued: Mapping[StreamId, OpenGeneration]
    hash_key: str


def plan_sync(context: SyncContext) -> SyncPlan:
    """Checks the config, chooses the streams, numbers the run. Raises ProtoError where the sync cannot begin."""
    source, request, profiles = context.source, context.request, context.profiles
    source.use_stored_config(context.store)
    source.check_config()
    stored, version_before = context.stored_states(), context.stored_version()
    catalog = _catalog(context)
    for error in unknown_transformed_streams(source.connection, catalog):
        raise error
    # Streams of a slice all start over, so a shared state cannot move on without the streams that are left out.
    movable = () if request.slice else stored
    offered = plan_with_shared_state(source, catalog, request, movable, profiles.known_tables)
    chosen, refused = _without_refused(context, catalog, offered, movable)
    schemas = source.stream_schemas() if context.protocol.sends_schemas else {}
    chosen = profiles.with_column_names(with_stored_schemas(chosen, schemas))
    landings, faults = _landings(context, chosen)
    chosen, unfit = _without_faulty(context, chosen, faults, movable)
    refused, columns = (*refused, *unfit), {each.id: landings[each.id].columns for each in chosen}
    has_hashed_columns = any(map(hashes_columns, columns.values()))
    hash_key = source.hash_key() if has_hashed_columns else ""
    chosen = tuple(with_hash_key(each, hash_key) if hashes_columns(columns[each.id]) else each for each in chosen)
    prints = fingerprints(source.connection, chosen, columns, source.config.digest)
    states = () if request.starts_over else states_to_resume(chosen, stored)
    open_generations = context.store.open_generations(context.connection)
    continued, unreadable = continued_generations(open_generations, prints, states, lambda: context.engine.tables)
    if unreadable:
        chosen, more = _without_faulty(context, chosen, unreadable, stored)
        refused, columns = (*refused, *more), {each.id: columns[each.id] for each in chosen}
    streams, sync_id = _begin_run(context, chosen, continued)
    outdated = [each for each in open_generations if continued.get(each.stream) != each and is_outdated(each)]
    context.committer.drop_dead_generations(outdated)
    states = (*states, *(each.state for each in continued.values() if each.state is not None))
    profiles.save_column_names(streams, columns)
    profiles.record_missing_streams(catalog)
    return SyncPlan(
        streams=streams,
        columns=columns,
        specs={
            each.id: table_spec(each, columns[each.id], landings[each.id].rules, continued.get(each.id))
            for each in streams
        },
        read_request=ReadRequest(
            source.config.current,
            streams,
            states,
            sync_id,
            catalog.streams,
            selected_fields(columns),
            source_values(context.engine.store, context.connection, streams) if context.protocol.keeps_scopes else {},
        ),
        stored_states=stored,
        version_before=version_before,
        stored_schemas=schemas,
        refused=refused,
        fingerprints=prints,
        continued=continued,
        hash_key=hash_key,
    )


def _catalog(context: SyncContext) -> Catalog:
    """The catalog of the source. A config that it rewrote is stored at once, whatever becomes of the sync: a token in
    the old one may be invalid by now."""
    try:
        return context.request.catalog or context.source.catalog()
    finally:
        context.source.save_config(context.store, context.lease)


class ShapedStream(NamedTuple):
    """A stream as its records are shaped today. `hash_key` is empty where no column of it is hashed."""

    planned: PlannedStream
    hash_key: str


def shaped_streams(context: SyncContext) -> Mapping[StreamId, ShapedStream]:
    """Returns the streams of the connection that can be planned, whatever the run syncs of them. It may be called
    before `plan_sync`."""
    source = context.source
    source.use_stored_config(context.store)
    source.check_config()
    catalog = _catalog(context)
    chosen = plan_streams(source.connection, catalog, SyncRequest(), context.profiles.known_tables).sound
    schemas = source.stream_schemas() if context.protocol.sends_schemas else {}
    chosen = context.profiles.with_column_names(with_stored_schemas(chosen, schemas))
    landings, _ = _landings(context, chosen)
    hashing = {stream for stream, landing in landings.items() if hashes_columns(landing.columns)}
    hash_key = source.hash_key() if hashing else ""
    return {
        each.id: ShapedStream(each, hash_key if each.id in hashing else "") for each in chosen if each.id in landings
    }


class _Landing(NamedTuple):
    """The columns of a stream, and the rules by which its table may change."""

    columns: Columns
    rules: EvolutionRules


def _landings(
    context: SyncContext, chosen: Iterable[PlannedStream]
) -> tuple[dict[StreamId, _Landing], dict[StreamId, ConfigError]]:
    """Returns how each stream lands, and the errors of those whose key, options or transforms do not fit what their
    source declares today."""
    landings: dict[StreamId, _Landing] = {}
    faults: dict[StreamId, ConfigError] = {}
    for planned in chosen:
        try:
            columns = landed_columns(planned)
            landings[planned.id] = _Landing(columns, evolution_rules(context, planned, columns))
        except ConfigError as error:
            faults[planned.id] = error
    return landings, faults


def _without_refused(
    context: SyncContext, catalog: Catalog, chosen: ChosenStreams, stored: Sequence[State]
) -> tuple[tuple[PlannedStream, ...], Sequence[RefusedStream]]:
    """Sets the streams aside that cannot be planned, that clash with another one, that cannot go on from their states,
    or that the tables or the destination do not take, as `_without_faulty` does."""
    planned = chosen.planned
    errors = clashing_streams(context.source.connection, catalog, planned)
    if not context.request.starts_over:
        errors |= streams_without_place(context.connection, planned, stored, context.profiles.cursors)
        if any(state.scope is StateScope.GLOBAL for state in stored):
            errors |= streams_left_behind(context.store, context.protocol.states, context.connection, planned)
    if context.destination is not None:
        errors |= streams_refused_by_destination(context.destination, planned)
    errors |= streams_unfit_for_format(context.connection, planned, context.engine.abilities)
    return _without_faulty(context, planned, {**errors, **chosen.faults}, stored)


def _without_faulty(
    context: SyncContext,
    chosen: tuple[PlannedStream, ...],
    faults: Mapping[StreamId, ConfigError | TableError],
    stored: Sequence[State],
) -> tuple[tuple[PlannedStream, ...], Sequence[RefusedStream]]:
    """Sets the streams aside that have a fault, and those that share a state with one. Raises the first fault if no
    stream is left."""
    shared = [state for state in stored if state.scope is not StateScope.STREAM]
    errors = {**faults, **streams_held_back(context.protocol, shared, chosen, faults)}
    refused = [RefusedStream(planned, errors[planned.id]) for planned in chosen if planned.id in errors]
    if len(refused) == len(chosen):
        raise next(each.error for each in refused if each.planned.id in faults)
    return tuple(planned for planned in chosen if planned.id not in errors), refused


def hashes_columns(columns: Columns) -> bool:
    """True if a column of the stream is hashed."""
    plan = columns.as_parsed.shaping_plan
    return plan is not None and bool(plan.hashed)


def evolution_rules(context: SyncContext, planned: PlannedStream, columns: Columns) -> EvolutionRules:
    """The rules by which the stream's table may change. Raises ConfigError for a rename hint that does not fit."""
    refresh_helps = context.engine.abilities.has_new_columns_with_rows and refresh_can_change_columns(planned)
    return context.profiles.evolution_rules(planned, columns, refresh_helps=refresh_helps)


def _begin_run(
    context: SyncContext, chosen: Sequence[PlannedStream], continued: Collection[StreamId]
) -> tuple[tuple[PlannedStream, ...], int]:
    """Numbers the run and the generations of its streams."""
    request = context.request
    context.store.note_protocol(context.lease, context.protocol.name)
    start = context.store.begin_run(
        context.lease,
        refreshed=[each.id for each in chosen if request.begins_generation(each) and each.id not in continued],
        streams=[planned.id for planned in chosen],
        resumed=[*continued],
        partition=request.partition,
    )
    reach("run.begun")
    return with_generations(chosen, start.generations), start.sync_id
