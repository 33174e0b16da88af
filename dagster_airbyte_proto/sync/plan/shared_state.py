"""Streams that share one state (GLOBAL, LEGACY) are synced together, or not at all.

Such a state is one position in the source for all of them. Where it moves on for some streams only, what the others
have in between is never sent again.
"""

from collections.abc import Iterable, Mapping, Sequence

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, PlannedStream, ReadMode, State, StateScope, StreamId
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.plan.stream_plan import KnownTable, SharedState, Wanted, planned_streams


def planned_together(
    source: Source,
    catalog: Catalog,
    wanted: Wanted,
    stored: Iterable[State],
    known: Mapping[StreamId, KnownTable],
) -> tuple[PlannedStream, ...]:
    """The plan with every stream that shares a stored state with one of it, or ConfigError that names them."""
    chosen = planned_streams(source.connection, catalog, wanted, known)
    shared = [state for state in stored if state.scope is not StateScope.STREAM]
    if wanted.only is None or not shared or not _incremental(chosen):
        return chosen
    every = planned_streams(source.connection, catalog, wanted._replace(only=None), known)
    group = _group(source.protocol, shared, _incremental(chosen), _incremental(every))
    asked = {planned.id for planned in chosen}
    missing = [planned for planned in group if planned.id not in asked]
    if not missing or wanted.shared is SharedState.WHOLE:
        together = asked | {planned.id for planned in missing}
        return tuple(planned for planned in every if planned.id in together)
    raise ConfigError(
        f"planning the sync of connection {source.connection.name}",
        f"its streams {', '.join(sorted(str(planned.id) for planned in group))} share one state, and it would move on"
        f" without {', '.join(sorted(str(planned.id) for planned in missing))}",
        remedy="Sync them together.",
    )


def _incremental(planned: Iterable[PlannedStream]) -> list[PlannedStream]:
    return [each for each in planned if each.read is ReadMode.INCREMENTAL]


def _group(
    protocol: SourceProtocol,
    shared: Iterable[State],
    asked: Sequence[PlannedStream],
    incremental: Sequence[PlannedStream],
) -> list[PlannedStream]:
    """A state that does not tell whose it is counts as everyone's."""
    told = [protocol.sharing(state, asked, incremental) for state in shared]
    named = None if None in told else frozenset().union(*(each for each in told if each is not None))
    return [each for each in incremental if named is None or each.id in named]
