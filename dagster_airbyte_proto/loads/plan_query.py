"""The request for a plan of a push, and its answer: what Spark is told, and what it tells."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.push import TableSnapshot
from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from dagster_airbyte_proto.schema.columns import METADATA, SDC

HASH = "_hash"
"""The column of a plan, and of a delivered table, with the hash of the row as the destination gets it."""

CHANGE = "_change"
"""The column of a plan that says whether a row is new to the destination."""

LEFT_OUT = "_left_out"
"""The column of a plan with the reason for which a transform left the row out; null for a row that is sent."""

OWN_COLUMNS = frozenset((HASH, CHANGE, LEFT_OUT))

PARTITION = "_pushed_partition"
"""The column of a delivered table with the partition in which the row was delivered last, if it was in one.

`_partition` is a name that Iceberg keeps for itself: a table with such a column is created, and cannot be read."""

SYNC_COLUMNS = frozenset((*METADATA.names, *SDC.names, SLICE_COLUMN))
"""The columns that a sync adds to those of its stream. Most of their values are new whenever a source sends a row
again: if they were sent, no row would be as it was delivered."""

_MAX_COLUMNS = 20


class RowChange(StrEnum):
    ADDED = "added"
    CHANGED = "changed"


class PlannedField(NamedTuple):
    """A field of the destination: from a column (its path, with dots), by an expression, or a constant."""

    name: str
    column: str | None = None
    sql: str | None = None
    constant: str | bool | int | float | None = None


class PushedPartition(NamedTuple):
    """The partition that a push is of: the rows whose `column` is the key. A query, without a `column`, selects them
    itself."""

    key: str
    column: str | None = None


class PlanQuery(NamedTuple):
    """The rows that a push asks for, of a `table` or a query in `sql`.

    Without `fields` the destination gets all columns: of a table without SYNC_COLUMNS, but `has_sync_columns` adds
    these. `delivered` is the table of what it has; without it all rows are sent, and with `sends_all`, where it only
    shows which rows are gone, and with `marks_known` which of the sent ones it may have. Of a `cursor` column only
    values greater than `after` are. `fingerprint` goes into the hash of each row. With `compares_keys` a table
    remembers what is delivered, though the first query asks it nothing. The table is read as it was `at` a snapshot.
    With `since` only what has changed after that one is compared with what is delivered. Of a `partition` only its rows
    are, and removed is what was delivered in it last and is gone from it.
    """

    stream: str
    table: str | None
    sql: str | None
    fields: tuple[PlannedField, ...]
    keys: tuple[str, ...]
    fingerprint: str
    delivered: str | None = None
    sends_changed: bool = True
    finds_removed: bool = False
    retries_rejected: bool = False
    cursor: str | None = None
    after: str | None = None
    compares_keys: bool = True
    at: TableSnapshot | None = None
    since: TableSnapshot | None = None
    partition: PushedPartition | None = None
    sends_all: bool = False
    marks_known: bool = False
    has_sync_columns: bool = False

    @property
    def key_columns(self) -> tuple[str, ...] | None:
        """The columns of the table that the keys are, in their order; None if one of them is computed."""
        if not self.fields:
            return self.keys
        columns = {field.name: field.column for field in self.fields}
        found = tuple(name for key in self.keys if (name := columns.get(key)) is not None and "." not in name)
        return found if len(found) == len(self.keys) else None

    def fields_among(self, columns: Sequence[str]) -> list[str]:
        """The columns of the origin that are the fields, where there are no `fields`. A key is always one."""
        if self.sql is not None or self.has_sync_columns:
            return list(columns)
        found = [name for name in columns if name not in SYNC_COLUMNS or name in self.keys]
        if not found:
            raise ConfigError(
                f"planning the rows of {self.table}",
                "it has no columns but those that syncs add",
                remedy="Name those to send in `map`.",
                stream=self.stream,
            )
        return found


class PlannedRows(NamedTuple):
    """The numbers that Spark counted while it wrote a plan.

    `rows` are those that it looked at: all of the origin, unless `has_compared_all` is false. `delivered` are those
    that the destination had before. `written` are those in the plan's folder, None where nobody counted them. `note`
    says why all rows were compared where only the changes were asked for.
    """

    rows: int
    delivered: int = 0
    cursor: str | None = None
    has_compared_all: bool = True
    note: str | None = None
    written: int | None = None


def lacking_column(query: PlanQuery, column: str, columns: Sequence[str]) -> ConfigError:
    """The error of a table without the column that picks the rows: that of the partition, or of the cursor."""
    if query.partition is not None and column == query.partition.column:
        found = f"it has no column {column}, by which a partition is picked"
        remedy = "Name the column with the keys of its partitions: `partition: COLUMN` of the stream"
    else:
        found, remedy = f"it has no column {column}, which is the `cursor`", "Name a column that only grows"
    shown = ", ".join(columns[:_MAX_COLUMNS]) + (" and more" if len(columns) > _MAX_COLUMNS else "")
    return ConfigError(
        f"planning the rows of {query.table or 'a query'}",
        found,
        remedy=f"{remedy}. It has {shown}.",
        stream=query.stream,
    )
