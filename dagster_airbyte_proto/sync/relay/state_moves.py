"""Says whether a source sends a rejected record again because the state of its stream was changed since.

- Loads move a state forward, past their records. Whatever else changes it may take it back: a person (`state set`,
  `state reset`, `state rollback`), or a source that asks for a reset.
- The positions of the stream are compared, and not the words of the history. One from before the record: the source
  sends it again. One that loads reached after it: it does not. Any other one, of a stream that a person has set: nobody
  can tell.
- A state that several streams share is compared by the part of the stream.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.deliveries import KeptRejection
from dagster_airbyte_proto.checkpoints.store import StateChange
from dagster_airbyte_proto.model import State, StreamId
from dagster_airbyte_proto.protocols.state_codec import StateCodec, StreamPosition

READ_ANEW = "the state of their stream was reset or rolled back since, or set back, and the source sends them again"
UNCLEAR = "the state of their stream was changed since: whether the source sends them again is not known"
NO_STATE = "their stream has no state, so the source sends them again"
_NOWHERE = StreamPosition(None, None)
_OF_LOADS = ("sync", "recover", "resolve")


class StreamMove(NamedTuple):
    """A position of a stream from a time on, and whether a load took it there."""

    position: StreamPosition
    changed_at: datetime
    is_of_load: bool


def moves_of_stream(changes: Sequence[StateChange], stream: StreamId, codec: StateCodec) -> list[StreamMove]:
    """Returns the moves of a stream, oldest first, by the history of its connection, newest first."""
    return [*_moves(changes, stream, codec)]


def _moves(changes: Sequence[StateChange], stream: StreamId, codec: StateCodec) -> Iterator[StreamMove]:
    # One version may have both: states of streams give way to one that all share, or the other way round.
    states: dict[StreamId | None, State | None] = {}
    of_stream = [each for each in reversed(changes) if each.stream in (None, stream) and not each.partition]
    for _, version in groupby(of_stream, key=lambda each: each.version):
        together = [*version]
        states |= {each.stream: each.state for each in together}
        state = states.get(stream) or states.get(None)
        position = _NOWHERE if state is None else codec.position(state, stream)
        last = together[-1]
        yield StreamMove(position, last.changed_at, last.why in _OF_LOADS)


def reason_to_wait(moves: Sequence[StreamMove], kept: KeptRejection, *, was_resent: bool) -> str | None:
    """Returns the reason for which a record must not be sent again, if its stream has moved so since.

    One that `was_resent` before was rejected again where its stream stood by then: behind it.
    """
    before = [each for each in moves if each.changed_at < kept.rejected_at]
    standing = before[-1].position if before else _NOWHERE
    passed = {standing} if was_resent else set()
    earlier = set() if was_resent else {_NOWHERE, *(each.position for each in before)}
    reason = None
    for move in moves[len(before) :]:
        lost_own = standing.own is not None and move.position.own is None
        if move.position != standing and (lost_own or move.position == _NOWHERE):
            reason = READ_ANEW
        elif move.is_of_load:
            passed.add(move.position)
        elif move.position != standing and move.position in earlier - passed:
            reason = READ_ANEW
        elif move.position != standing and (reason or move.position in earlier or move.position not in passed):
            reason = UNCLEAR
        standing = move.position
    return reason or (NO_STATE if standing == _NOWHERE else None)
