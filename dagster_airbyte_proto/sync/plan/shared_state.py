"""Streams that share one state (GLOBAL, LEGACY) are synced together, or not at all.

Such a state is one position in the source for all of them. If it moved while only some of the streams were synced, the
source would never send again what the others had up to there. It does move while the connection does not have one of
them, or the source does not offer it: a stream that comes back is refused until it is read anew.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dagster_airbyte_proto.checkpoints.store import StateStore, StoredState
from dagster_airbyte_proto.connection.stream_names import shell_word
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, PlannedStream, ReadMode, State, StateScope, StreamId
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.protocols.state_codec import StateCodec
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.plan.stream_plan import (
    ChosenStreams,
    KnownTable,
    SharedStatePolicy,
    SyncRequest,
    plan_streams,
)

_ANY_STREAM = StreamId.of("")
_CHANGES_BY_HAND = 10
"""So many changes of a state are looked at, which may have megabytes each."""


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


def streams_left_behind(
    store: StateStore, states: StateCodec, connection: str, planned: Sequence[PlannedStream]
) -> dict[StreamId, ConfigError]:
    """The errors of the streams that were not among those of the run that moved their shared position. By that position
    the source has sent them all, so it would skip what changed meanwhile."""
    errors: dict[StreamId, ConfigError] = {}
    for stored in store.states(connection):
        shared = states.position(stored.state, _ANY_STREAM).shared
        had = frozenset() if shared is None else _streams_of_mover(store, states, connection, stored)
        for stream in (each.id for each in _incremental(planned) if had and str(each.id) not in had):
            if states.position(stored.state, stream).own is not None:
                errors[stream] = _left_behind_error(connection, stream)
    return errors


def _streams_of_mover(store: StateStore, states: StateCodec, connection: str, stored: StoredState) -> frozenset[str]:
    """The streams of the run that moved a shared state to its position. Empty where nobody knows: the run died, or
    a person set the position."""
    reports = store.reports(connection, stored.run_id)
    if not reports:  # The part of some stream may have been changed by hand since.
        shared = states.position(stored.state, _ANY_STREAM).shared
        for change in store.history(connection, limit=_CHANGES_BY_HAND, partition=""):
            if change.state is not None and states.position(change.state, _ANY_STREAM).shared == shared:
                reports = reports or store.reports(connection, change.run_id)
    streams = (each for report in reports for each in msgspec.json.decode(report).get("streams", {}).items())
    # A stream that was refused has no version of the states from before the sync.
    return frozenset(name for name, stream in streams if stream.get("version_before") is not None)


def _left_behind_error(connection: str, stream: StreamId) -> ConfigError:
    return ConfigError(
        f"planning the sync of connection {connection}",
        "the position that it shares with other streams moved on without it: its source would skip what changed"
        " meanwhile",
        remedy=f"Have it read anew: airbyte-proto state reset {connection} {shell_word(stream)}",
        stream=str(stream),
    )
