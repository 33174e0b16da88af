"""The interfaces behind the plan of a push: who finds the rows to send, and writes them as Parquet."""

from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from dagster_airbyte_proto.loads.plan_query import PlannedRows, PlanQuery
from dagster_airbyte_proto.loads.push import TableSnapshot


class PushPlanner(Protocol):
    """Finds out what a push has to send. Spark does it for every real table (`tables/spark/push_plan.py`)."""

    def fields(self, query: PlanQuery) -> pa.Schema:
        """Returns the fields that the destination gets, reading no row. Raises ConfigError for a mapping that fails."""
        ...

    def snapshot(self, table: str) -> TableSnapshot | None:
        """Returns the newest snapshot of an Iceberg or Delta table; None for a view, or a table of another format."""
        ...

    def keep_snapshot(self, tag: str, snapshot: TableSnapshot) -> None:
        """Has the table keep a snapshot, and no longer the one that it kept under this tag before.

        Does nothing for a format without tags. Raises TableError where the table refuses it.
        """
        ...

    def writes_to(self, location: str) -> bool:
        """Returns whether `write` can write files at a location."""
        ...

    def write(self, query: PlanQuery, folder: str) -> PlannedRows:
        """Writes the rows to send in the folder: those to write in `rows`, the keys to remove in `removed`.

        Raises ConfigError for a mapping that fails, TableError for keys that are null or not unique. Where the changes
        since a snapshot cannot be found it compares all rows, and says why.
        """
        ...


@runtime_checkable
class SupportsPlans(Protocol):
    """A writer that plans pushes of its tables itself, without Spark."""

    def planner(self) -> PushPlanner: ...


@runtime_checkable
class SupportsSession(Protocol):
    """A writer with a Spark session of its own."""

    def open_session(self) -> Any: ...
