"""The facts and the history of Iceberg tables, from their logs and their metadata tables. It needs no JVM."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ProtoError, TableError
from dagster_airbyte_proto.loads.storage import Storage, without_file_scheme
from dagster_airbyte_proto.loads.table import BRANCH_PREFIX
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import SMALL_SHARE, SnapshotChange, TableFacts, TableHistory
from dagster_airbyte_proto.tables.formats import LOAD_ID
from dagster_airbyte_proto.tables.iceberg.branches import own_snapshots
from dagster_airbyte_proto.tables.iceberg.care.orphan_files import may_be_shared
from dagster_airbyte_proto.tables.iceberg.handle import table_errors
from dagster_airbyte_proto.tables.iceberg.log import COMPACTION, REWOUND_AT, FullTableLog, Snapshot, lineage
from dagster_airbyte_proto.tables.spark.jvm.errors import SESSION_ERRORS
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.sql_names import qualified, quoted

# Iceberg's default for `write.target-file-size-bytes`.
_TARGET_BYTES = 512 << 20


class IcebergFacts:
    """Reads the tables of one Iceberg catalog of a session. `read_log` opens a table by its name in SQL."""

    def __init__(self, session: SparkSession, catalog: str, read_log: Callable[[str], FullTableLog]) -> None:
        self._session, self._catalog, self._read_log = session, catalog, read_log

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
            log = self._read_log(self._qualified(name))
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
                partitioned_by=", ".join(map(str, log.partitioning)) or None,
                slices=self._count(f"{self._qualified(name)}.partitions") if log.is_partitioned else 0,
                columns=tuple(self._session.table(self._qualified(name)).dtypes),
            )

    def history(self, name: TableName) -> TableHistory:
        with table_errors(f"reading the log of table {name}"):
            log = self._read_log(self._qualified(name))
        shown = tuple((_moment(each.timestamp_ms), str(each.snapshot_id)) for each in log.snapshot_log)
        current = next(lineage(log, log.current_snapshot_id), None)
        return TableHistory(tuple(map(_change, log.snapshots)), shown, str(current.snapshot_id) if current else None)

    def _check_has_own_folder(self, name: TableName, log: FullTableLog, storage: Storage) -> None:
        """Raises TableError if another table of the catalog lies in the same folder: its files look like orphans."""
        if not may_be_shared(storage, log):
            return
        for other in self.names():
            if other != name and self._location(other) == _folder(log):
                raise TableError(
                    f"removing orphan files of table {name}",
                    f"table {other} lies in the same folder, as one that was renamed does: its files would be removed",
                    remedy=f"Copy the rows of {other} into a new table (CREATE TABLE … AS SELECT), and drop it without"
                    " PURGE. Nothing was removed.",
                )

    def _location(self, name: TableName) -> str | None:
        """Returns the folder of a table; None for one that cannot be read, or is of another format."""
        with suppress(ProtoError, *SESSION_ERRORS):
            return _folder(self._read_log(self._qualified(name)))
        return None

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


def expirable_snapshots(log: FullTableLog, snapshot_ids: Collection[str]) -> list[int]:
    """Returns those of the snapshots that are in the log and that nothing needs."""
    heads = {each.snapshot_id for each in log.refs.values()} | {log.current_snapshot_id}
    # An incomplete generation may still be continued, however old its loads are.
    open_branches = [each for each in log.branches if each.startswith(BRANCH_PREFIX)]
    in_use = heads.union(*(own_snapshots(log, each) for each in open_branches))
    old = [each.snapshot_id for each in log.snapshots if str(each.snapshot_id) in snapshot_ids]
    return [each for each in old if each not in in_use]


def _folder(log: FullTableLog) -> str:
    return without_file_scheme(log.location).rstrip("/")


def _unquoted(namespace: str) -> str:
    """Returns a namespace without the backticks in which Spark lists some names."""
    return namespace[1:-1].replace("``", "`") if namespace.startswith("`") else namespace


def _change(snapshot: Snapshot) -> SnapshotChange:
    def count(name: str) -> int:
        return int(snapshot.summary.get(name, "0"))

    version = snapshot.summary.get(REWOUND_AT)
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
    """Returns our word for an operation of ours and for a compaction, else Iceberg's."""
    ours = {COMPACTION: "compact", REWOUND_AT: "rollback"}
    operation = snapshot.summary.get("operation", "")
    others = "compact" if operation == "replace" else operation
    return next((word for key, word in ours.items() if key in snapshot.summary), others)


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
