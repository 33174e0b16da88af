"""Which states are free. Pure: it counts, and neither writes, waits nor asks the clock.

The rules:

- A stream's rows are counted in the order in which they come, rejected ones too. A state covers what came before it:
  a STREAM state the rows of its stream, a GLOBAL or LEGACY one (a *shared* state) those of every tracked stream.
- A state is free once every row that it covers has landed. Of the free ones only the newest of a stream is given,
  and the newest shared one: it says all that the older ones said.
- A load ends where a state stands, so between two questions only the newest state of a stream can come to matter.
  That one is held, and those that `freed_by` has given and whose rows have not landed yet: one more for each load
  at work, whether a stream sends ten states or a million. (The price: where a table refuses, the state stays where
  the last load left it, even if one that came since and gave way to a newer one could still have moved.)
- A stream that lands as a `whole` (its rows replace a table at its end) holds its states, and shared ones, until it is
  `completed`: a state that covers no row would else move while the table still has the old rows.
- A stream whose rows are put aside until it is complete may be *resumable*: a state of its own that covers exactly what
  has landed is a point from which its generation can be gone on with. Of a tracked one that is what its states are for
  until it is completed; of an untracked one they never are for more.
- An untracked stream is read anew each time. It holds no shared state back, and its own states are never free: they
  would make the next run skip what it must read.

One thread at a time: whoever shares a ledger guards it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.model import State, StreamId


class CountMismatch(NamedTuple):
    """The source counted other records than we did since its previous state. `stream` is None for a shared state."""

    stream: StreamId | None
    source_count: float
    own_count: int


class _Held:
    """A state that may still move. `covers` is filled in when it is first given; until then it is the newest one."""

    __slots__ = ("covers", "is_given", "state")

    def __init__(self, state: State, covers: Mapping[StreamId, int] | None) -> None:
        self.state = state
        self.covers = covers
        self.is_given = False


class Ledger:
    """Positions are numbers of rows from the start of the sync."""

    def __init__(
        self, tracked: Iterable[StreamId], whole: Iterable[StreamId] = (), resumable: Iterable[StreamId] = ()
    ) -> None:
        self._tracked = frozenset(tracked)
        self._resumable = frozenset(resumable)
        self._not_whole = {*whole, *self._resumable.difference(self._tracked)}
        self._received: Counter[StreamId] = Counter()
        self._landed: Counter[StreamId] = Counter()
        self._failed: set[StreamId] = set()
        self._counted: dict[StreamId, int] = {}
        self._covered: dict[StreamId, int] = {}
        # Oldest first, at most one that was not given, at the end. The key None is for shared states.
        self._held: dict[StreamId | None, list[_Held]] = {}
        # Rows since the newest shared state. Kept instead of a position for each stream with each state, which
        # would make a state cost as much as there are streams.
        self._since_shared: Counter[StreamId] = Counter()
        self._had_shared = False

    def received(self, stream: StreamId, rows: int) -> None:
        """The stream's next rows came."""
        self._received[stream] += rows
        self._since_shared[stream] += rows

    def arrived(self, state: State, record_count: float | None = None) -> CountMismatch | None:
        """A state came. `record_count` is what the source counted since its previous one: the answer is None when
        we counted the same, or it did not say."""
        if state.stream is not None:
            return self._arrived_of(state.stream, state, record_count)
        mismatch = self._shared_mismatch(record_count)
        self._had_shared = True
        self._since_shared.clear()
        self._hold(None, _Held(state, None))
        return mismatch

    def covered(self, stream: StreamId) -> int:
        """Up to which position a state is known. Rows beyond it come again when the sync stops now."""
        shared = self._shared_position(stream) if self._had_shared and stream in self._tracked else 0
        return max(shared, self._covered.get(stream, 0))

    def freed_by(self, rows: Mapping[StreamId, int]) -> tuple[State, ...]:
        """The states that are free once these further rows have landed: at most one a stream, and one shared.

        Ask when a load is cut, and tell `landed` once its rows are in and these states have moved.
        """
        given = []
        for key in self._held:
            if (held := self._newest_free(key, rows)) is not None:
                held.is_given = True
                given.append(held.state)
        return tuple(given)

    def resumable_by(self, rows: Mapping[StreamId, int]) -> tuple[State, ...]:
        """From which states generations can be gone on with once these further rows have landed: one a stream at most.

        Ask when a load is cut, and have them kept once its rows are in.
        """
        found = []
        for stream, held in self._held.items():
            if stream is None or stream not in self._resumable or stream not in self._not_whole:
                continue
            # By a reset the connector would begin anew, behind what has landed.
            exactly = {stream: self._landed[stream] + rows.get(stream, 0)}
            if held[-1].covers == exactly and not held[-1].state.is_reset:
                found.append(held[-1].state)
        return tuple(found)

    def landed(self, rows: Mapping[StreamId, int]) -> None:
        """The rows are in. Of the states that this frees those count as moved that `freed_by` gave before; one that
        came since then is given next time, even when it covers no further row."""
        for stream, count in rows.items():
            if self._landed[stream] + count > self._received[stream]:
                raise InternalError(
                    "counting landed rows",
                    f"{self._landed[stream]} + {count} landed of {self._received[stream]} received",
                    stream=str(stream),
                )
        self._landed.update(rows)
        for key in list(self._held):
            self._forget_moved(key)

    def failed(self, stream: StreamId) -> None:
        """States of the stream that come from now on are no progress. Those that came before still are, and shared
        states still wait for its rows."""
        self._failed.add(stream)

    def completed(self, stream: StreamId) -> None:
        """A stream that lands as a whole has come to its end: the next load is to have all its rows."""
        if stream in self._tracked:
            self._not_whole.discard(stream)

    def _arrived_of(self, stream: StreamId, state: State, record_count: float | None) -> CountMismatch | None:
        position = self._received[stream]
        own_count = position - self._counted.get(stream, 0)
        self._counted[stream] = position
        if (stream in self._tracked or stream in self._resumable) and stream not in self._failed:
            self._covered[stream] = position
            self._hold(stream, _Held(state, {stream: position}))
        if record_count is None or record_count == own_count:
            return None
        return CountMismatch(stream, record_count, own_count)

    def _shared_mismatch(self, record_count: float | None) -> CountMismatch | None:
        """Sources differ in whether streams that are read whole belong to the count of a shared state."""
        everything = self._since_shared.total()
        if record_count is None or record_count == everything:
            return None
        tracked = sum(rows for stream, rows in self._since_shared.items() if stream in self._tracked)
        return None if record_count == tracked else CountMismatch(None, record_count, tracked)

    def _shared_position(self, stream: StreamId) -> int:
        return self._received[stream] - self._since_shared[stream]

    def _hold(self, key: StreamId | None, newest: _Held) -> None:
        held = self._held.setdefault(key, [])
        if held and not held[-1].is_given:
            held.pop()
        held.append(newest)

    def _newest_free(self, key: StreamId | None, rows: Mapping[StreamId, int]) -> _Held | None:
        return next((held for held in reversed(self._held[key]) if self._is_free(held, rows)), None)

    def _is_free(self, held: _Held, rows: Mapping[StreamId, int]) -> bool:
        if held.covers is None:
            held.covers = {stream: self._shared_position(stream) for stream in self._tracked}
        if self._not_whole and not self._not_whole.isdisjoint(held.covers):
            return False
        return all(self._landed[stream] + rows.get(stream, 0) >= position for stream, position in held.covers.items())

    def _forget_moved(self, key: StreamId | None) -> None:
        held = self._held[key]
        moved = [one for one in held if one.is_given and self._is_free(one, {})]
        if moved:
            del held[: held.index(moved[-1]) + 1]
        if not held:
            del self._held[key]
