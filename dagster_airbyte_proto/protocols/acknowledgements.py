"""Follows which rows a destination has proved, by the states that it sent back. The same for every protocol.

- An echo proves all rows before its state, and so all earlier states too.
- A state that we never sent, or that is proved already, is no progress. It is counted, and the run's log says so.
- Our states carry the plan and the position, so no two of them are equal.
- What a destination counts is taken once, from the echo that proves the rows. A count of all records may hold the
  rejected ones or not: the specification does not say, and destinations differ.
"""

from collections import deque
from typing import NamedTuple

from dagster_airbyte_proto.protocols.destination import Echo, StreamResult


class _SentState(NamedTuple):
    rows: int
    lines: int


class Acknowledgements:
    """The states that one process was sent, and the position that it has proved."""

    def __init__(self, plan_id: str, acknowledged: int) -> None:
        self._plan_id = plan_id
        self._waiting: deque[_SentState] = deque()
        self.rows = acknowledged
        self.repeats = 0
        self.strangers = 0
        self.rejected = 0
        self.unsure: list[tuple[int, int]] = []
        """The ranges of proved rows of which it says that it did not take some, and not which. To be cleared once they
        are written down."""
        self.miscount = ""

    @property
    def waiting(self) -> int:
        """The number of states that are out."""
        return len(self._waiting)

    def sent(self, rows: int, lines: int) -> None:
        """Notes that a state with this position is written, behind so many lines since the state before."""
        self._waiting.append(_SentState(rows, lines))

    def received(self, echo: Echo) -> bool:
        """Takes in an echo. True if it proves rows that were not proved before."""
        position = echo.position
        if position is None or position.plan_id != self._plan_id:
            self.strangers += not echo.is_end  # which may come without a state
            return False
        if all(position.rows != state.rows for state in self._waiting):
            if position.rows <= self.rows:
                self.repeats += 1
            else:
                self.strangers += 1
            return False
        proved = []
        while self._waiting and self._waiting[0].rows <= position.rows:
            proved.append(self._waiting.popleft())
        before, self.rows = self.rows, proved[-1].rows
        self._count(echo, proved)
        if echo.rejected:
            self.unsure.append((before, self.rows))
        return True

    def ended(self, result: StreamResult) -> None:
        """Takes in the result of a stream. It proves all rows that were sent if it says that so many arrived."""
        lines = sum(state.lines for state in self._waiting)
        if result.received is None and lines:
            self.miscount = f"its result does not say how many of the {lines:,} rows it received"
            return
        if result.received is not None and result.received != lines:
            self.miscount = f"it received {result.received:,} rows where {lines:,} were sent"
            return
        self.rejected += result.failed
        if result.skipped:
            self.miscount = f"it skipped {result.skipped:,} of {lines:,} rows, which count as acknowledged"
        if self._waiting:
            before, self.rows = self.rows, self._waiting[-1].rows
            self._waiting.clear()
            if result.failed or result.skipped:
                self.unsure.append((before, self.rows))

    def _count(self, echo: Echo, proved: list[_SentState]) -> None:
        rejected = max(0.0, echo.rejected or 0.0)
        self.rejected += int(rejected)
        # With an echo for several states it may count since any of them.
        if (
            echo.records is not None
            and len(proved) == 1
            and proved[0].lines not in (echo.records, echo.records + rejected)
        ):
            self.miscount = f"it counted {echo.records:,.0f} records where {proved[0].lines:,} were sent"
