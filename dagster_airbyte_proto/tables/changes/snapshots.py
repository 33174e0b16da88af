"""The snapshots of the tables that pushes read: the newest one, its tag, and the changes since an older one.

A table is Iceberg's or Delta's, in any catalog of the session. Views, and tables of other formats, have no snapshots.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.push import TableSnapshot
from dagster_airbyte_proto.tables.changes.change_feed import FeedChanges
from dagster_airbyte_proto.tables.changes.data_files import DataFileChanges
from dagster_airbyte_proto.tables.changes.row_events import ChangeFinder, EventsWanted, NoCommonHistory, RowEvents
from dagster_airbyte_proto.tables.delta.jvm import JavaDelta
from dagster_airbyte_proto.tables.iceberg.handle import open_table, table_errors
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, first_line


class _Described(NamedTuple):
    """The format of a table, and the folder where it lies."""

    provider: str
    location: str


def newest_snapshot(session: SparkSession, table: str) -> TableSnapshot | None:
    with table_errors(f"looking for the newest snapshot of {table}"):
        described = _described(session, table)
        if described.provider == "iceberg":
            log = open_table(session, table).log
            return TableSnapshot(
                table, log.table_uuid, "" if log.current_snapshot_id in (None, -1) else str(log.current_snapshot_id)
            )
        if described.provider == "delta":
            snapshot = JavaDelta(session).snapshot(described.location)
            return TableSnapshot(table, snapshot.metadata.id, str(snapshot.version))
        return None


def keep_snapshot(session: SparkSession, tag: str, snapshot: TableSnapshot) -> None:
    """Moves a tag of an Iceberg table to the snapshot. Delta has no tags."""
    doing = f"tagging snapshot {snapshot.snapshot_id} of {snapshot.table}"
    with table_errors(doing):
        if not snapshot.snapshot_id or _described(session, snapshot.table).provider != "iceberg":
            return
        table, log = open_table(session, snapshot.table)
        if log.table_uuid != snapshot.table_id:
            raise TableError(doing, "the table was dropped, and another has its name")
        known, wanted = log.refs.get(tag), int(snapshot.snapshot_id)
        if known is None:
            table.manageSnapshots().createTag(tag, wanted).commit()
        elif known.snapshot_id != wanted:
            table.manageSnapshots().replaceTag(tag, wanted).commit()


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
        except CALL_ERRORS as error:
            raise NoCommonHistory(first_line(error)) from error
        yield events


def _finder(session: SparkSession, table: str) -> ChangeFinder:
    described = _described(session, table)
    if described.provider == "delta":
        return FeedChanges(session, table, described.location)
    return DataFileChanges(session, open_table(session, table))


def _described(session: SparkSession, table: str) -> _Described:
    rows = {row["col_name"]: row["data_type"] for row in session.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()}
    return _Described(str(rows.get("Provider", "")).lower(), str(rows.get("Location", "")))
