"""The care of the Iceberg tables of a Connect server, by Iceberg's own procedures (`call lake.system.…`)."""

from collections.abc import Collection
from datetime import datetime
from uuid import uuid4

import pyspark
from pyspark.sql import Row

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import CompactionResult, ProtectedFiles
from dagster_airbyte_proto.tables.iceberg.care.orphan_files import removable_files, remove_old_metadata
from dagster_airbyte_proto.tables.iceberg.care.table_facts import IcebergFacts, expirable_snapshots
from dagster_airbyte_proto.tables.iceberg.connect.remote_table import RemoteTable
from dagster_airbyte_proto.tables.iceberg.connect.statements import procedure_call
from dagster_airbyte_proto.tables.iceberg.connect.tables import RemoteIcebergTables
from dagster_airbyte_proto.tables.iceberg.handle import table_errors
from dagster_airbyte_proto.tables.spark.jvm.errors import REMOTE_ERRORS, is_conflict
from dagster_airbyte_proto.tables.sql_names import text_literal

_ATTEMPTS = 8
_KEEPING_DELETES = "map('remove-dangling-deletes', 'true')"
# Files with even one deleted row are written again: only then does no delete file stay.
_REWRITE = "map('delete-file-threshold', '1', 'remove-dangling-deletes', 'true')"


class RemoteIcebergCare(IcebergFacts):
    """Cares for the tables of one Iceberg catalog of a Connect server."""

    def __init__(self, tables: RemoteIcebergTables) -> None:
        super().__init__(tables.open_session(), tables.catalog, lambda table: self._open(table).log)
        self._storage = tables.storage

    def compact(self, name: TableName, *, keeps_deletes: bool = False) -> CompactionResult:
        doing = f"compacting table {name}"
        with table_errors(doing, commits=True):
            table = self._open(self._qualified(name))
            deletes = self._delete_files(name)
            strategy = "sort" if table.is_sorted else "binpack"
            options = _KEEPING_DELETES if keeps_deletes else _REWRITE
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    done = self._call(name, "rewrite_data_files", strategy=text_literal(strategy), options=options)
                except REMOTE_ERRORS as error:
                    if not is_conflict(error):
                        raise
                    continue
                left = self._delete_files(name)
                return CompactionResult(
                    int(done[0]["rewritten_data_files_count"]),
                    int(done[0]["added_data_files_count"]),
                    max(deletes - left, 0),
                    attempt,
                )
        raise TableError(
            doing,
            f"other writers changed the table during each of {_ATTEMPTS} attempts",
            remedy="Nothing is lost. Compact it again when fewer writers are at work.",
        )

    def expire(self, name: TableName, snapshot_ids: Collection[str]) -> int:
        with table_errors(f"expiring snapshots of table {name}"):
            old = expirable_snapshots(self._open(self._qualified(name)).log, snapshot_ids)
            if old:
                ids = f"array({', '.join(f'{each}L' for each in old)})"
                # Without the time Iceberg would also expire other snapshots, by the table's maximum age.
                self._call(name, "expire_snapshots", older_than="timestamp '1970-01-01 00:00:00Z'", snapshot_ids=ids)
        return len(old)

    def remove_orphans(self, name: TableName, *, before: datetime, protected: ProtectedFiles) -> tuple[str, ...]:
        with table_errors(f"removing orphan files of table {name}"):
            log = self._open(self._qualified(name)).log
            self._check_has_own_folder(name, log, self._storage)
            old = remove_old_metadata(self._storage, log, before)
            files = removable_files(self._session, self._storage, log.location, protected)
            if files is None:
                return old
            view, until = f"airbyte_files_{uuid4().hex}", text_literal(before.isoformat(sep=" "))
            files.createOrReplaceTempView(view)
            try:
                found = self._call(
                    name, "remove_orphan_files", older_than=f"timestamp {until}", file_list_view=text_literal(view)
                )
            finally:
                self._session.catalog.dropTempView(view)
            return (*old, *(str(row["orphan_file_location"]) for row in found))

    def _call(self, name: TableName, procedure: str, **arguments: str) -> list[Row]:
        called = procedure_call(self._catalog, procedure, self._qualified(name), **arguments)
        rows: list[Row] = self._session.sql(called).collect()
        self._session.catalog.refreshTable(self._qualified(name))
        return rows

    def _delete_files(self, name: TableName) -> int:
        return self._session.table(f"{self._qualified(name)}.delete_files").count()

    def _open(self, qualified: str) -> RemoteTable:
        table = RemoteTable(self._session, self._storage, qualified)
        table.refresh()
        return table
