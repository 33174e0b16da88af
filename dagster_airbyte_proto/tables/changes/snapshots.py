"""The snapshots of the tables that pushes read: the newest one, its tag, and the changes since an older one.

A table is Iceberg's or Delta's, in any catalog of the session. Views, and tables of other formats, have no snapshots.
A session of Spark Connect reads the log of an Iceberg table and tags it, but has no list of a snapshot's files.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.push import TableSnapshot
from dagster_airbyte_proto.tables.changes.change_feed import FeedChanges
from dagster_airbyte_proto.tables.changes.data_files import DataFileChanges
from dagster_airbyte_proto.tables.changes.row_events import ChangeFinder, EventsWanted, NoCommonHistory, RowEvents
from dagster_airbyte_proto.tables.changes.whole_files import whole_files
from dagster_airbyte_proto.tables.delta.jvm import JavaDelta
from dagster_airbyte_proto.tables.iceberg.connect.remote_table import open_remote_table
from dagster_airbyte_proto.tables.iceberg.handle import alone, open_table, table_errors
from dagster_airbyte_proto.tables.iceberg.log import TableLog
from dagster_airbyte_proto.tables.planner import WholeFiles
from dagster_airbyte_proto.tables.remote_sessions import is_remote
from dagster_airbyte_proto.tables.spark.jvm.errors import SESSION_ERRORS, first_line
from dagster_airbyte_proto.tables.sql_names import quoted


class _TablePlace(NamedTuple):
    """The format of a table, and the folder where it lies."""

    provider: str
    location: str


def newest_snapshot(session: SparkSession, table: str) -> TableSnapshot | None:
    with table_errors(f"looking for the newest snapshot of {table}"):
        described = _table_place(session, table)
        if described.provider == "iceberg":
            log = _log(session, table)
            return TableSnapshot(
                table, log.table_uuid, "" if log.current_snapshot_id in (None, -1) else str(log.current_snapshot_id)
            )
        if described.provider == "delta":
            return TableSnapshot(table, *_newest_version(session, table, described.location))
        return None


def keep_snapshot(session: SparkSession, tag: str, snapshot: TableSnapshot) -> None:
    """Moves a tag of an Iceberg table to the snapshot. Delta has no tags."""
    doing = f"tagging snapshot {snapshot.snapshot_id} of {snapshot.table}"
    with table_errors(doing):
        if not snapshot.snapshot_id or _table_place(session, snapshot.table).provider != "iceberg":
            return
        log, wanted = _log(session, snapshot.table), int(snapshot.snapshot_id)
        if log.table_uuid != snapshot.table_id:
            raise TableError(doing, "the table was dropped, and another has its name")
        known = log.refs.get(tag)
        if is_remote(session):
            if known is None or known.snapshot_id != wanted:
                moved = f"CREATE OR REPLACE TAG {quoted(tag)} AS OF VERSION {wanted}"
                session.sql(f"ALTER TABLE {snapshot.table} {moved}")
            return
        table = open_table(session, snapshot.table).table
        if known is None:
            _commit_tag(table, table.manageSnapshots().createTag(tag, wanted))
        elif known.snapshot_id != wanted:
            _commit_tag(table, table.manageSnapshots().replaceTag(tag, wanted))


def release_snapshot(session: SparkSession, tag: str, table: str) -> None:
    """Removes a tag of an Iceberg table, if it has it."""
    with table_errors(f"removing the tag {tag} of {table}"):
        opened = open_table(session, table)
        if tag in opened.log.refs:
            _commit_tag(opened.table, opened.table.manageSnapshots().removeTag(tag))


def _commit_tag(table: Any, change: Any) -> None:
    """Commits the change of a tag (Java's). Like a load: a sync may commit to the table at the same moment."""
    with alone(table):
        change.commit()


def files_at(session: SparkSession, snapshot: TableSnapshot) -> WholeFiles | None:
    """Returns the files of an Iceberg table, if they have its rows at the snapshot as they are."""
    with table_errors(f"listing the files of {snapshot.table}"):
        if is_remote(session) or _table_place(session, snapshot.table).provider != "iceberg":
            return None
        return whole_files(session, snapshot)


@contextmanager
def changes_since(
    session: SparkSession, since: TableSnapshot, until: TableSnapshot, wanted: EventsWanted
) -> Iterator[RowEvents]:
    """Yields the changes between two snapshots of a table. Raises NoCommonHistory where they cannot be found."""
    if since.table_id != until.table_id:
        raise NoCommonHistory("it is another table than the one that was pushed")
    if not since.snapshot_id or not until.snapshot_id:
        raise NoCommonHistory("it had no snapshot")
    with ExitStack() as stack:
        try:
            finder = _finder(session, until.table)
            events = finder.events(since.snapshot_id, until.snapshot_id, wanted, stack)
        except SESSION_ERRORS as error:
            raise NoCommonHistory(first_line(error)) from error
        yield events


def _finder(session: SparkSession, table: str) -> ChangeFinder:
    described = _table_place(session, table)
    if described.provider == "delta":
        return FeedChanges(session, table, described.location)
    if is_remote(session):
        raise NoCommonHistory("a session of Spark Connect does not tell the files of a snapshot")
    return DataFileChanges(session, open_table(session, table))


def _log(session: SparkSession, table: str) -> TableLog:
    return open_remote_table(session, table).log if is_remote(session) else open_table(session, table).log


def _newest_version(session: SparkSession, table: str, location: str) -> tuple[str, str]:
    """The id of a Delta table and its newest version."""
    if is_remote(session):
        described = session.sql(f"DESCRIBE DETAIL {table}").collect()[0]
        newest = session.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]
        return str(described["id"]), str(newest["version"])
    snapshot = JavaDelta(session).snapshot(location)
    return snapshot.metadata.id, str(snapshot.version)


def _table_place(session: SparkSession, table: str) -> _TablePlace:
    rows = {row["col_name"]: row["data_type"] for row in session.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()}
    return _TablePlace(str(rows.get("Provider", "")).lower(), str(rows.get("Location", "")))
