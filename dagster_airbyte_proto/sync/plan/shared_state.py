"""Streams that share one state (GLOBAL, LEGACY) are synced together, or not at all.

Such a state is one position in the source for all of them. If it moved while only some of the streams were synced, the
source would never send again what the others had up to there.
"""

from collections.abc import Iterable, Mapping, Sequence

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, PlannedStream, ReadMode, State, StateScope, StreamId
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.plan.stream_plan import (
    ChosenStreams,
    KnownTable,
    SharedStatePolicy,
    SyncRequest,
    plan_streams,
)


def plan_with_shared_state(
    source: Source,
    catalog: Catalog,
    request: SyncRequest,
    stored: Iterable[State],
    known_tables: Mapping[StreamId, KnownTable],
) -> ChosenStreams:
    """Returns the plan, extended by every stream that shares a `stored` state with a planned one if the request's
    policy allows it. Raises ConfigError that names the missing streams if it does not. One that cannot be planned may
    share a state too."""
    chosen = plan_streams(source.connection, catalog, request, known_tables)
    shared = [state for state in stored if state.scope is not StateScope.STREAM]
    if request.only is None or not shared or not _incremental(chosen.sound):
        return chosen
    every = plan_streams(source.connection, catalog, request._replace(only=None), known_tables)
    group = streams_sharing(source.protocol, shared, _incremental(chosen.sound), _incremental(every.planned))
    requested = {planned.id for planned in chosen.planned}
    missing = [planned for planned in group if planned.id not in requested]
    if not missing or request.shared_state is SharedStatePolicy.SYNC_ALL:
        together = requested | {planned.id for planned in missing}
        return ChosenStreams(
            tuple(planned for planned in every.planned if planned.id in together),
            {stream: fault for stream, fault in every.faults.items() if stream in together},
        )
    raise ConfigError(
        f"planning the sync of connection {source.connection.name}",
        f"its streams {', '.join(sorted(str(planned.id) for planned in group))} share one state, and it would move on"
        f" without {', '.join(sorted(str(planned.id) for planned in missing))}",
        remedy="Sync them together.",
    )


def _incremental(planned: Iterable[PlannedStream]) -> list[PlannedStream]:
    return [each for each in planned if each.read is ReadMode.INCREMENTAL]


def streams_sharing(
    protocol: SourceProtocol,
    shared: Iterable[State],
    requested: Sequence[PlannedStream],
    incremental: Sequence[PlannedStream],
) -> list[PlannedStream]:
    """The incremental streams that share one of these states. A state that does not name its streams counts as
    everyone's."""
    members = [protocol.states.streams_sharing_position(state, requested, incremental) for state in shared]
    named = None if None in members else frozenset().union(*(each for each in members if each is not None))
    return [each for each in incremental if named is None or each.id in named]
