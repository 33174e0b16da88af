"""Selects what a connector gets beside its config: the states to resume from, and the fields that we read."""

from collections.abc import Iterable, Mapping, Sequence

from dagster_airbyte_proto.connection.stream_names import shell_word
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import FieldPath, PlannedStream, ReadMode, State, StateScope, StreamId
from dagster_airbyte_proto.protocols.rapidbyte.stream_context import lost_place
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.sync.stream_run import StreamRun


def states_to_resume(streams: Sequence[PlannedStream], stored: Iterable[State]) -> tuple[State, ...]:
    """The stored states of the incremental streams, and a shared state if any stream is incremental. What that says of
    others is left out by the protocol."""
    incremental = {planned.id for planned in streams if planned.read is ReadMode.INCREMENTAL}
    return tuple(
        state for state in stored if (state.stream in incremental if state.scope is StateScope.STREAM else incremental)
    )


def streams_without_place(
    connection: str, streams: Iterable[PlannedStream], stored: Iterable[State], cursors: Mapping[StreamId, FieldPath]
) -> dict[StreamId, ConfigError]:
    """The errors of the streams that are read by changes now, and cannot go on from their states. They would begin anew
    on top of the rows that they have. `cursors` are those by which streams were read last."""
    states = {state.stream: state for state in stored}
    lost = {
        each.id: lost_place(each, states[each.id], cursors[each.id])
        for each in streams
        if each.id in states and each.id in cursors
    }
    return {
        stream: ConfigError(
            f"planning the sync of connection {connection}",
            f"it was read by its column {column}, and is read by its changes (cdc) now, which begin anew: rows would be"
            " there twice, or those deleted before would stay",
            remedy="Read everything again into it:"
            f" airbyte-proto sync {connection} --refresh --streams {shell_word(stream)}",
            stream=str(stream),
        )
        for stream, column in lost.items()
        if column
    }


def set_states_before(runs: Mapping[StreamId, StreamRun], stored: Iterable[State], version: int) -> None:
    """Sets each incremental stream's state before this sync, and the version of all states, for its report."""
    for run in runs.values():
        run.version_before = version
    for state in stored:
        for stream in runs if state.stream is None else (state.stream,):
            if stream in runs and runs[stream].planned.read is ReadMode.INCREMENTAL:
                runs[stream].state_before = state


def selected_fields(columns: Mapping[StreamId, Columns]) -> dict[StreamId, frozenset[str]]:
    """The top-level fields that are read, for each stream of which some fields are left out."""
    return {
        stream: frozenset(column.path[0] for column in each.as_parsed.parsed_columns)
        for stream, each in columns.items()
        if each.as_parsed.skipped_fields
    }
