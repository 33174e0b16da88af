"""What a connector is handed beside its config: where it stood, and what is read of its records."""

from collections.abc import Iterable, Mapping, Sequence

from dagster_airbyte_proto.model import PlannedStream, ReadMode, State, StateScope, StreamId
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.sync.stream_run import StreamRun


def resumed(streams: Sequence[PlannedStream], stored: Iterable[State]) -> tuple[State, ...]:
    """Where it stood: shared state whole, else of the streams that go on from it."""
    going_on = {planned.id for planned in streams if planned.read is ReadMode.INCREMENTAL}
    return tuple(
        state for state in stored if (state.stream in going_on if state.scope is StateScope.STREAM else going_on)
    )


def note_states(runs: Mapping[StreamId, StreamRun], stored: Iterable[State]) -> None:
    """Tells each stream where it stood."""
    for state in stored:
        for stream in runs if state.stream is None else (state.stream,):
            if stream in runs and runs[stream].planned.read is ReadMode.INCREMENTAL:
                runs[stream].state_before = state


def fields_read(columns: Mapping[StreamId, Columns]) -> dict[StreamId, frozenset[str]]:
    """The fields of a record that are read, for streams of which not all are."""
    return {
        stream: frozenset(column.path[0] for column in each.top) for stream, each in columns.items() if each.passed_over
    }
