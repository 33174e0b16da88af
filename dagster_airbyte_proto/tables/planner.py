"""The interfaces behind the plan of a push: who finds the rows to send, and writes them as Parquet."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from dagster_airbyte_proto.loads.plan_query import PlannedRows, PlanQuery
from dagster_airbyte_proto.loads.push import PlanFile, TableSnapshot


class PushPlanner(Protocol):
    """Finds out what a push has to send. Spark does it for every real table (`tables/changes/push_plan.py`)."""

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


class WholeFiles(NamedTuple):
    """The data files of a table without deletes, and the field ids of each of its columns: its own, then those of the
    fields nested in it."""

    files: Sequence[PlanFile]
    ids: Mapping[str, Sequence[int]]


@runtime_checkable
class SupportsWholeFiles(Protocol):
    """A planner that knows the data files of a table, which can be read in the place of a plan."""

    def whole_files(self, query: PlanQuery) -> WholeFiles | None:
        """Returns the Parquet files with all rows of the table at a snapshot; None where other files have a say."""
        ...

    def release_snapshot(self, tag: str, table: str) -> None:
        """Has the table forget a tag. Raises TableError where the table refuses it."""
        ...


@runtime_checkable
class SupportsInterrupts(Protocol):
    """A planner whose jobs, and those of its session's tables, another thread can end."""

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        """Has the jobs that this thread starts meanwhile carry a tag, and those of threads that run in its context."""
        ...

    def interrupt(self, tag: str) -> None:
        """Ends the running jobs with this tag: they fail. The next ones do not."""
        ...


@runtime_checkable
class SupportsPlans(Protocol):
    """A writer that plans pushes of its tables itself, without Spark."""

    def planner(self) -> PushPlanner: ...


@runtime_checkable
class SupportsSession(Protocol):
    """A writer with a Spark session of its own."""

    def open_session(self) -> Any: ...
