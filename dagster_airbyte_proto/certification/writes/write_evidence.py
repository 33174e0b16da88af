"""The evidence of writes to a destination: what it was sent, what it sent back, and how it ended. Values only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dagster_airbyte_proto.certification.evidence import Evidence, Reply
from dagster_airbyte_proto.certification.watching.watched_launcher import ConnectorRun
from dagster_airbyte_proto.connection.push import Acknowledge
from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.model import PushMode
from dagster_airbyte_proto.protocols.destination import DestinationOperation, StreamResult

_NONE: Reply[Any] = Reply(None)


class ReceivedState(NamedTuple):
    """A state that a destination sent back, in the message of this number.

    `rows` is its position, None for a state that it was never sent. `is_open` says that
    its input was open when it came. `is_same` compares the whole state with the one that was sent, but for counts.
    `records` and `rejected` are the counts that the destination gives.
    """

    message: int
    rows: int | None
    is_open: bool
    in_envelope: bool
    is_same: bool
    records: float | None = None
    rejected: float | None = None


class WriteMark(NamedTuple):
    """A point of a write: the rows sent so far, the seconds since the first, the greatest memory until then."""

    rows: int
    size_bytes: int
    seconds: float
    peak_memory_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class WriteEvidence:
    """One write. `states` are the positions that were sent as states.

    `reported` is the first error that the destination reported, `failure` the one that we met: it took no more input,
    or did not end in time (`is_late`). `end_seconds` passed from the end of its input (or SIGTERM) to its own end.
    `plain_lines` are lines of its output that are no messages. `refused` is why rows could not be sent at all. `end` is
    how its process ended, with its words, masked.
    """

    rows: int = 0
    states: Sequence[int] = ()
    received: Sequence[ReceivedState] = ()
    result: StreamResult | None = None
    rejections: Sequence[str] = ()
    reported: str | None = None
    failure: ConnectorError | None = None
    is_late: bool = False
    has_records: bool = False
    plain_lines: int = 0
    refused: Sequence[str] = ()
    marks: Sequence[WriteMark] = ()
    end_seconds: float = 0.0
    end: str = ""
    run: ConnectorRun

    @property
    def ended_well(self) -> bool:
        """True if the destination ended by itself, or with a result, and says of nothing that it went wrong."""
        report = self.run.report
        has_ended = report is not None and (report.ended_cleanly or self.result is not None)
        return self.failure is None and self.reported is None and has_ended

    @property
    def how_it_failed(self) -> str:
        """A phrase for messages: what went wrong, as the destination or we saw it."""
        if self.reported:
            return f"it reported: {self.reported}"
        report = self.run.report
        if report is not None and not report.ended_cleanly and not report.stopped:
            return f"it {self.end}"
        return self.failure.found if self.failure else f"it {self.run.how_it_ended}"

    @property
    def proved_rows(self) -> int:
        """The rows that states which came back prove."""
        return max(
            (rows for each in self.received if (rows := each.rows) is not None and rows in self.states), default=0
        )

    @property
    def miscounts(self) -> "Sequence[tuple[ReceivedState, int]]":
        """The states whose counts differ from the rows that were sent since the state before, with these."""
        found, before = [], 0
        for each in self.received:
            if each.records is None or each.rows is None or each.rows not in self.states:
                continue
            rows, before = each.rows - before, each.rows
            if each.records not in (rows, rows - (each.rejected or 0)):
                found.append((each, rows))
        return found

    def loses_rows(self, first: "WriteEvidence") -> bool:
        """True if its counts say that rows are missing. They say nothing where those of the first write are wrong."""
        return bool(self.miscounts) and not first.miscounts

    @property
    def counted_rows(self) -> int:
        """The rows that the destination counts."""
        return sum(int(each.records or 0) for each in self.received if each.rows in self.states)

    @property
    def rejected_rows(self) -> int:
        """The rows that the destination says it did not take."""
        counted = sum(int(each.rejected or 0) for each in self.received)
        return max(len(self.rejections), counted, self.result.failed if self.result else 0)

    @property
    def proves_all(self) -> bool:
        """True if all of its rows are proved, by a state or by its result."""
        return self.ended_well and (self.result is not None or self.proved_rows == self.rows)


class TypeWrite(NamedTuple):
    """The write of one kind of value by itself."""

    kind: str
    write: Reply[WriteEvidence]


@dataclass(frozen=True, kw_only=True)
class DestinationEvidence(Evidence):
    """All that is known of one destination.

    `objects` are the names that certify wrote to, in the mode `mode`; `fixed_names` is what in the config names the
    place of all rows, whatever these are. Where `all_types` went well, `types` is empty. `acknowledge` is the setting
    of the connection. With `takes_any_rows` the destination takes rows of any form, and objects of any name.
    """

    objects: Sequence[str] = ()
    fixed_names: Sequence[str] = ()
    mode: PushMode | None = None
    acknowledge: Acknowledge = "state"
    takes_any_rows: bool = True
    discover: Reply[tuple[DestinationOperation, ...]] = _NONE
    empty: Reply[WriteEvidence] = _NONE
    first: Reply[WriteEvidence] = _NONE
    again: Reply[WriteEvidence] = _NONE
    kinds: Sequence[str] = ()
    all_types: Reply[WriteEvidence] = _NONE
    types: Sequence[TypeWrite] = ()
    misfit: Reply[WriteEvidence] = _NONE
    cut: Reply[WriteEvidence] = _NONE
    cancelled: Reply[WriteEvidence] = _NONE
    long: Reply[WriteEvidence] = _NONE
