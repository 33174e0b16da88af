"""Compares what two reads sent, one after the other, with what one uninterrupted read sends.

1. The first of the two ends at a state; the rows that the state covers are those before it. The second resumes from it.
   Together they must have each row of the uninterrupted read, and none twice.
2. Rows on the boundary may come twice: those whose cursor is the greatest that came before the state, for sources read
   what is greater *or equal*. Without a cursor it is the last row.
3. Rows are compared by their content, where two uninterrupted reads agree on it; by their keys, where they agree on
   these; and else not at all: the source sends what nobody can foresee.
4. A state of one stream covers that stream; one of all streams covers those that it names, or all if it does not say.
   A stream that is read by full refresh has no state, and must come whole again.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dagster_airbyte_proto.certification.reads.read_evidence import ReadEvidence, StatePoint, StreamRecords
from dagster_airbyte_proto.model import PlannedStream, ReadMode, State, StreamId
from dagster_airbyte_proto.protocols.state_codec import StateCodec

_Rows = Callable[[StreamRecords], "array[int]"]


class Continuation(NamedTuple):
    """A read that was begun, and the read that resumed from its state number `state_at` (and those before it)."""

    begun: ReadEvidence
    state_at: int
    read: ReadEvidence

    @property
    def point(self) -> StatePoint:
        return self.begun.states[self.state_at]


class StreamComparison(NamedTuple):
    """The comparison of one stream. `compared_by` is empty if nobody can tell; `strange` rows are in no other read."""

    stream: StreamId
    compared_by: str
    covered: int = 0
    resumed: int = 0
    lost: int = 0
    repeated: int = 0
    on_boundary: int = 0
    strange: int = 0


def merged_states(codec: StateCodec, read: ReadEvidence, state_at: int) -> tuple[State, ...]:
    """The states that a sync would have after this one, without those of streams that are read by full refresh."""
    full = {planned.id for planned in read.requested if planned.read is ReadMode.FULL_REFRESH}
    states: tuple[State, ...] = ()
    for point in read.states[: state_at + 1]:
        if point.state.stream not in full:
            states = codec.merge(states, point.state)
    return states


def middle_state(codec: StateCodec, read: ReadEvidence) -> int | None:
    """The state that is nearest to the middle of the rows that states cover, with rows before it and after it."""
    total = sum(_covered_rows(codec, read, len(read.states) - 1).values())
    best: tuple[float, int] | None = None
    for number, point in enumerate(read.states):
        covered = 0 if point.is_provisional else sum(_covered_rows(codec, read, number).values())
        if 0 < covered < total:
            distance = abs(covered - total / 2)
            best = min(best or (distance, number), (distance, number))
    return best[1] if best else None


def comparisons(
    codec: StateCodec, uninterrupted: tuple[ReadEvidence, ReadEvidence], continuation: Continuation
) -> tuple[StreamComparison, ...]:
    """Compares each stream."""
    whole, again = uninterrupted
    covered = _covered_rows(codec, continuation.begun, continuation.state_at)
    found = []
    for planned in whole.requested:
        stream = planned.id
        compared_by, rows_of = _identity(whole.streams[stream], again.streams[stream])
        if rows_of is None:
            found.append(StreamComparison(stream, ""))
            continue
        begun = continuation.begun.streams[stream]
        found.append(
            _comparison(
                StreamComparison(stream, compared_by, covered=covered.get(stream, 0)),
                Counter(rows_of(whole.streams[stream])),
                rows_of(begun)[: covered.get(stream, 0)],
                Counter(rows_of(continuation.read.streams[stream])),
                _boundary(begun, covered.get(stream, 0), continuation.point.cursors.get(stream), rows_of),
            )
        )
    return tuple(found)


def _comparison(
    known: StreamComparison,
    whole: "Counter[int]",
    before: "array[int]",
    resumed: "Counter[int]",
    boundary: frozenset[int],
) -> StreamComparison:
    covered = Counter(before)
    expected = whole - covered
    more = resumed - expected
    twice = {row: count for row, count in more.items() if row in covered}
    on_boundary = sum(count for row, count in twice.items() if row in boundary)
    return known._replace(
        resumed=resumed.total(),
        lost=(expected - resumed).total(),
        repeated=sum(twice.values()) - on_boundary,
        on_boundary=on_boundary,
        strange=more.total() - sum(twice.values()) + (covered - whole).total(),
    )


def _boundary(records: StreamRecords, covered: int, greatest: int | None, rows_of: _Rows) -> frozenset[int]:
    rows = rows_of(records)[:covered]
    if not records.cursors:
        return frozenset(rows[-1:])
    return frozenset(row for row, cursor in zip(rows, records.cursors[:covered], strict=True) if cursor == greatest)


def _identity(one: StreamRecords, other: StreamRecords) -> tuple[str, _Rows | None]:
    if Counter(one.contents) == Counter(other.contents):
        return "content", lambda records: records.contents
    if one.keys and Counter(one.keys) == Counter(other.keys):
        return "key", lambda records: records.keys
    return "", None


def _covered_rows(codec: StateCodec, read: ReadEvidence, state_at: int) -> Mapping[StreamId, int]:
    """The number of rows of each stream that the states up to this one cover."""
    return {
        planned.id: _rows_before(codec, read.states[: state_at + 1], planned)
        for planned in read.requested
        if planned.read is ReadMode.INCREMENTAL
    }


def _rows_before(codec: StateCodec, points: Sequence[StatePoint], planned: PlannedStream) -> int:
    for point in reversed(points):
        if point.state.stream is not None:
            if point.state.stream == planned.id:
                return 0 if point.state.is_reset else point.rows[planned.id]
            continue
        parts = codec.parts(point.state)
        if parts is None or planned.id in parts:
            return 0 if point.state.is_reset else point.rows[planned.id]
    return 0
