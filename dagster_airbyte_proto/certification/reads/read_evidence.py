"""The evidence of one read: the rows of each stream as fingerprints, its states, and all that did not look right.

A row is kept as three numbers of 64 bits: of its content, of its key, of its cursor. So a million rows take 24 MB, and
no record stays in memory.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dagster_airbyte_proto.certification.watching.watched_launcher import ConnectorRun
from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.model import PlannedStream, State, StreamId
from dagster_airbyte_proto.protocols.events import StreamStatus

_KEPT = 5


class OddLine(NamedTuple):
    """A line of the output, and what is odd about it. Records are described by their types, not shown."""

    line: int
    text: str


@dataclass
class OddLines:
    """The number of lines with one oddity, and the first of them."""

    count: int = 0
    first: list[OddLine] = field(default_factory=list)

    def add(self, line: int, text: str) -> None:
        self.count += 1
        if len(self.first) < _KEPT:
            self.first.append(OddLine(line, text))


def _numbers() -> "array[int]":
    return array("Q")


@dataclass
class StreamRecords:
    """The records of one stream in their order. `keys` is empty without a primary key, `cursors` without a cursor.

    `misfits` are the values that do not fit the schema, by field and fault.
    """

    contents: "array[int]" = field(default_factory=_numbers)
    keys: "array[int]" = field(default_factory=_numbers)
    cursors: "array[int]" = field(default_factory=_numbers)
    misfits: dict[str, OddLines] = field(default_factory=dict)
    null_keys: OddLines = field(default_factory=OddLines)


class StatePoint(NamedTuple):
    """A state, and the records that came before it.

    `rows` are their numbers by stream; `cursors` the greatest cursor of each stream. `declared` is the number of
    records that the source says it sent since the state before; `counted` is ours.
    """

    state: State
    line: int
    is_provisional: bool
    rows: Mapping[StreamId, int]
    cursors: Mapping[StreamId, int]
    declared: float | None
    counted: int


@dataclass(frozen=True)
class ReadEvidence:
    """One read from its start to its end, or to where it was stopped. `error` is why it did not end by itself."""

    requested: Sequence[PlannedStream]
    streams: Mapping[StreamId, StreamRecords]
    states: Sequence[StatePoint]
    statuses: Mapping[StreamId, StreamStatus]
    undeclared: OddLines
    unreadable: OddLines
    plain: OddLines
    errors: OddLines
    without_schema: OddLines
    batches: int
    run: ConnectorRun
    error: ConnectorError | None = None

    @property
    def rows(self) -> int:
        return sum(len(each.contents) for each in self.streams.values())

    @property
    def is_whole(self) -> bool:
        """True if the connector came to its end and said nothing of a failure."""
        return self.error is None and self.run.report is not None and self.run.report.ended_cleanly
