"""What a table is to the rest of the house.

Order of calls: `prepare` a stream's table, stage Parquet files under its `location` in its `schema`, then
`commit` them in the name of a load. A commit is idempotent on its load id, and fenced: however many writers
try, paused or dead ones among them, the rows of a load are in the table once or not at all.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa

from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.table import Sought, Standing, TableSpec, TableTarget
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.formats import Abilities


class TableWriter(Protocol):
    """Raises TableError when a table refuses, CommitUnknown when nobody knows whether it did."""

    @property
    def abilities(self) -> Abilities: ...

    @property
    def storage(self) -> Storage:
        """What reaches the files of its tables that are not on this machine's disk."""
        ...

    def prepare(self, spec: TableSpec) -> TableTarget:
        """Creates the table, or makes it what `schema/evolution.py` decides. Raises SchemaRefused where that is no."""
        ...

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        """Lands the part's files: append, upsert by keys, or replace, as its write mode says. May be called again.

        Readers see all of it or nothing: what is replaced is there until the new rows, without those that the part's
        position deletes take out, are.
        """
        ...

    def close(self) -> None:
        """Lets go of what it holds (a session it made itself, for one)."""
        ...


@runtime_checkable
class KnowsItsRows(Protocol):
    """What a writer can do beside, whose tables are asked whether they have newer rows of a key than those that come.
    Without it the later load wins. A writer that keeps rows aside is asked for those of a `branch` too."""

    def standing(self, name: TableName, branch: str | None = None) -> Standing:
        """What a prepared table tells of its rows now."""
        ...

    def greatest(self, name: TableName, columns: Sequence[str], branch: str | None = None) -> pa.Table:
        """One row: the greatest value of each of the columns, or null."""
        ...

    def rows_of(self, name: TableName, sought: Sought, branch: str | None = None) -> pa.Table:
        """What the table has now of some keys: null is a value in them. May read all of it."""
        ...


@runtime_checkable
class KeepsAside(Protocol):
    """What a writer can do beside, whose tables have branches: `commit` parts that are put aside.

    Such a part lands once too, whoever tries, and only right behind the load that it says it comes after. The loads of
    a branch see nothing of what the table had, and upserts among them reach older loads of the branch alone.
    """

    def aside(self, name: TableName) -> Mapping[str, str]:
        """The branches that stand, each with the load that came last. None where there is no such table."""
        ...

    def drop_aside(self, name: TableName, branch: str) -> None:
        """Nothing of the branch is left, once its files are let go of. One that is not there, or whose table is not, is
        dropped already."""
        ...
