"""The result of a load for one part, by the snapshots of its table. The same with and without a JVM handle."""

from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.model import REPLACING
from dagster_airbyte_proto.tables.iceberg.log import History, Snapshot


def result_of_landed(history: History, load_id: str, part: StagedRows) -> CommittedRows | None:
    """Returns the result for a load that is in the table already; None if no snapshot has it."""
    landed, rows = history.snapshot_of(load_id), history.current.rows if history.current else 0
    if landed is None:
        return None
    return CommittedRows(part.stream, str(landed.snapshot_id), True, _deleted_rows(part, landed), rows)


def result_before_commit(history: History, load_id: str, part: StagedRows) -> CommittedRows | None:
    """Returns the result for a load that is in the table already, or that has nothing to land; else None."""
    if landed := result_of_landed(history, load_id, part):
        return landed
    if not part.changes_table:
        rows, current = history.current.rows if history.current else 0, history.current
        return CommittedRows(part.stream, str(current.snapshot_id) if current else "", False, table_rows=rows)
    return None


def result_of_commit(
    part: StagedRows, snapshot: Snapshot, before: Snapshot | None, format_version: int
) -> CommittedRows:
    """Returns the result for a part that was committed now, in `snapshot`."""
    return CommittedRows(
        part.stream,
        str(snapshot.snapshot_id),
        was_there=False,
        deleted=_deleted_rows(part, snapshot, before),
        table_rows=snapshot.rows,
        totals=snapshot.totals_for_readers(format_version),
        log_position=snapshot.sequence_number or None,
    )


def _deleted_rows(part: StagedRows, snapshot: Snapshot, before: Snapshot | None = None) -> int:
    """Returns the number of rows that a replacement removed: those that readers saw if known, else all stored ones."""
    if part.write not in REPLACING:
        return 0
    found = before.rows if before is not None and part.slice is None else None
    return snapshot.removed_rows if found is None else found
