"""Errors of what a connector sends while it is read."""

from collections.abc import Iterable

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.model import State, StreamId
from dagster_airbyte_proto.sync.landing.completeness import READING


def large_state_error(state: State, limit: int) -> ConnectorError:
    return ConnectorError(
        READING,
        f"it sent a state of {len(state.message):,} bytes; at most {limit:,} are taken (load: max_state_bytes)",
        remedy="If the connector needs such states, raise it. The next sync continues from the last accepted state.",
        stream=str(state.stream) if state.stream else None,
    )


def ambiguous_stream_error(named: StreamId, stream: StreamId, candidates: Iterable[StreamId]) -> ConnectorError:
    return ConnectorError(
        READING,
        f"its records name their stream {named}, which may be any of {' and '.join(map(str, candidates))}",
        remedy="Give each of them a connection of its own.",
        stream=str(stream),
    )


def shared_state_error(state: State) -> ConnectorError:
    return ConnectorError(
        READING,
        f"it sent one state for all its streams ({state.scope}), and several of its processes read them"
        " (parallel): the state says nothing of what the others have read",
        remedy="The state has not moved. Sync again: one process reads them all in the next sync.",
        retryable=True,
    )
