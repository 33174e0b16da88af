"""How a table of Iceberg has to be, and how one is made so: new, or changed until all columns are in."""

from typing import NamedTuple

from dagster_airbyte_proto.model import Ordering, PartitionField, TableName
from dagster_airbyte_proto.schema.evolution import Columns, Terms, Verdict, decided
from dagster_airbyte_proto.tables.iceberg_jvm import JavaIceberg, JavaTable
from dagster_airbyte_proto.tables.iceberg_log import TableLog, partition_words
from dagster_airbyte_proto.tables.jvm_errors import CALL_ERRORS, Failure, failure_of
from dagster_airbyte_proto.tables.writer import TableFit, fit_of, refuse_partitioning, refuse_slices


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

    def refuse(self, doing: str, log: TableLog) -> None:
        """Raises TableError for a table that stands and is made otherwise."""
        if self.is_by_reference or self.slice_column is not None:
            if self.partitioning or (log.is_partitioned and log.slice_column is None):
                refuse_partitioning(doing, partition_words(log.partitioning), partition_words(self.partitioning))
            else:
                refuse_slices(doing, log.slice_column, self.slice_column)

    def verdict(self, log: TableLog) -> Verdict:
        return decided(log.columns, self.columns, log.last_column_id, self.terms)


class Fitting(NamedTuple):
    table: JavaTable
    fit: TableFit


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
    verdict = wanted.verdict(table.log)
    verdict.refuse(doing, wanted.terms)
    if verdict.renames:
        table.rename(verdict.renames)
        table.refresh()
    if wanted.verdict(table.log).columns != table.log.columns:
        table.evolve(verdict.columns)
        table.refresh()
    return Fitting(table, fit_of(verdict, wanted.columns, wanted.terms))
