"""The care of Iceberg tables: facts, history, compaction, expiry and removal of orphan files.

Syncs may commit to the tables at the same time. All calls go through the session's JVM.
"""

from collections.abc import Collection
from datetime import datetime

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import CompactionResult, ProtectedFiles
from dagster_airbyte_proto.tables.iceberg.care.compaction import Compaction
from dagster_airbyte_proto.tables.iceberg.care.orphan_files import removable_files, remove_old_metadata
from dagster_airbyte_proto.tables.iceberg.care.table_facts import IcebergFacts, expirable_snapshots
from dagster_airbyte_proto.tables.iceberg.handle import alone, open_table, spark_actions, table_errors
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_items


class IcebergCare(IcebergFacts):
    """Cares for the tables of one Iceberg catalog of a session."""

    def __init__(self, tables: IcebergTables) -> None:
        session = tables.open_session()
        super().__init__(session, tables.catalog, lambda table: open_table(session, table).log)
        self._storage = tables.storage

    def compact(self, name: TableName, *, keeps_deletes: bool = False) -> CompactionResult:
        return Compaction(self._session, self._qualified(name)).compact(keeps_deletes=keeps_deletes)

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
            with alone(table):
                expiry.commit()
            self._session.catalog.refreshTable(self._qualified(name))
        return len(old)

    def remove_orphans(self, name: TableName, *, before: datetime, protected: ProtectedFiles) -> tuple[str, ...]:
        with table_errors(f"removing orphan files of table {name}"):
            table, log = open_table(self._session, self._qualified(name))
            self._check_has_own_folder(name, log, self._storage)
            old = remove_old_metadata(self._storage, log, before)
            files = removable_files(self._session, self._storage, log.location, protected)
            if files is None:
                return old
            action = spark_actions(self._session).deleteOrphanFiles(table).olderThan(int(before.timestamp() * 1000))
            result = action.compareToFileList(files._jdf).execute()
            return (*old, *map(str, java_items(result.orphanFileLocations())))
