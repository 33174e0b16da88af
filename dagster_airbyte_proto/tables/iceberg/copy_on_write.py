"""Upserts that leave no deletes in an Iceberg table, for readers that cannot apply them: `merge: copy_on_write`.

The load is staged as ever, with its files of deletes. These never get into the table: the data files that hold what
they take out are written anew without it, by Spark, and one snapshot takes the old ones out and the new ones and the
load's own in. Whatever deletes the table has from before go the same way.

Spark reads a file with the deletes that it is told of, as it does when it compacts. So what a delete means is Iceberg's
to say here too, and which files hold a row of the keys is asked by reading no other column.

The change is fenced as any other: it is refused if a row came in since the snapshot that the copies were made of, or if
one of the files that they replace is gone. Then they are removed, and the next attempt makes others. Copies of a
process that died are in no snapshot; `table expire` removes them with other orphans.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.java_gateway import JavaMember
from py4j.protocol import STATIC_PREFIX
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.table import REPLACING
from dagster_airbyte_proto.model import Merge
from dagster_airbyte_proto.tables.iceberg.jvm import JavaTable, java_array, java_items
from dagster_airbyte_proto.tables.iceberg.log import History, Snapshot
from dagster_airbyte_proto.tables.part_checks import landing
from dagster_airbyte_proto.tables.spark.jvm_errors import CALL_ERRORS


def is_copied(part: StagedRows, history: History) -> bool:
    """Whether a part would leave deletes in the table, and must not."""
    files = landing(part, holds_rows=_holds_rows(history))
    return part.merge is Merge.COPY_ON_WRITE and any(file.content is not FileContent.ROWS for file in files)


class _Holder(NamedTuple):
    """A data file (Java's), and the files of deletes that take rows out of it."""

    file: Any
    deletes: Sequence[Any]


class _Staged(NamedTuple):
    """What a part brings: its files of rows, each with the deletes of some of them; and keys, whose older rows go."""

    rows: Sequence[_Holder]
    keys: Sequence[Any]


class CopyOnWrite:
    """One attempt to land one part."""

    def __init__(self, session: SparkSession, storage: Storage, table: JavaTable) -> None:
        self._session, self._storage, self._table = session, storage, table
        self._java: Any = table.java
        self._gateway: Any = session.sparkContext._gateway
        self._jvm: Any = session._jvm
        self._copies: Sequence[Any] = ()

    def change(self, part: StagedRows, history: History) -> Any:
        """As `JavaTable.change`. Runs jobs."""
        base, scope, change = history.current, self._table.scope(part), self._java.newRowDelta()
        staged = self._staged(part, landing(part, holds_rows=_holds_rows(history)))
        torn = [each for each in staged.rows if each.deletes]
        if part.write in REPLACING:
            self._table.remove_all(change, base, scope)
        elif base is not None and staged.keys:
            torn += self._taken_out(change, base, scope, staged.keys, part)
        for whole in staged.rows:
            if not whole.deletes:
                change.addRows(whole.file)
        self._copies = self._rewritten(torn)
        for copy in self._copies:
            change.addRows(copy)
        change.validateDeletedFiles().validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()
        change.conflictDetectionFilter(scope)
        return change.validateFromSnapshot(base.snapshot_id) if base else change

    def discard(self) -> None:
        """Removes the copies of a change that was refused for certain."""
        for copy in self._copies:
            with suppress(*CALL_ERRORS):  # Else it is an orphan as others.
                self._java.io().deleteFile(str(copy.location()))
        self._copies = ()

    def _staged(self, part: StagedRows, files: Sequence[StagedFile]) -> _Staged:
        by_path = defaultdict(list)
        for file in files:
            if file.content is FileContent.POSITION_DELETES:
                for described in self._table.delete_files(file, part):
                    only = described.referencedDataFile()
                    for path in self._spoken_of(file) if only is None else [str(only)]:
                        by_path[path].append(described)
        rows = [file for file in files if file.content is FileContent.ROWS]
        keys = [file for file in files if file.content is FileContent.EQUALITY_DELETES]
        return _Staged(
            [_Holder(self._table.data_file(file, part), by_path[file.path]) for file in rows],
            [described for file in keys for described in self._table.delete_files(file, part)],
        )

    def _spoken_of(self, file: StagedFile) -> list[str]:
        with self._opened(file) as opened:
            paths = pq.read_table(opened, columns=["file_path"]).column("file_path")
        return [str(path) for path in pc.unique(paths).to_pylist()]

    def _opened(self, file: StagedFile) -> pa.NativeFile:
        filesystem, path = self._storage.at(file.path)
        return filesystem.open_input_file(path)

    def _taken_out(
        self, change: Any, base: Snapshot, scope: Any, keys: Sequence[Any], part: StagedRows
    ) -> list[_Holder]:
        """Has a change take out the files that hold rows of the keys or have deletes already, and those deletes."""
        holders = list(self._holders(base, scope, part))
        whole = self._touched([_Holder(each.file, keys) for each in holders if not each.deletes])
        taken = [*whole, *(_Holder(each.file, [*each.deletes, *keys]) for each in holders if each.deletes)]
        for each in taken:
            change.removeRows(each.file)
        if base.totals.delete_files:
            self._table.remove_deletes(change, self._java.snapshot(base.snapshot_id), scope)
        return taken

    def _holders(self, base: Snapshot, scope: Any, part: StagedRows) -> Iterator[_Holder]:
        """The table's files that may hold rows of the keys, and those that have deletes."""
        scan, has_deletes = (
            self._java.newScan().useSnapshot(base.snapshot_id).filter(scope),
            base.totals.delete_files > 0,
        )
        if not has_deletes:
            for bound in self._bounds(part):
                scan = scan.filter(bound)
        with closing(scan.planFiles()) as tasks:
            for task in java_items(tasks):
                yield _Holder(task.file(), list(java_items(task.deletes())) if has_deletes else [])

    def _bounds(self, part: StagedRows) -> Iterator[Any]:
        """What holds of all keys, as far as their files tell without being read. Iceberg passes over files by it."""
        make = self._jvm.org.apache.iceberg.expressions.Expressions
        files = [file for file in part.files if file.content is FileContent.EQUALITY_DELETES]
        for key in part.keys:
            if (bounds := self._least_and_most(files, key)) is not None:
                yield make.greaterThanOrEqual(key, bounds[0])
                yield make.lessThanOrEqual(key, bounds[1])

    def _least_and_most(self, files: Sequence[StagedFile], key: str) -> tuple[Any, Any] | None:
        """None where it is not told, or in no words that Iceberg and we compare alike."""
        told = []
        for file in files:
            with self._opened(file) as opened:
                metadata = pq.ParquetFile(opened).metadata
                place = metadata.schema.names.index(key)
                told += [
                    metadata.row_group(number).column(place).statistics for number in range(metadata.num_row_groups)
                ]
        if any(each is None or not each.has_min_max or each.null_count != 0 for each in told):
            return None
        least, most = min(each.min for each in told), max(each.max for each in told)
        return (least, most) if _is_plain(least) and _is_plain(most) else None

    def _touched(self, holders: Sequence[_Holder]) -> list[_Holder]:
        """Those that do hold rows which their deletes take out."""
        if not holders:
            return []
        with self._staged_for_spark(holders) as (rows, _):
            # Of Iceberg's own `_file` and `_deleted` Spark knows nothing here in tables of the third format.
            found = rows.groupBy(f.input_file_name()).count().collect()
        left = {str(path): int(count) for path, count in found}
        return [each for each in holders if left.get(str(each.file.location())) != int(each.file.recordCount())]

    def _rewritten(self, holders: Sequence[_Holder]) -> list[Any]:
        """The files' rows in new files, but for those that deletes take out."""
        if not holders:
            return []
        coordinator = self._jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()
        with self._staged_for_spark(holders) as (rows, group):
            writer = rows.write.format("iceberg").option("rewritten-file-scan-task-set-id", group)
            try:
                writer.mode("append").save(group)
                return list(java_items(coordinator.fetchNewFiles(self._java, group)))
            finally:
                coordinator.clearRewrite(self._java, group)

    @contextmanager
    def _staged_for_spark(self, holders: Sequence[_Holder]) -> Iterator[tuple[DataFrame, str]]:
        """The files' rows as a frame, by the way of Iceberg's own compactions: under the name of a group."""
        group = str(uuid4())
        spark = self._jvm.org.apache.iceberg.spark
        tables, tasks = self._table_cache(), spark.ScanTaskSetManager.get()
        # Both tables and tasks are those of the thread's session, and a new thread of the gateway has none.
        self._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._session._jsparkSession)
        tables.add(group, self._java)
        tasks.stageTasks(self._java, group, self._tasks(holders))
        try:
            yield self._session.read.format("iceberg").option("scan-task-set-id", group).load(group), group
        finally:
            tables.remove(group)
            tasks.removeTasks(self._java, group)

    def _table_cache(self) -> Any:
        """Asked for by name, py4j takes the first `get` that it meets, which is another one in each JVM, and that of an
        instance will not do. A call finds the one without arguments."""
        name = f"{STATIC_PREFIX}org.apache.iceberg.spark.SparkTableCache"
        return JavaMember("get", None, name, self._gateway._gateway_client)()

    def _tasks(self, holders: Sequence[_Holder]) -> Any:
        iceberg = self._jvm.org.apache.iceberg
        schema = iceberg.SchemaParser.toJson(self._java.schema())
        specs = {int(number): iceberg.PartitionSpecParser.toJson(spec) for number, spec in self._java.specs().items()}
        all_rows = iceberg.expressions.ResidualEvaluator.unpartitioned(iceberg.expressions.Expressions.alwaysTrue())
        tasks = self._jvm.java.util.ArrayList()
        for file, deletes in holders:
            spec, array = specs[int(file.specId())], java_array(self._gateway, iceberg.DeleteFile, deletes)
            tasks.add(iceberg.BaseFileScanTask(file, array, schema, spec, all_rows))
        return tasks


def _holds_rows(history: History) -> bool:
    return history.current is not None and history.current.stored_rows > 0


def _is_plain(value: Any) -> bool:
    """Whole numbers, and text of which Java thinks as Python does what comes first."""
    return type(value) is int or (isinstance(value, str) and value.isascii())
