"""The part of a connection that a run asks a lease of."""

import shlex
from typing import NamedTuple


class Slot(NamedTuple):
    """A part of a connection that a run asks for: one partition, or the whole connection without one.

    `most_runs` is how many runs may work on the connection then, this one included. A run of a partition that
    `recovers` gets the whole connection where an earlier run of the whole has left something: it has to end that first.
    """

    partition: str = ""
    most_runs: int = 1
    recovers: bool = True


WHOLE = Slot()

_ANY_NUMBER = 1_000_000_000


def slot_by_hand(partition: str) -> Slot:
    """The slot of a person who changes states of a partition, or of the whole connection. The change ends nothing that
    others have left and reads no source, so runs of other partitions go on beside it, however many may work at once."""
    return Slot(partition, _ANY_NUMBER, recovers=False) if partition else WHOLE


def part_text(connection: str, partition: str) -> str:
    """A connection, or one partition of it, for people."""
    return f"partition {partition} of {connection}" if partition else connection


def partition_option(partition: str) -> str:
    """The option by which a command names a partition, as a shell takes it, after a space; empty for none."""
    return f" --partition {shlex.quote(partition)}" if partition else ""
