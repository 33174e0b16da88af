"""Prepares an Iceberg table for a stream: creates it, or changes it until it has all columns.

A generation that replaces all rows changes nothing that readers see yet. If it needs other columns, they are added to
the table's metadata as a schema that is not the current one, so that their field ids cannot be assigned again. The
schema becomes the current one in the change that publishes the generation (`branches.py`).
"""

from typing import NamedTuple

from dagster_airbyte_proto.loads.column_ids import columns_of, with_text_column
from dagster_airbyte_proto.loads.table import TableFit, TableSpec, table_fit
from dagster_airbyte_proto.model import MergeMode, Ordering, PartitionField, TableName
from dagster_airbyte_proto.schema.evolution import EvolutionDecision, EvolutionRules, IcebergSchema, evolution_decision
from dagster_airbyte_proto.schema.names import case_folded
from dagster_airbyte_proto.schema.replacement import ReplacedTable, Replacement, replacement_schema
from dagster_airbyte_proto.tables.iceberg.jvm import FORMAT_VERSION, WITH_VECTORS, JavaIceberg, JavaTable
from dagster_airbyte_proto.tables.iceberg.log import TableLog, partition_texts
from dagster_airbyte_proto.tables.iceberg.positions.position_merge import BY_POSITION
from dagster_airbyte_proto.tables.part_checks import check_partitioning, check_slice_column
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, Failure, failure_of


class RequestedTable(NamedTuple):
    """The requested properties of a table.

    `is_by_reference`: files are added as they are, so they must match the table's partitioning. It is False if Spark
    writes the rows, because Spark follows any partitioning.
    """

    name: TableName
    columns: IcebergSchema
    slice_column: str | None
    comment: str = ""
    merge: MergeMode | None = None
    partitioning: tuple[PartitionField, ...] = ()
    is_by_reference: bool = True
    evolution_rules: EvolutionRules = EvolutionRules()
    ordering: Ordering | None = None
    replaces: bool = False
    resumed_branch: str | None = None
    resumed_schema_id: int | None = None

    @classmethod
    def of(cls, spec: TableSpec) -> "RequestedTable":
        return cls(
            spec.name,
            with_text_column(columns_of(spec.schema), spec.slice_column),
            spec.slice_column,
            spec.comment,
            spec.merge,
            partitioning=spec.partitioning,
            evolution_rules=spec.evolution_rules,
            ordering=spec.ordering,
            replaces=spec.replaces,
            resumed_branch=spec.resumed_branch,
            resumed_schema_id=spec.resumed_schema_id,
        )

    def check(self, doing: str, log: TableLog) -> None:
        """Raises TableError for an existing table with another partitioning."""
        if self.is_by_reference or self.slice_column is not None:
            if self.partitioning or (log.is_partitioned and log.slice_column is None):
                requested = partition_texts(self._partitioning_in(log))
                check_partitioning(doing, partition_texts(log.partitioning), requested)
            else:
                check_slice_column(doing, log.slice_column, self.slice_column)

    def _partitioning_in(self, log: TableLog) -> tuple[PartitionField, ...]:
        """The partition fields by the names that the table still has for their columns."""
        there, formerly = {case_folded(each.column) for each in log.partitioning}, self.evolution_rules.formerly
        return tuple(
            each if case_folded(each.column) in there else each._replace(column=formerly.get(each.column, each.column))
            for each in self.partitioning
        )

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a new table."""
        comment = {"comment": self.comment} if self.comment else {}
        return {**comment, FORMAT_VERSION: str(WITH_VECTORS)} if self.merge in BY_POSITION else comment

    def decision(self, log: TableLog) -> EvolutionDecision:
        return evolution_decision(log.columns, self.columns, log.last_column_id, self.evolution_rules)

    def replacement(self, log: TableLog) -> Replacement:
        resumed = self.resumed_schema_id
        if resumed is None and self.resumed_branch:
            resumed = log.schema_of(self.resumed_branch)
        before = ReplacedTable(
            log.columns, log.last_column_id, log.known_columns, resumed, tuple(log.layout_column_ids)
        )
        return replacement_schema(before, self.columns, self.evolution_rules)


class PreparedTable(NamedTuple):
    """A table that has all columns of its stream. With a `schema_id` readers do not see these columns yet."""

    table: JavaTable
    fit: TableFit
    schema_id: int | None = None


def prepare_table(iceberg: JavaIceberg, requested: RequestedTable, doing: str) -> PreparedTable:
    """Returns the table with all its columns: unchanged, widened, or new.

    Renames are a change of their own, because Iceberg compares columns that are added in the same change with the old
    names.
    """
    try:
        table = iceberg.load(requested.name)
    except CALL_ERRORS as error:
        if failure_of(error) is not Failure.MISSING_TABLE:
            raise
        iceberg.create_namespace(requested.name.namespace)
        table = iceberg.create(
            requested.name,
            requested.columns,
            requested.slice_column,
            requested.partitioning,
            requested.properties,
        )
        table.refresh()
        created = EvolutionDecision(table.log.columns, table.log.last_column_id)
        return PreparedTable(table, table_fit(created, requested.columns, requested.evolution_rules))
    table.refresh()
    requested.check(doing, table.log)
    if requested.replaces:
        return _prepare_replacement(table, requested, doing)
    decision = requested.decision(table.log)
    decision.check_accepted(doing, requested.evolution_rules)
    if decision.renames:
        table.rename(decision.renames)
        table.refresh()
    if requested.decision(table.log).columns != table.log.columns:
        table.evolve(decision.columns)
        table.refresh()
    return PreparedTable(table, table_fit(decision, requested.columns, requested.evolution_rules))


def _prepare_replacement(table: JavaTable, requested: RequestedTable, doing: str) -> PreparedTable:
    """Returns the unchanged table, with one more schema in its metadata if the generation needs other columns.

    It decides again after each attempt, because another writer may have changed the table in the meantime.
    """
    while True:
        decision, schema_id = requested.replacement(table.log)
        decision.check_accepted(doing, requested.evolution_rules)
        if decision.columns == table.log.columns:
            return PreparedTable(table, table_fit(decision, requested.columns, requested.evolution_rules))
        if schema_id is not None:
            return PreparedTable(table, table_fit(decision, requested.columns, requested.evolution_rules), schema_id)
        table.add_schema(decision.columns, seen=table.log)
        table.refresh()
