"""Follows which rows a destination has proved, by the states that it sent back. The same for every protocol.

- An echo proves all rows before its state, and so all earlier states too.
- A state that we never sent is no progress: the report says how many came. Nor is one that is proved already.
- Our states carry the plan and the position, so no two of them are equal.
- What a destination counts is taken once, from the echo that would prove the rows. A count of all records may hold the
  rejected ones or not: the specification does not say, and destinations differ.
- An echo whose count is too small proves nothing, and no echo after it does: it would cover the same rows. A count that
  is too large may be one of all rows since the start.
"""

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
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
        self.strangers = self.globals = 0
        self.rejected = 0
        self.unsure: list[tuple[int, int]] = []
        """The ranges of proved rows of which it says that it did not take some, and not which. To be cleared once they
        are written down."""
        self.miscount = ""
        self.shortfall = ""
        """The counts of the first echo that says of fewer rows than were sent that they arrived."""
        self.unproved_rejected = 0
        """The rows that it says it rejected, by such an echo or later ones."""
        self._returned = acknowledged

    def begin(self, rows: int) -> None:
        """Takes all rows before a position for proved by another process."""
        self.rows = self._returned = rows

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
            self.globals += echo.is_global
            return False
        if all(position.rows != state.rows for state in self._waiting):
            if position.rows <= self._returned:
                self.repeats += 1
            else:
                self.strangers += 1
            return False
        proved = []
        while self._waiting and self._waiting[0].rows <= position.rows:
            proved.append(self._waiting.popleft())
        self._returned = proved[-1].rows
        rejected = int(max(0.0, echo.rejected or 0.0))
        self._compare(echo, [state.lines for state in proved], rejected)
        if self.shortfall:
            self.unproved_rejected += rejected
            return False
        self._prove(self._returned, rejected)
        return True

    def take_exit(self, rows: int) -> None:
        """Takes the good end of the process for the proof of all rows up to a position, whatever it has counted."""
        self._prove(rows, self.unproved_rejected)
        self.unproved_rejected = 0

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

    def _prove(self, rows: int, rejected: int) -> None:
        if rejected:
            self.unsure.append((self.rows, rows))
        self.rejected += rejected
        self.rows = rows

    def _compare(self, echo: Echo, lines: Sequence[int], rejected: int) -> None:
        """Holds the count of an echo against the lines before each of the states that it covers."""
        if echo.records is None:
            return
        # With an echo for several states it may count since any of them.
        expected = set(accumulate(reversed(lines)))
        if not expected.isdisjoint((echo.records, echo.records + rejected)):
            return
        counted, is_short = f"it counted {echo.records:,.15g} records", echo.records < lines[-1]
        if is_short and not self.shortfall:
            self.shortfall = f"{counted} and rejected {rejected:,}, of {lines[-1]:,} that were sent"
        if is_short or len(lines) == 1:
            self.miscount = f"{counted} where {lines[-1]:,} were sent"
