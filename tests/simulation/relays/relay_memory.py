"""The memory of one stream of a simulated relay, as it has to be: a row that arrives against it breaks a promise."""

from collections.abc import Iterable
from typing import NamedTuple

from dagster_airbyte_proto.model import PushMode
from tests.simulation.pushes.scripted_destination import Sent


class Known(NamedTuple):
    """What the store knows of a stream: its position at the source, and of a load under way the acknowledged rows."""

    position: int = 0
    acknowledged: frozenset[Sent] = frozenset()
    mode: PushMode | None = None


class StreamMemory:
    """The rows that were acknowledged, by the word of the store, and those that may be sent again.

    - No row is sent that a state covers, or that is acknowledged in a load that goes on. An error in a mode by key ends
      the load, and its rows come again.
    - In `append` no row is sent that the destination shows, unless a person has all unknown rows sent again, or says
      that the load is lost, or the store was set back.
    - A generation that replaces all rows has them all.
    """

    def __init__(self) -> None:
        self.known = Known()
        self.may_be_twice: set[Sent] = set()

    def fault_of(self, row: Sent, shown: Iterable[Sent]) -> str:
        """The promise that a row breaks which arrives now; empty if it breaks none."""
        known = self.known
        if known.mode is PushMode.OVERWRITE:
            return ""
        if row.version < known.position:
            return f"{row} is sent again, and a state at {known.position} covers it"
        if row in known.acknowledged:
            return f"{row} is sent again after it was acknowledged"
        is_double = known.mode is PushMode.APPEND and row not in self.may_be_twice and row in shown
        return f"{row} is sent twice" if is_double else ""
