"""The part of a connection that a run asks a lease of."""

from typing import NamedTuple


class Slot(NamedTuple):
    """A part of a connection that a run asks for: one partition, or the whole connection without one.

    `most_runs` is how many runs may work on the connection then, this one included.
    """

    partition: str = ""
    most_runs: int = 1


WHOLE = Slot()
