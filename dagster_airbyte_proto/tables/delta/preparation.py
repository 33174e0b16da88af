"""Finds the next step that makes a Delta table as a stream needs it. It reads and decides, and changes nothing.

A generation that replaces the table only *proposes* its columns (`actions.py`): readers get them in the commit of its
rows. These tables are exceptions, and get columns before any row:

- Tables without deletion vectors: there a Spark job may write the rows, and it knows no columns but those that readers
  have.
- Tables with a change data feed that would lose a column, a member of one, or its name: Delta refuses that together
  with rows. A column that the stream lacks stays.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dagster_airbyte_proto.errors import CommitUnknown, InternalError, TableError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableFit, TableSpec, table_fit
from dagster_airbyte_proto.schema.evolution import ChangeKind, EvolutionDecision, IcebergSchema, evolution_decision
from dagster_airbyte_proto.schema.replacement import ReplacedTable, Replacement, replacement_schema
from dagster_airbyte_proto.tables.delta.actions import (
    TableMetadata,
    metadata_with_columns,
    metadata_with_proposed_columns,
    metadata_with_published_columns,
    new_table_metadata,
    widened_columns,
)
from dagster_airbyte_proto.tables.delta.jvm import DeltaSnapshot

_FORGETS_LOADS = "delta.setTransactionRetentionDuration"

WidenedColumns = Sequence[tuple[tuple[str, ...], str]]


class DeltaPreparation(NamedTuple):
    """The columns that the table will have, and the next step: types in `widened`, else a `metaData` action.

    Without a step the table is ready. With a `schema_id` the columns are proposed under that number, and readers do not
    have them yet.
    """

    columns: IcebergSchema
    fit: TableFit
    schema_id: int | None = None
    widened: WidenedColumns = ()
    action: str | None = None
    table_id: str = ""

    @property
    def is_done(self) -> bool:
        return not self.widened and self.action is None


def next_preparation(doing: str, snapshot: DeltaSnapshot, spec: TableSpec, wanted: IcebergSchema) -> DeltaPreparation:
    """Returns the table's columns and the next step to them. Raises SchemaRefused where the table cannot have them."""
    if snapshot.version < 0:
        by = [spec.slice_column] if spec.slice_column else [field.column for field in spec.partitioning]
        return DeltaPreparation(wanted, TableFit(), action=new_table_metadata(wanted, spec.comment, by))
    if spec.replaces and snapshot.metadata.has_deletion_vectors:
        replacement = _replacement(snapshot.metadata, spec, wanted)
        if not (snapshot.metadata.has_change_feed and _takes_names(replacement.decision)):
            return _propose_columns(doing, snapshot, replacement, spec, wanted)
    decision = evolution_decision(
        snapshot.metadata.columns, wanted, snapshot.metadata.last_column_id, spec.evolution_rules
    )
    preparation = _preparation(doing, decision, spec, wanted)
    if widened := tuple(widened_columns(snapshot.metadata.columns, decision.columns)):
        return preparation._replace(widened=widened)
    if decision.columns != snapshot.metadata.columns:
        return preparation._replace(
            action=metadata_with_columns(snapshot.metadata_action, decision.columns, decision.last_id)
        )
    return preparation


def _replacement(metadata: TableMetadata, spec: TableSpec, wanted: IcebergSchema) -> Replacement:
    before = ReplacedTable(
        metadata.columns,
        metadata.last_column_id,
        known_schemas=metadata.proposed_columns,
        resumed_schema_id=spec.resumed_schema_id,
        layout_columns=metadata.partition_columns,
    )
    return replacement_schema(before, wanted, spec.evolution_rules)


def _takes_names(decision: EvolutionDecision) -> bool:
    """True if a column is dropped or renamed, or has members and becomes one of another type."""
    return any(
        each.kind in (ChangeKind.COLUMN_DROPPED, ChangeKind.COLUMN_RENAMED)
        or (each.kind is ChangeKind.COLUMN_RETYPED and "struct<" in each.before)
        for each in decision.changes
    )


def _propose_columns(
    doing: str, snapshot: DeltaSnapshot, replacement: Replacement, spec: TableSpec, wanted: IcebergSchema
) -> DeltaPreparation:
    """Returns the preparation of a table whose columns will come with the rows of a generation."""
    metadata, (decision, number) = snapshot.metadata, replacement
    preparation = _preparation(doing, decision, spec, wanted)
    if decision.columns == metadata.columns or number is not None:
        return preparation._replace(schema_id=number)
    action = metadata_with_proposed_columns(
        snapshot.metadata_action, decision.columns, decision.last_id, snapshot.version + 1
    )
    return preparation._replace(action=action)


def _preparation(doing: str, decision: EvolutionDecision, spec: TableSpec, wanted: IcebergSchema) -> DeltaPreparation:
    decision.check_accepted(doing, spec.evolution_rules)
    return DeltaPreparation(decision.columns, table_fit(decision, wanted, spec.evolution_rules))


def check_no_branch(doing: str, branch: str | None) -> None:
    if branch is not None:
        raise InternalError(doing, f"there are no branches in Delta, and so no {branch}")


def check_remembers_loads(doing: str, metadata: TableMetadata, part: StagedRows) -> None:
    """Raises CommitUnknown for a table that forgets loads: it says nothing of a load that its log lacks it."""
    if part.files and (after := metadata.configuration.get(_FORGETS_LOADS)):
        found = f"its log lacks the load, but forgets loads after {after} ({_FORGETS_LOADS})"
        raise CommitUnknown(doing, found, stream=str(part.stream))


def with_published_columns(doing: str, snapshot: DeltaSnapshot, part: StagedRows) -> DeltaSnapshot:
    """Returns the snapshot with the columns that a part publishes with its rows.

    Raises TableError where the table no longer has that proposal.
    """
    if part.branch_position is None:
        return snapshot
    if part.branch_position.after is not None or not part.branch_position.publishes:
        check_no_branch(doing, part.branch_position.branch)
    if part.branch_position.schema_id is None:
        return snapshot
    new_metadata = metadata_with_published_columns(snapshot.metadata_action, part.branch_position.schema_id)
    if new_metadata is None:
        raise TableError(
            doing,
            "the table no longer has the proposed columns of these rows: another generation's have become its own",
            remedy="Sync again: the generation starts over.",
            stream=str(part.stream),
        )
    return snapshot.with_metadata(new_metadata)
