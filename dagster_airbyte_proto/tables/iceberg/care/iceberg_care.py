"""The care of Iceberg tables: facts, history, compaction, expiry and removal of orphan files.

Syncs may commit to the tables at the same time. All calls go through the session's JVM.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import CompactionResult, ProtectedFiles, TableFacts, TableHistory
from dagster_airbyte_proto.tables.iceberg.care.compaction import Compaction
from dagster_airbyte_proto.tables.iceberg.care.orphan_files import removable_files
from dagster_airbyte_proto.tables.iceberg.care.table_facts import IcebergFacts, expirable_snapshots
from dagster_airbyte_proto.tables.iceberg.handle import open_table, spark_actions, table_errors
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_items
from dagster_airbyte_proto.tables.sql_names import qualified


class IcebergCare:
    """Cares for the tables of one Iceberg catalog of a session."""

    def __init__(self, tables: IcebergTables) -> None:
        self._session = tables.open_session()
        self._storage = tables.storage
        self._catalog = tables.catalog
        self._facts = IcebergFacts(self._session, tables.catalog, lambda table: open_table(self._session, table).log)

    def names(self) -> Sequence[TableName]:
        return self._facts.names()

    def facts(self, name: TableName) -> TableFacts:
        return self._facts.facts(name)

    def history(self, name: TableName) -> TableHistory:
        return self._facts.history(name)

    def compact(self, name: TableName) -> CompactionResult:
        return Compaction(self._session, self._qualified(name)).compact()

    def expire(self, name: TableName, snapshot_ids: Collection[str]) -> int:
        with table_errors(f"expiring snapshots of table {name}"):
            table, log = open_table(self._session, self._qualified(name))
            if not (old := expirable_snapshots(log, snapshot_ids)):
                return 0
            # Iceberg's Spark action takes seconds where this takes a tenth of a second. Without the time Iceberg would
            # also expire other snapshots, by the table's maximum age.
            expiry = table.expireSnapshots().expireOlderThan(0)
            for each in old:
                expiry = expiry.expireSnapshotId(each)
            expiry.commit()
            self._session.catalog.refreshTable(self._qualified(name))
        return len(old)

    def remove_orphans(self, name: TableName, *, before: datetime, protected: ProtectedFiles) -> tuple[str, ...]:
        with table_errors(f"removing orphan files of table {name}"):
            table, log = open_table(self._session, self._qualified(name))
            files = removable_files(self._session, self._storage, log.location, protected)
            if files is None:
                return ()
            action = spark_actions(self._session).deleteOrphanFiles(table).olderThan(int(before.timestamp() * 1000))
            result = action.compareToFileList(files._jdf).execute()
            return tuple(map(str, java_items(result.orphanFileLocations())))

    def _qualified(self, name: TableName) -> str:
        return qualified(self._catalog, name)
