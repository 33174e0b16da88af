"""Compacts an Iceberg table while syncs go on.

A compaction is two changes:

1. `rewrite` writes every file again that is small or has deleted rows, as of one snapshot. It keeps the sequence
   numbers of the rows, so that an upsert which is committed at the same time still deletes them.
2. After that the delete files of that snapshot have nothing left to delete, and `remove_applied_deletes` removes them.
   It may do so only if the rewrite is an ancestor of the current snapshot: if the table was rolled back in between, the
   old files are in it again, and so their deletes are needed. Therefore this change is staged first, its ancestors are
   checked, and it is published only if nothing was committed since it was staged.

Both are `replace` operations in the log, because no row changes. They make a sync's commit fail only if it removes the
very files that were rewritten, and then the sync tries again by itself.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.tables.care import CompactionResult
from dagster_airbyte_proto.tables.iceberg.handle import alone, open_table, spark_actions, table_errors
from dagster_airbyte_proto.tables.iceberg.layout import ordered_rewrite
from dagster_airbyte_proto.tables.iceberg.log import COMPACTION, Snapshot, TableLog, lineage
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, is_conflict
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_items

_ATTEMPTS = 8


class RewriteResult(NamedTuple):
    """The result of the first change.

    The `applied_deletes` (paths of delete files) have no effect in any snapshot that has `snapshot_id` as an ancestor.
    """

    snapshot_id: int | None
    applied_deletes: frozenset[str]
    files: int = 0
    written_files: int = 0


class TableChanged(Exception):
    """Another writer changed the table at the same time."""


class Compaction:
    """Compacts one table of a session. `table` is its name in SQL."""

    def __init__(self, session: SparkSession, table: str) -> None:
        self._session = session
        self._table = table
        self._jvm: Any = session._jvm

    def compact(self, *, keeps_deletes: bool = False) -> CompactionResult:
        """Commits both changes, and tries again after conflicts. Raises TableError if conflicts do not end.

        If it `keeps_deletes`, files are written again as Iceberg does by itself: small ones where a partition has five,
        and those with many deleted rows.
        """
        done, doing = CompactionResult(), f"compacting table {self._table}"
        with table_errors(doing, commits=True):
            for attempt in range(1, _ATTEMPTS + 1):
                done = done._replace(attempts=attempt)
                try:
                    rewrite = self.rewrite(keeps_deletes=keeps_deletes)
                    done = done._replace(
                        rewritten_files=done.rewritten_files + rewrite.files,
                        written_files=done.written_files + rewrite.written_files,
                    )
                    removed = self.remove_applied_deletes(rewrite)
                except TableChanged:
                    continue
                self._session.catalog.refreshTable(self._table)
                return done._replace(removed_delete_files=removed)
        raise TableError(
            doing,
            f"other writers changed the table during each of {_ATTEMPTS} attempts",
            remedy="Nothing is lost. Compact it again when fewer writers are at work.",
        )

    def rewrite(self, *, keeps_deletes: bool = False) -> RewriteResult:
        """Commits the first change. Call `remove_applied_deletes` with its result."""
        table, _ = open_table(self._session, self._table)
        if table.currentSnapshot() is None:
            return RewriteResult(None, frozenset())
        base = int(table.currentSnapshot().snapshotId())
        deletes: Iterable[Any] = () if keeps_deletes else self._delete_files(table)
        applied = frozenset(str(file.location()) for file in deletes)
        mark = uuid4().hex
        action = ordered_rewrite(self._session, spark_actions(self._session).rewriteDataFiles(table), table)
        if not keeps_deletes:
            # Rewrite files with even one delete file. Only then does no remaining file need a delete file.
            action = action.option("delete-file-threshold", "1")
        with _conflicts():
            result = action.snapshotProperty(COMPACTION, mark).execute()
        if not (files := int(result.rewrittenDataFilesCount())):
            if int(table.currentSnapshot().snapshotId()) != base:
                # The session shares the handle, and somebody refreshed it. So it is unknown in which snapshot Iceberg
                # found nothing to rewrite.
                raise TableChanged
            return RewriteResult(base, applied)
        snapshot = _marked(open_table(self._session, self._table).log, mark)
        return RewriteResult(snapshot.snapshot_id, applied, files, int(result.addedDataFilesCount()))

    def remove_applied_deletes(self, rewrite: RewriteResult) -> int:
        """Removes the delete files that a rewrite has applied. Returns the number of all that are gone by now.

        Iceberg itself removes the oldest of them with the rewrite.
        """
        if not rewrite.applied_deletes:
            return 0
        table, _ = open_table(self._session, self._table)
        files = [file for file in self._delete_files(table) if str(file.location()) in rewrite.applied_deletes]
        if not files:
            return len(rewrite.applied_deletes)
        change, mark = table.newRewrite(), uuid4().hex
        for file in files:
            change.deleteFile(file)
        with _conflicts():
            with alone(table):
                change.set(COMPACTION, mark).stageOnly().commit()
            table, log = open_table(self._session, self._table)
            staged = _marked(log, mark)
            if all(older.snapshot_id != rewrite.snapshot_id for older in lineage(log, staged.snapshot_id)):
                raise TableChanged
            # Iceberg publishes a staged `replace` only if nothing was committed since it was staged.
            with alone(table):
                table.manageSnapshots().cherrypick(staged.snapshot_id).commit()
        return len(rewrite.applied_deletes)

    def _delete_files(self, table: Any) -> Iterator[Any]:
        if table.currentSnapshot() is None:
            return
        io, manifests = table.io(), self._jvm.org.apache.iceberg.ManifestFiles
        for manifest in java_items(table.currentSnapshot().deleteManifests(io)):
            with closing(manifests.readDeleteManifest(manifest, io, table.specs())) as live:
                yield from java_items(live)


@contextmanager
def _conflicts() -> Iterator[None]:
    """Raises TableChanged if a change is refused because the table changed since it was read."""
    try:
        yield
    except CALL_ERRORS as error:
        if is_conflict(error):
            raise TableChanged from error
        raise


def _marked(log: TableLog, mark: str) -> Snapshot:
    """Returns the snapshot that was just committed with the mark."""
    for snapshot in reversed(log.snapshots):
        if snapshot.summary.get(COMPACTION) == mark:
            return snapshot
    raise TableChanged
