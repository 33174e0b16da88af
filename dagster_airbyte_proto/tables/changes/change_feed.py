"""Finds the changed rows of a Delta table by its change data feed, where the table has it on.

The feed has each row of each version as it was and as it is. OPTIMIZE is not in it, and RESTORE is. Files of the feed
that a VACUUM took, versions whose log is gone, and a change of columns end it: then Delta raises an error.
"""

from contextlib import ExitStack

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dagster_airbyte_proto.loads.storage import LOCAL, is_local
from dagster_airbyte_proto.tables.changes.row_events import IS_GONE, STEP, EventsWanted, NoCommonHistory, RowEvents
from dagster_airbyte_proto.tables.delta.history import read_commit

_FEED = "delta.enableChangeDataFeed"
_OF_THE_FEED = ("_change_type", "_commit_version", "_commit_timestamp")


class FeedChanges:
    """The ChangeFinder of one Delta table."""

    def __init__(self, session: SparkSession, table: str, location: str) -> None:
        self._session, self._table, self._location = session, table, location

    def events(
        self,
        since: str,
        until: str,
        wanted: EventsWanted,  # noqa: ARG002 - the feed has all of them
        stack: ExitStack,  # noqa: ARG002 - as ChangeFinder has it
    ) -> RowEvents:
        first, last = int(since), int(until)
        if first > last:
            raise NoCommonHistory(f"version {first} is not in its log any more")
        if self._changes_no_row(first, last):
            return RowEvents(())
        if not self._has_feed():
            raise NoCommonHistory(f"its change data feed is off ({_FEED})")
        reader = self._session.read.option("readChangeFeed", "true").option("startingVersion", first + 1)
        feed = reader.option("endingVersion", last).table(self._table)
        kind = f.col("_change_type")
        events = feed.withColumns({STEP: f.col("_commit_version"), IS_GONE: kind.isin("delete", "update_preimage")})
        return RowEvents((events.drop(*_OF_THE_FEED),))

    def _has_feed(self) -> bool:
        properties: DataFrame = self._session.sql(f"SHOW TBLPROPERTIES {self._table}")
        return any(row["key"] == _FEED and row["value"].lower() == "true" for row in properties.collect())

    def _changes_no_row(self, first: int, last: int) -> bool:
        """True if the log says so of each version: as of compactions, expiries and other properties."""
        if not is_local(self._location):
            return False
        filesystem, folder = LOCAL.at(f"{self._location}/_delta_log")
        commits = (read_commit(filesystem, folder, version) for version in range(first + 1, last + 1))
        return all(commit is not None and not commit.changes_rows for commit in commits)
