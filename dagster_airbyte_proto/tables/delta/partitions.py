"""The partitions and slices of a Delta table, as commits check and select them."""

from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.tables.delta.actions import TableMetadata
from dagster_airbyte_proto.tables.delta.jvm import DeltaSnapshot
from dagster_airbyte_proto.tables.part_checks import (
    check_partitioning,
    check_slice,
)
from dagster_airbyte_proto.tables.sql_names import quoted, text_literal


def partitioned_by(metadata: TableMetadata, spec: TableSpec) -> list[str]:
    """Returns the columns that the stream is partitioned by, under the names that the table still has for them."""
    columns = [field.column for field in spec.partitioning]
    formerly = spec.evolution_rules.formerly
    return [each if each in metadata.partitioning else formerly.get(each, each) for each in columns]


def check_delta_partitioning(doing: str, metadata: TableMetadata, part: StagedRows) -> None:
    """Raises TableError where the part was staged for other partitions than the table has now."""
    if part.partitioned_by or (part.files and metadata.partitioning):
        check_partitioning(doing, metadata.partitioning, part.partitioned_by, stream=str(part.stream))
    elif not metadata.partitioning:
        check_slice(doing, metadata.slice_column, part)


def slice_predicate(snapshot: DeltaSnapshot, part: StagedRows) -> str | None:
    """Returns an SQL predicate for the slice of the part, or None where it has no slice."""
    if part.slice is None:
        return None
    return f"{quoted(str(snapshot.metadata.slice_column))} = {text_literal(part.slice)}"
