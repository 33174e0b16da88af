"""The care of Iceberg tables: facts, history, compaction, expiry and removal of orphan files.

Syncs may commit to the tables at the same time. All calls go through the session's JVM.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from dagster_airbyte_proto.loads.storage import is_s3, without_file_scheme
from dagster_airbyte_proto.loads.table import BRANCH_PREFIX
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import (
    SMALL_SHARE,
    CompactionResult,
    ProtectedFiles,
    SnapshotChange,
    TableFacts,
    TableHistory,
)
from dagster_airbyte_proto.tables.iceberg.branches import own_snapshots
from dagster_airbyte_proto.tables.iceberg.care.compaction import COMPACTION, Compaction
from dagster_airbyte_proto.tables.iceberg.care.rewind import VERSION
from dagster_airbyte_proto.tables.iceberg.handle import FullTableLog, open_table, spark_actions, table_errors
from dagster_airbyte_proto.tables.iceberg.log import LOAD_ID, Snapshot, lineage
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_items
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.sql_names import qualified, quoted

# Iceberg's default for `write.target-file-size-bytes`.
_TARGET_BYTES = 512 << 20


class IcebergCare:
    """Cares for the tables of one Iceberg catalog of a session."""

    def __init__(self, tables: IcebergTables) -> None:
        self._session = tables.open_session()
        self._storage = tables.storage
        self._catalog = tables.catalog
        self._jvm: Any = self._session._jvm

    def names(self) -> Sequence[TableName]:
        with table_errors(f"listing the tables of catalog {self._catalog}"):
            namespaces = query(self._session, f"show namespaces in {quoted(self._catalog)}").rows
            return [
                TableName(namespace, row[1])
                for namespace in (_unquoted(listed) for [listed] in namespaces)
                for row in query(self._session, f"show tables in {quoted(self._catalog)}.{quoted(namespace)}").rows
            ]

    def facts(self, name: TableName) -> TableFacts:
        with table_errors(f"looking at table {name}"):
            log = open_table(self._session, self._qualified(name)).log
            self._session.catalog.refreshTable(self._qualified(name))
            files = self._files(name, log)
            landed = next((each for each in lineage(log, log.current_snapshot_id) if LOAD_ID in each.summary), None)
            return TableFacts(
                table=str(name),
                format="iceberg",
                rows=self._rows(name, log),
                **files,
                snapshots=len(log.snapshots),
                last_load=landed.summary[LOAD_ID] if landed else None,
                last_load_at=_moment(landed.timestamp_ms) if landed else None,
                partitioned_by=log.slice_column,
                slices=self._count(f"{self._qualified(name)}.partitions") if log.is_partitioned else 0,
                columns=tuple(self._session.table(self._qualified(name)).dtypes),
            )

    def history(self, name: TableName) -> TableHistory:
        with table_errors(f"reading the log of table {name}"):
            log = open_table(self._session, self._qualified(name)).log
        shown = tuple((_moment(each.timestamp_ms), str(each.snapshot_id)) for each in log.snapshot_log)
        current = next(lineage(log, log.current_snapshot_id), None)
        return TableHistory(tuple(map(_change, log.snapshots)), shown, str(current.snapshot_id) if current else None)

    def compact(self, name: TableName) -> CompactionResult:
        return Compaction(self._session, self._qualified(name)).compact()

    def expire(self, name: TableName, snapshot_ids: Collection[str]) -> int:
        with table_errors(f"expiring snapshots of table {name}"):
            table, log = open_table(self._session, self._qualified(name))
            heads = {each.snapshot_id for each in log.refs.values()} | {log.current_snapshot_id}
            old = [each for each in log.snapshots if str(each.snapshot_id) in snapshot_ids]
            # An incomplete generation may still be continued, however old its loads are.
            open_branches = [each for each in log.branches if each.startswith(BRANCH_PREFIX)]
            in_use = heads.union(*(own_snapshots(log, each) for each in open_branches))
            old = [each for each in old if each.snapshot_id not in in_use]
            if not old:
                return 0
            # Iceberg's Spark action takes seconds where this takes a tenth of a second. Without the time Iceberg would
            # also expire other snapshots, by the table's maximum age.
            expiry = table.expireSnapshots().expireOlderThan(0)
            for each in old:
                expiry = expiry.expireSnapshotId(each.snapshot_id)
            expiry.commit()
            self._session.catalog.refreshTable(self._qualified(name))
        return len(old)

    def remove_orphans(self, name: TableName, *, before: datetime, protected: ProtectedFiles) -> tuple[str, ...]:
        with table_errors(f"removing orphan files of table {name}"):
            table, log = open_table(self._session, self._qualified(name))
            before_ms = int(before.timestamp() * 1000)
            action = spark_actions(self._session).deleteOrphanFiles(table).olderThan(before_ms)
            listed = self._in_store(log.location) if is_s3(log.location) else self._on_disk(log.location)
            if listed is None:
                return ()
            result = action.compareToFileList(_removable(listed, log.location, protected)._jdf).execute()
            return tuple(map(str, java_items(result.orphanFileLocations())))

    def _in_store(self, location: str) -> DataFrame | None:
        """As `_on_disk`, for S3: the table's FileIO opens it, but Hadoop may have no file system for it."""
        filesystem, place = self._storage.at(location)
        found = filesystem.get_file_info(fs.FileSelector(f"{place}/data", allow_not_found=True, recursive=True))
        files = [info for info in found if info.is_file]
        paths = [location + info.path.removeprefix(place) for info in files]
        times = pa.array([info.mtime_ns // 1000 for info in files], pa.timestamp("us", "UTC"))
        return self._session.createDataFrame(pa.table({"file_path": paths, "last_modified": times})) if files else None

    def _on_disk(self, location: str) -> DataFrame | None:
        """Returns the files of the data folder, with the columns and paths that Iceberg expects."""
        if not self._exists(f"{location}/data"):
            return None
        place = without_file_scheme(location)
        reader = self._session.read.format("binaryFile").option("recursiveFileLookup", "true")
        # Without this option a name with `*` or `?` would be read as a pattern.
        found = reader.option("__globPaths__", "false").load(f"{location}/data")
        path = f.regexp_replace("path", "^file:/+", "/")
        local = f.concat(f.lit(location), f.expr(f"substring(path, {len(place) + 1})"))
        return found.select(path.alias("path"), "modificationTime").select(
            (local if place.startswith("/") else f.col("path")).alias("file_path"),
            f.col("modificationTime").alias("last_modified"),
        )

    def _exists(self, folder: str) -> bool:
        path = self._jvm.org.apache.hadoop.fs.Path(folder)
        return bool(path.getFileSystem(self._session._jsparkSession.sessionState().newHadoopConf()).exists(path))

    def _files(self, name: TableName, log: FullTableLog) -> dict[str, int]:
        small = int(SMALL_SHARE * int(log.properties.get("write.target-file-size-bytes", _TARGET_BYTES)))
        by_kind = f"select content = 0, count(*), sum(file_size_in_bytes), count_if(file_size_in_bytes < {small})"
        found = query(self._session, f"{by_kind} from {self._qualified(name)}.files group by 1").rows
        rows = next((row for row in found if row[0]), (True, 0, 0, 0))
        deletes = next((row for row in found if not row[0]), (False, 0, 0, 0))
        return {
            "files": rows[1],
            "small_files": rows[3],
            "delete_files": deletes[1],
            "size_bytes": rows[2] + deletes[2],
        }

    def _rows(self, name: TableName, log: FullTableLog) -> int:
        current = next(lineage(log, log.current_snapshot_id), None)
        known = current.rows if current else 0
        return self._count(self._qualified(name)) if known is None else known

    def _count(self, table: str) -> int:
        [[count]] = query(self._session, f"select count(*) from {table}").rows  # noqa: S608 - quoted
        return int(count)

    def _qualified(self, name: TableName) -> str:
        return qualified(self._catalog, name)


def _removable(files: DataFrame, location: str, protected: ProtectedFiles) -> DataFrame:
    """Returns the files that no run may still commit."""
    place = without_file_scheme(location)
    for run_id in protected.run_ids:
        files = files.filter(~f.col("file_path").startswith(f"{location}/data/run-{run_id}/"))
    if not protected.paths:
        return files
    staged = [(location + path.removeprefix(place),) for path in map(without_file_scheme, protected.paths)]
    kept = files.sparkSession.createDataFrame(staged, "file_path string")
    return files.join(kept, "file_path", "left_anti")


def _unquoted(namespace: str) -> str:
    """Returns a namespace without the backticks in which Spark lists some names."""
    return namespace[1:-1].replace("``", "`") if namespace.startswith("`") else namespace


def _change(snapshot: Snapshot) -> SnapshotChange:
    def count(name: str) -> int:
        return int(snapshot.summary.get(name, "0"))

    version = snapshot.summary.get(VERSION)
    return SnapshotChange(
        snapshot_id=str(snapshot.snapshot_id),
        at=_moment(snapshot.timestamp_ms),
        operation=_operation(snapshot),
        added_rows=snapshot.added_rows,
        removed_rows=snapshot.removed_rows,
        deletes=count("added-equality-deletes") + count("added-position-deletes"),
        load_id=snapshot.summary.get(LOAD_ID),
        parent_id=None if snapshot.parent_snapshot_id is None else str(snapshot.parent_snapshot_id),
        rewound_at=None if version is None else int(version),
        stream=snapshot.summary.get("airbyte-proto.stream"),
    )


def _operation(snapshot: Snapshot) -> str:
    """Returns our word for an operation of ours, else Iceberg's."""
    ours = {COMPACTION: "compact", VERSION: "rollback"}
    return next((word for key, word in ours.items() if key in snapshot.summary), snapshot.summary.get("operation", ""))


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
