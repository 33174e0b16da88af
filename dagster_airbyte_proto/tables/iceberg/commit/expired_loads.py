"""Finds a load of which the table's log no longer has the snapshot, since somebody expired it.

A load is known by the summary of its snapshot. Once that is gone, these still tell:

- Sequence numbers. A table counts its snapshots up, on whichever branch they are, and a part knows the number that the
  table had before the load was announced (`StagedRows.log_position`). So its snapshot has a greater one, and a log
  that reaches back to that number is whole for this load.
- Older metadata files. Each names the snapshots of its time. An expiry leaves these files, and the table has the names
  of the last hundred.
- The load's files, as long as nobody has compacted them.

Times prove nothing in recovery: those of files come from the storage's clock, those of snapshots from that of whoever
committed them, and a clock may be set back (docs/decisions/0093).
"""

from collections.abc import Callable
from typing import NamedTuple

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import CommitUnknown
from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.tables.iceberg.log import History, Snapshot, TableLog
from dagster_airbyte_proto.tables.sql_names import text_literal

ReadLog = Callable[[str], TableLog | None]
"""Reads a metadata file of the table; returns None where it cannot be read."""


class ExpiredSearch(NamedTuple):
    """The result of a load that an expired snapshot landed. Without one: whether it `is_certain` that none did."""

    committed: CommittedRows | None
    is_certain: bool


_NOT_LANDED, _NOBODY_KNOWS = ExpiredSearch(None, True), ExpiredSearch(None, False)


def search_expired(log: TableLog, history: History, load_id: str, part: StagedRows, read: ReadLog) -> ExpiredSearch:
    """Looks for a load among the expired ancestors of the current snapshot. The log itself lacks it.

    To empty a table again does no harm, so a part without files counts as not landed.
    """
    oldest, position = history.oldest_kept, part.log_position
    if oldest is None or not part.files:
        return _NOT_LANDED
    if position is None:
        return _NOBODY_KNOWS
    # The snapshot before one with the next number has the part's number at most.
    if oldest.sequence_number <= position + 1:
        return _NOT_LANDED
    expired: dict[int, Snapshot] = {}
    for file in reversed(log.metadata_log):
        if (older := read(file.metadata_file)) is None:
            return _NOBODY_KNOWS
        expired.update((each.snapshot_id, each) for each in older.snapshots)
        while oldest.parent_snapshot_id in expired:
            oldest = expired[oldest.parent_snapshot_id]
            if oldest.load_id == load_id:
                rows = history.current.rows if history.current else None
                return ExpiredSearch(CommittedRows(part.stream, str(oldest.snapshot_id), True, table_rows=rows), True)
            if oldest.sequence_number <= position + 1 or oldest.parent_snapshot_id is None:
                return _NOT_LANDED
    return _NOBODY_KNOWS


def is_younger(history: History, part: StagedRows, storage: Storage) -> bool:
    """True if the part's files are younger than the oldest remaining snapshot, by clocks that may differ.

    It is enough for a load that was announced a moment ago, and has landed only if this process slept meanwhile.
    """
    return history.oldest_kept is None or _newest_ms(part, storage) > history.oldest_kept.timestamp_ms


def find_files(session: SparkSession, qualified: str, history: History, part: StagedRows) -> CommittedRows:
    """Returns the result for a part whose files the table still has.

    Raises CommitUnknown otherwise: a compaction may have put their rows elsewhere, and the expiry after it deletes such
    files.
    """
    paths = ", ".join(text_literal(file.path) for file in part.files)
    found = session.sql(f"select 1 from {qualified}.files where file_path in ({paths}) limit 1")  # noqa: S608 - quoted
    if history.current is not None and found.collect():
        return CommittedRows(part.stream, str(history.current.snapshot_id), True, table_rows=history.current.rows)
    raise CommitUnknown(
        f"looking for a load in table {qualified}",
        "its snapshots from the time of the load have expired, and its files are not in the table",
        stream=str(part.stream),
    )


def _newest_ms(part: StagedRows, storage: Storage) -> int:
    """Returns when the last file of a part was written; 0 if one of them is gone."""
    opened = [storage.at(file.path) for file in part.files]
    written_ns = [filesystem.get_file_info(place).mtime_ns for filesystem, place in opened]
    return max(written_ns) // 1_000_000 if None not in written_ns else 0
