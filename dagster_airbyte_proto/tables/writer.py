"""The interface that every table format implements.

- Order of calls: `prepare` a stream's table, stage Parquet files under its `location` in its `schema`, then `commit`
  them under the id of a load.
- A commit is idempotent on its load id, and fenced. However many writers try it, among them ones that were paused or
  whose process died, the rows of a load are in the table once or not at all.
- `SupportsKeyLookup` and `SupportsBranches` are optional. Callers test for them with `isinstance`.
- Frames come otherwise: Spark writes them, into the `FrameTables` of a format that has them.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.table import Freshness, KeyQuery, TableSpec, TableTarget, Witness
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.abilities import Abilities

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class TableWriter(Protocol):
    """Creates, changes and fills the tables of one catalog.

    Methods raise TableError when a table refuses a call, and CommitUnknown when the outcome of a commit is unknown.
    A TableError of `commit` means that this call has changed nothing: from the commit point on every other error is a
    CommitUnknown, unless the log was read afterwards and lacks the load.
    """

    @property
    def abilities(self) -> Abilities: ...

    @property
    def storage(self) -> Storage:
        """Opens the files of its tables."""
        ...

    def prepare(self, spec: TableSpec) -> TableTarget:
        """Creates the table, or changes it as `schema/evolution.py` decides. May raise SchemaRefused."""
        ...

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        """Adds the part's files to its table: append, upsert by keys, or replace, as its write mode says.

        It may be called again for the same load. Readers see all of the part or nothing. Rows that it replaces stay
        until its own rows are there, without those that the part's position deletes remove.
        """
        ...

    def find_load(self, load_id: str, part: StagedRows) -> CommittedRows | None:
        """Returns what the table's log says of a load that an earlier run may have committed, or None if it lacks it.

        None is certain: the whole log was read. Raises TableError where it cannot be read, or the table is not there,
        and CommitUnknown where somebody's expiry has cut off a part of it that may have had the load.
        """
        ...

    def witness(self, name: TableName, connection: str) -> Witness | None:
        """Returns what a table's log says of the loads of a connection that readers see; None if there is no table."""
        ...

    def close(self) -> None:
        """Releases what the writer holds, such as a session that it started itself."""
        ...


@runtime_checkable
class SupportsKeyLookup(Protocol):
    """A writer whose tables can be queried by key, so that a late row does not replace a newer one.

    With a writer that lacks it, the later load wins. If the writer also has branches, `branch` selects the rows of one.
    """

    def freshness(self, name: TableName, branch: str | None = None) -> Freshness:
        """Returns what the log of a prepared table says about its rows now."""
        ...

    def greatest_values(self, name: TableName, columns: Sequence[str], branch: str | None = None) -> pa.Table:
        """Returns one row with the greatest value of each column, or null."""
        ...

    def rows_with_keys(self, name: TableName, query: KeyQuery, branch: str | None = None) -> pa.Table:
        """Returns the table's current rows for some keys. A null in a key equals another null. May read all rows."""
        ...


@runtime_checkable
class SupportsBranches(Protocol):
    """A writer whose tables have branches, so that `commit` takes parts with a `branch_position`.

    Such a part lands once too, whoever tries, and only directly after the load that its position names. A branch starts
    without rows: upserts on it change only rows of older loads of the same branch.
    """

    def branches(self, name: TableName) -> Mapping[str, str]:
        """Returns the existing branches, each with the id of its last load. It is empty if there is no such table."""
        ...

    def drop_branch(self, name: TableName, branch: str) -> None:
        """Removes a branch, and the files that only it has. Does nothing if the branch or the table does not exist."""
        ...


class Slices(NamedTuple):
    """Slices of a table, by the values of one column."""

    column: str
    values: tuple[str, ...]


class FrameLoad(NamedTuple):
    """The write of a frame: it replaces its slices, replaces the whole table, or is appended once for each load id."""

    table: TableName
    load_id: str
    replaces: bool
    slices: Slices | None = None
    labels: Mapping[str, str] = {}


class FrameSnapshot(Protocol):
    """The snapshot of a table that a frame was written in."""

    @property
    def snapshot_id(self) -> int: ...

    @property
    def added_rows(self) -> int: ...

    @property
    def rows(self) -> int | None:
        """The rows that a reader of the table finds; None if its log does not say."""
        ...


class FrameTables(Protocol):
    """Tables that Spark can write frames to, under a load id."""

    def prepare(self, name: TableName, frame: "DataFrame", slice_column: str | None) -> TableTarget:
        """Creates the table, or adds the columns that it lacks. The slice column is one of the frame's own columns.

        Without a slice column the table may have any partitioning, because Spark follows it. Afterwards the session's
        readers and writers see the table as it is now. Raises ConfigError for a frame that no table can take.
        """
        ...

    def writing(self, load: FrameLoad, target: TableTarget) -> AbstractContextManager[Mapping[str, str]]:
        """Yields the options of Spark's writer that put the load into the table's log. The frame is written within."""
        ...

    def landed(self, load_id: str, name: TableName) -> FrameSnapshot | None:
        """Returns the snapshot of a load in a prepared table; None if there is none, or if it has expired."""
        ...
