"""How a table of Iceberg has to be, and how one is made so: new, or changed until all columns are in.

For a generation that replaces the table nothing is changed yet. If it is to have other columns these are added to the
table as a schema that is not the current one: so their ids are given out to nobody else. It becomes the current one in
the change that shows the generation's rows (`iceberg_aside.py`).
"""

from typing import NamedTuple

from dagster_airbyte_proto.loads.table import TableFit, fit_of
from dagster_airbyte_proto.model import Ordering, PartitionField, TableName
from dagster_airbyte_proto.schema.evolution import Columns, Terms, Verdict, decided
from dagster_airbyte_proto.schema.replacing import Before, Replacement, replacement
from dagster_airbyte_proto.tables.iceberg.jvm import JavaIceberg, JavaTable
from dagster_airbyte_proto.tables.iceberg.log import TableLog, partition_words
from dagster_airbyte_proto.tables.part_checks import refuse_partitioning, refuse_slices
from dagster_airbyte_proto.tables.spark.jvm_errors import CALL_ERRORS, Failure, failure_of


class Wanted(NamedTuple):
    """A table as it is wanted. Files that are added by reference lie in one slice; what Spark writes, anywhere."""

    name: TableName
    columns: Columns
    slice_column: str | None
    comment: str = ""
    partitioning: tuple[PartitionField, ...] = ()
    is_by_reference: bool = True
    terms: Terms = Terms()
    ordering: Ordering | None = None
    replaces: bool = False
    begun: str | None = None

    def refuse(self, doing: str, log: TableLog) -> None:
        """Raises TableError for a table that stands and is made otherwise."""
        if self.is_by_reference or self.slice_column is not None:
            if self.partitioning or (log.is_partitioned and log.slice_column is None):
                refuse_partitioning(doing, partition_words(log.partitioning), partition_words(self.partitioning))
            else:
                refuse_slices(doing, log.slice_column, self.slice_column)

    def verdict(self, log: TableLog) -> Verdict:
        return decided(log.columns, self.columns, log.last_column_id, self.terms)

    def replacement(self, log: TableLog) -> Replacement:
        begun = log.schema_of(self.begun) if self.begun else None
        before = Before(log.columns, log.last_column_id, log.known_columns, begun, tuple(log.placing_ids))
        return replacement(before, self.columns, self.terms)


class Fitting(NamedTuple):
    """With a `schema_id` the columns are not the readers' yet."""

    table: JavaTable
    fit: TableFit
    schema_id: int | None = None


def fitted(iceberg: JavaIceberg, wanted: Wanted, doing: str) -> Fitting:
    """The table with all its columns: as it is, made wider, or new. A rename goes by itself: Iceberg compares what
    is added in the same change with the old names."""
    try:
        table = iceberg.load(wanted.name)
    except CALL_ERRORS as error:
        if failure_of(error) is not Failure.MISSING_TABLE:
            raise
        iceberg.create_namespace(wanted.name.namespace)
        table = iceberg.create(wanted.name, wanted.columns, wanted.comment, wanted.slice_column, wanted.partitioning)
        table.refresh()
        created = Verdict(table.log.columns, table.log.last_column_id)
        return Fitting(table, fit_of(created, wanted.columns, wanted.terms))
    table.refresh()
    wanted.refuse(doing, table.log)
    if wanted.replaces:
        return _fitted_aside(table, wanted, doing)
    verdict = wanted.verdict(table.log)
    verdict.refuse(doing, wanted.terms)
    if verdict.renames:
        table.rename(verdict.renames)
        table.refresh()
    if wanted.verdict(table.log).columns != table.log.columns:
        table.evolve(verdict.columns)
        table.refresh()
    return Fitting(table, fit_of(verdict, wanted.columns, wanted.terms))


def _fitted_aside(table: JavaTable, wanted: Wanted, doing: str) -> Fitting:
    """The table as it is, with a schema more if need be. Another writer's change meanwhile is met by looking again."""
    while True:
        verdict, schema_id = wanted.replacement(table.log)
        verdict.refuse(doing, wanted.terms)
        if verdict.columns == table.log.columns:
            return Fitting(table, fit_of(verdict, wanted.columns, wanted.terms))
        if schema_id is not None:
            return Fitting(table, fit_of(verdict, wanted.columns, wanted.terms), schema_id)
        table.add_schema(verdict.columns, seen=table.log)
        table.refresh()
