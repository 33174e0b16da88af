"""Decides which states are free to move. Pure: it counts, and neither writes, waits nor reads the clock.

The rules:

- A stream's rows are counted in the order in which they arrive, rejected ones too. A state covers the rows before it:
  a STREAM state those of its stream, a GLOBAL or LEGACY one (a *shared* state) those of every tracked stream.
- A state is free once every row that it covers has landed. `freed_by` returns only the newest free state of each stream
  and the newest shared one: a newer state says all that the older ones said.
- A load ends at a state, so between two loads only the newest state of a stream matters. The ledger holds that one, and
  those that `freed_by` has returned and whose rows have not landed yet. So it holds one state more for each load that
  is being committed, whether a stream sends ten states or a million. (The price: where a table refuses a load, the
  state stays where the previous load left it, even if a state that a newer one replaced meanwhile could still have
  moved.)
- A stream that lands as a `whole` (its rows replace a table at its end) blocks its states, and shared ones, until it is
  `completed`. Otherwise a state that covers no row would move while the table still has the old rows.
- A stream whose rows stay on a branch until it is complete may be *resumable*: a state of its own that covers exactly
  the rows that have landed is a point from which a later run can resume its generation. The states of a tracked stream
  serve only that purpose until it is completed; those of an untracked stream never serve another.
- An untracked stream is read from its beginning each time. It blocks no shared state, and its own states are never
  free: they would make the next run skip rows that it must read.

Not thread-safe: one thread at a time may call a ledger.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.model import State, StreamId


class CountMismatch(NamedTuple):
    """The source and this package counted different numbers of records since the previous state.

    `stream` is None for a shared state.
    """

    stream: StreamId | None
    source_count: float
    own_count: int

    @property
    def text(self) -> str:
        return f"the source counted {self.source_count:g} records, and {self.own_count} were received"


class _HeldState:
    """A state that may still move.

    `covers` maps each stream to the position that must have landed. For a shared state it is filled in when `freed_by`
    first looks at it.
    """

    __slots__ = ("covers", "state", "was_returned")

    def __init__(self, state: State, covers: Mapping[StreamId, int] | None) -> None:
        self.state = state
        self.covers = covers
        self.was_returned = False


class Ledger:
    """Counts the rows of one sync, and says which states they free.

    A position is a number of rows of a stream, counted from the start of the sync.
    """

    def __init__(
        self, tracked: Iterable[StreamId], whole: Iterable[StreamId] = (), resumable: Iterable[StreamId] = ()
    ) -> None:
        self._tracked = frozenset(tracked)
        self._resumable = frozenset(resumable)
        self._incomplete = {*whole, *self._resumable.difference(self._tracked)}
        self._received: Counter[StreamId] = Counter()
        self._landed: Counter[StreamId] = Counter()
        self._failed: set[StreamId] = set()
        self._counted: dict[StreamId, int] = {}
        self._covered: dict[StreamId, int] = {}
        # Oldest first. At most one, the last, was not returned by `freed_by` yet. The key None is for shared states.
        self._held: dict[StreamId | None, list[_HeldState]] = {}
        # Rows since the newest shared state. A position of every stream with each state instead would make the cost of
        # a state grow with the number of streams.
        self._since_shared: Counter[StreamId] = Counter()
        self._had_shared = False

    def received(self, stream: StreamId, rows: int) -> None:
        """Counts further rows of the stream."""
        self._received[stream] += rows
        self._since_shared[stream] += rows

    def arrived(self, state: State, record_count: float | None = None) -> CountMismatch | None:
        """Takes in a state. `record_count` is the number of records that the source counted since its previous state.

        Returns None where both counts agree, or the source did not give one.
        """
        if state.stream is not None:
            return self._stream_state_arrived(state.stream, state, record_count)
        mismatch = self._shared_mismatch(record_count)
        self._had_shared = True
        self._since_shared.clear()
        self._hold(None, _HeldState(state, None))
        return mismatch

    def covered(self, stream: StreamId) -> int:
        """The position up to which a state covers the stream. If the sync stops now, later rows come again."""
        shared = self._shared_position(stream) if self._had_shared and stream in self._tracked else 0
        return max(shared, self._covered.get(stream, 0))

    def freed_by(self, rows: Mapping[StreamId, int]) -> tuple[State, ...]:
        """The states that are free once these further rows have landed: at most one a stream, and one shared.

        Call it when a load is cut. Call `landed` once the rows are in their tables and these states have moved.
        """
        free = []
        for key in self._held:
            if (held := self._newest_free(key, rows)) is not None:
                held.was_returned = True
                free.append(held.state)
        return tuple(free)

    def resumable_by(self, rows: Mapping[StreamId, int]) -> tuple[State, ...]:
        """The states from which generations can be resumed once these further rows have landed: at most one a stream.

        Call it when a load is cut, and have the states stored once its rows are in their tables.
        """
        found = []
        for stream, held in self._held.items():
            if stream is None or stream not in self._resumable or stream not in self._incomplete:
                continue
            # With a reset the connector would start over, and send again what has landed.
            exactly = {stream: self._landed[stream] + rows.get(stream, 0)}
            if held[-1].covers == exactly and not held[-1].state.is_reset:
                found.append(held[-1].state)
        return tuple(found)

    def landed(self, rows: Mapping[StreamId, int]) -> None:
        """Counts rows as landed.

        Of the states that this frees, those that `freed_by` returned before count as moved. A state that arrived since
        then is returned next time, even when it covers no further row.
        """
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
        """Ignores states of the stream that arrive from now on. Earlier ones still count, and shared states still wait
        for its rows."""
        self._failed.add(stream)

    def completed(self, stream: StreamId) -> None:
        """Marks a stream that lands as a whole as complete: the next load is to have all its rows."""
        if stream in self._tracked:
            self._incomplete.discard(stream)

    def _stream_state_arrived(self, stream: StreamId, state: State, record_count: float | None) -> CountMismatch | None:
        position = self._received[stream]
        own_count = position - self._counted.get(stream, 0)
        self._counted[stream] = position
        if (stream in self._tracked or stream in self._resumable) and stream not in self._failed:
            self._covered[stream] = position
            self._hold(stream, _HeldState(state, {stream: position}))
        if record_count is None or record_count == own_count:
            return None
        return CountMismatch(stream, record_count, own_count)

    def _shared_mismatch(self, record_count: float | None) -> CountMismatch | None:
        """Compares the counts of a shared state. Sources differ in whether they count untracked streams too, so both
        sums are accepted."""
        everything = self._since_shared.total()
        if record_count is None or record_count == everything:
            return None
        tracked = sum(rows for stream, rows in self._since_shared.items() if stream in self._tracked)
        return None if record_count == tracked else CountMismatch(None, record_count, tracked)

    def _shared_position(self, stream: StreamId) -> int:
        return self._received[stream] - self._since_shared[stream]

    def _hold(self, key: StreamId | None, newest: _HeldState) -> None:
        held = self._held.setdefault(key, [])
        if held and not held[-1].was_returned:
            held.pop()
        held.append(newest)

    def _newest_free(self, key: StreamId | None, rows: Mapping[StreamId, int]) -> _HeldState | None:
        return next((held for held in reversed(self._held[key]) if self._is_free(held, rows)), None)

    def _is_free(self, held: _HeldState, rows: Mapping[StreamId, int]) -> bool:
        if held.covers is None:
            held.covers = {stream: self._shared_position(stream) for stream in self._tracked}
        if self._incomplete and not self._incomplete.isdisjoint(held.covers):
            return False
        return all(self._landed[stream] + rows.get(stream, 0) >= position for stream, position in held.covers.items())

    def _forget_moved(self, key: StreamId | None) -> None:
        held = self._held[key]
        moved = [one for one in held if one.was_returned and self._is_free(one, {})]
        if moved:
            del held[: held.index(moved[-1]) + 1]
        if not held:
            del self._held[key]
