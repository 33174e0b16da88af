"""Compacting an Iceberg table beside syncs that go on.

It is two changes. The first writes every file anew that is small or has rows deleted, as of one snapshot, and
keeps the age of its rows: an upsert that comes in meanwhile still reaches them. After it, no delete file of that
snapshot has anything left to delete, so the second takes them out of the table. It may do so only where the first is
an ancestor: were the table taken back in between, the older files would be in it again, and their deletes wanted. So it
is made ready aside, looked at, and becomes what readers see only if nothing has come in since it was made.

Both are `replace` in the log: rows stay as they were, and no sync's commit is refused for them but one that takes out
the very files, which looks again by itself.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from uuid import uuid4

from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.tables.care import Compacted
from dagster_airbyte_proto.tables.iceberg.handle import actions, opened, refusals
from dagster_airbyte_proto.tables.iceberg.jvm import java_items
from dagster_airbyte_proto.tables.iceberg.log import Snapshot, TableLog, lineage
from dagster_airbyte_proto.tables.iceberg.sort_order import in_order
from dagster_airbyte_proto.tables.spark.jvm_errors import CALL_ERRORS, is_conflict

COMPACTION = "airbyte-proto.compaction"
_ATTEMPTS = 8


class Rewritten(NamedTuple):
    """Files were written anew as of a snapshot, whose delete files are thereby `spent` wherever `snapshot_id` is an
    ancestor."""

    snapshot_id: int | None
    spent: frozenset[str]
    files: int = 0
    written_files: int = 0


class HasMoved(Exception):
    """Somebody else changed the table meanwhile."""


class Compaction:
    """Of one table of a session, called as in SQL."""

    def __init__(self, session: SparkSession, table: str) -> None:
        self._session = session
        self._table = table
        self._jvm: Any = session._jvm

    def compact(self) -> Compacted:
        """Both changes, until they are in. Raises TableError where other writers do not let it."""
        done, doing = Compacted(), f"compacting table {self._table}"
        with refusals(doing):
            for attempt in range(1, _ATTEMPTS + 1):
                done = done._replace(attempts=attempt)
                try:
                    rewritten = self.rewrite()
                    done = done._replace(
                        rewritten_files=done.rewritten_files + rewritten.files,
                        written_files=done.written_files + rewritten.written_files,
                    )
                    removed = self.remove_spent(rewritten)
                except HasMoved:
                    continue
                self._session.catalog.refreshTable(self._table)
                return done._replace(removed_delete_files=removed)
        raise TableError(
            doing,
            f"other writers changed the table {_ATTEMPTS} times meanwhile",
            remedy="Nothing is lost; call it again when fewer of them are at work.",
        )

    def rewrite(self) -> Rewritten:
        """The first of the two changes that compact a table; `remove_spent` is to follow."""
        table, _ = opened(self._session, self._table)
        if table.currentSnapshot() is None:
            return Rewritten(None, frozenset())
        base = int(table.currentSnapshot().snapshotId())
        spent = frozenset(str(file.location()) for file in self._delete_files(table))
        mark = uuid4().hex
        # A file with one delete is worth it: only so is none left of which a delete file speaks.
        action = in_order(self._session, actions(self._session).rewriteDataFiles(table), table)
        action = action.option("delete-file-threshold", "1")
        with _moves():
            result = action.snapshotProperty(COMPACTION, mark).execute()
        if not (files := int(result.rewrittenDataFilesCount())):
            if int(table.currentSnapshot().snapshotId()) != base:
                # The session shares the handle, and somebody refreshed it: of which snapshot is it that nothing is due?
                raise HasMoved
            return Rewritten(base, spent)
        snapshot = _marked(opened(self._session, self._table).log, mark)
        return Rewritten(snapshot.snapshot_id, spent, files, int(result.addedDataFilesCount()))

    def remove_spent(self, rewritten: Rewritten) -> int:
        """Takes the delete files out of the table that a rewriting left without an object. How many: Iceberg drops the
        oldest of them by itself, with the rewriting."""
        table, _ = opened(self._session, self._table)
        files = [file for file in self._delete_files(table) if str(file.location()) in rewritten.spent]
        if not files:
            return len(rewritten.spent)
        change, mark = table.newRewrite(), uuid4().hex
        for file in files:
            change.deleteFile(file)
        with _moves():
            change.set(COMPACTION, mark).stageOnly().commit()
            table, log = opened(self._session, self._table)
            staged = _marked(log, mark)
            if all(older.snapshot_id != rewritten.snapshot_id for older in lineage(log, staged.snapshot_id)):
                raise HasMoved
            # A `replace` is taken only where nothing has come in since it was staged.
            table.manageSnapshots().cherrypick(staged.snapshot_id).commit()
        return len(rewritten.spent)

    def _delete_files(self, table: Any) -> Iterator[Any]:
        if table.currentSnapshot() is None:
            return
        io, manifests = table.io(), self._jvm.org.apache.iceberg.ManifestFiles
        for manifest in java_items(table.currentSnapshot().deleteManifests(io)):
            with closing(manifests.readDeleteManifest(manifest, io, table.specs())) as live:
                yield from java_items(live)


@contextmanager
def _moves() -> Iterator[None]:
    """A change that is refused because the table changed since it was read."""
    try:
        yield
    except CALL_ERRORS as error:
        if is_conflict(error):
            raise HasMoved from error
        raise


def _marked(log: TableLog, mark: str) -> Snapshot:
    """What was just committed under the mark."""
    for snapshot in reversed(log.snapshots):
        if snapshot.summary.get(COMPACTION) == mark:
            return snapshot
    raise HasMoved
