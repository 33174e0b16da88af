"""Follows which rows a destination has proved, by the states that it sent back. The same for every protocol.

- An echo proves all rows before its state, and so all earlier states too.
- A state that we never sent, or that is proved already, is no progress: it is counted.
- Our states carry the plan and the position, so no two of them are equal.
"""

from collections import deque

from dagster_airbyte_proto.protocols.destination import Echo


class Acknowledgements:
    """The states that one process was sent, and the position that it has proved."""

    def __init__(self, plan_id: str, acknowledged: int) -> None:
        self._plan_id = plan_id
        self._waiting: deque[int] = deque()
        self.rows = acknowledged
        self.repeats = 0
        self.strangers = 0
        self.rejected = 0

    @property
    def waiting(self) -> int:
        """The number of states that are out."""
        return len(self._waiting)

    def sent(self, rows: int) -> None:
        """Notes that a state with this position was written."""
        self._waiting.append(rows)

    def received(self, echo: Echo) -> bool:
        """Takes in an echo. True if it proves rows that were not proved before."""
        if echo.rejected:
            self.rejected += int(echo.rejected)
        position = echo.position
        if position is None or position.plan_id != self._plan_id:
            self.strangers += 1
            return False
        if position.rows not in self._waiting:
            if position.rows <= self.rows:
                self.repeats += 1
            else:
                self.strangers += 1
            return False
        while self._waiting and self._waiting[0] <= position.rows:
            self.rows = self._waiting.popleft()
        return True
