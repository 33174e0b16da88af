"""The rows of a table that may have changed since a snapshot, and the interface of those who find them.

They may be too many, and rows that are as they were among them: a push compares them with what it has delivered. They
must not be too few.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple, Protocol

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

STEP: Final = "_airbyte_proto_step"
"""The column of events that orders them: of a key the last event counts."""

IS_GONE: Final = "_airbyte_proto_is_gone"
"""The column of events that is true where the table had the row before the step. In one step a row that is there
wins."""


class NoCommonHistory(Exception):
    """The changes of a table since a snapshot cannot be found, and all its rows have to be compared."""


class RowEvents(NamedTuple):
    """Rows that were there, or were gone, at steps on the way from one snapshot to another.

    `rows` have the columns of the table, `gone_keys` those of the key only. `gone_rows` have the columns of the table
    too, and only the key is asked for. All have STEP and IS_GONE. `most_rows` is an upper bound for all of them, None
    where it is not known.
    """

    rows: Sequence[DataFrame]
    gone_keys: Sequence[DataFrame] = ()
    gone_rows: Sequence[DataFrame] = ()
    most_rows: int | None = None

    @property
    def are_none(self) -> bool:
        return not (self.rows or self.gone_keys or self.gone_rows)

    def joined(self, other: "RowEvents") -> "RowEvents":
        """Returns these events and others. Both have a bound."""
        return RowEvents(
            [*self.rows, *other.rows],
            [*self.gone_keys, *other.gone_keys],
            [*self.gone_rows, *other.gone_rows],
            (self.most_rows or 0) + (other.most_rows or 0),
        )


class EventsWanted(NamedTuple):
    """The events that a push needs. Without `finds_gone` those of rows that are there suffice.

    `key_columns` are the columns by which a row is known; None if the key is computed from others.
    """

    key_columns: tuple[str, ...] | None
    finds_gone: bool


class ChangeFinder(Protocol):
    """Finds the changes of one table. Spark can read the frames until the stack is closed."""

    def events(self, since: str, until: str, wanted: EventsWanted, stack: ExitStack) -> RowEvents:
        """Returns the events after snapshot `since`, up to `until`. Raises NoCommonHistory."""
        ...


def at_step(frame: DataFrame, step: int, *, is_gone: bool) -> DataFrame:
    return frame.withColumns({STEP: f.lit(step), IS_GONE: f.lit(is_gone)})
