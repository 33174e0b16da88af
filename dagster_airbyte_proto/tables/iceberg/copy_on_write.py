"""Upserts that leave no delete files in an Iceberg table (`merge: copy_on_write`), for readers that ignore these.

- The load is staged as usual, with its delete files, but these are never added to the table. Spark writes copies of the
  affected data files without the deleted rows. One snapshot then removes the old files and adds the copies and the
  load's own files. Delete files that the table already has are applied and removed in the same way.
- Spark reads a file together with the delete files that we name, as in Iceberg's compaction. So Iceberg decides what a
  delete means here too. To find the files that have rows of the keys, Spark reads no other column.
- The change is fenced like any other: the commit fails if a row was added since the snapshot that was copied, or if one
  of the replaced files is gone. Then the copies are deleted, and the next attempt writes new ones.
- Copies of a process that died are in no snapshot. `table expire` removes them with other orphan files.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dagster_airbyte_proto.loads.column_ids import key_ids
from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.model import REPLACING, MergeMode
from dagster_airbyte_proto.tables.iceberg.handle import staged_tasks
from dagster_airbyte_proto.tables.iceberg.jvm import JavaTable
from dagster_airbyte_proto.tables.iceberg.log import History, Snapshot
from dagster_airbyte_proto.tables.iceberg.positions.key_columns import column_places
from dagster_airbyte_proto.tables.part_checks import effective_files
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_array, java_items


def needs_copy_on_write(part: StagedRows, history: History) -> bool:
    """True if a part would leave delete files in its table, and its merge mode forbids them."""
    files = effective_files(part, holds_rows=history.may_have_rows)
    return part.merge is MergeMode.COPY_ON_WRITE and any(file.content is not FileContent.ROWS for file in files)


class _DataFile(NamedTuple):
    """A data file (Java's), and the delete files that apply to it."""

    file: Any
    deletes: Sequence[Any]


class _StagedPart(NamedTuple):
    """The files of a part (Java's): its data files with their position deletes, and its equality deletes (`keys`)."""

    rows: Sequence[_DataFile]
    keys: Sequence[Any]


class CopyOnWrite:
    """One attempt to land one part by copy-on-write."""

    def __init__(self, session: SparkSession, storage: Storage, table: JavaTable) -> None:
        self._session, self._storage, self._table = session, storage, table
        self._java: Any = table.java
        self._gateway: Any = session.sparkContext._gateway
        self._jvm: Any = session._jvm
        self._copies: Sequence[Any] = ()

    def change(self, part: StagedRows, history: History) -> Any:
        """Returns a change as `JavaTable.change` does. Runs Spark jobs to write the copies."""
        base, scope, change = history.current, self._table.scope(part), self._java.newRowDelta()
        staged = self._staged(part, effective_files(part, holds_rows=history.may_have_rows))
        to_rewrite = [each for each in staged.rows if each.deletes]
        if part.write in REPLACING:
            self._table.remove_all(change, base, scope)
        elif base is not None and staged.keys:
            to_rewrite += self._remove_affected(change, base, scope, staged.keys, part)
        for each in staged.rows:
            if not each.deletes:
                change.addRows(each.file)
        self._copies = self._rewrite(to_rewrite)
        for copy in self._copies:
            change.addRows(copy)
        change.validateDeletedFiles().validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()
        change.conflictDetectionFilter(scope)
        return change.validateFromSnapshot(base.snapshot_id) if base else change

    def discard(self, holders: Sequence[Snapshot]) -> None:
        """Deletes the copies of a refused change. The snapshots with its load are from another writer, or from this one
        if the error came after its effect: then one has the copies, and they stay.
        """
        io = self._java.io()
        # A copy that stays without need is an orphan file, which `table expire` removes.
        with suppress(*CALL_ERRORS):
            snapshots = [self._java.snapshot(each.snapshot_id) for each in holders]
            in_use = {str(file.location()) for each in snapshots for file in java_items(each.addedDataFiles(io))}
            for path in {str(copy.location()) for copy in self._copies} - in_use:
                with suppress(*CALL_ERRORS):
                    io.deleteFile(path)
        self._copies = ()

    def _staged(self, part: StagedRows, files: Sequence[StagedFile]) -> _StagedPart:
        by_path = defaultdict(list)
        for file in files:
            if file.content is FileContent.POSITION_DELETES:
                for described in self._table.delete_files(file, part):
                    only = described.referencedDataFile()
                    for path in self._referenced_paths(file) if only is None else [str(only)]:
                        by_path[path].append(described)
        rows = [file for file in files if file.content is FileContent.ROWS]
        keys = [file for file in files if file.content is FileContent.EQUALITY_DELETES]
        return _StagedPart(
            [_DataFile(self._table.data_file(file, part), by_path[file.path]) for file in rows],
            [described for file in keys for described in self._table.delete_files(file, part)],
        )

    def _referenced_paths(self, file: StagedFile) -> list[str]:
        with self._open_file(file) as opened:
            paths = pq.read_table(opened, columns=["file_path"]).column("file_path")
        return [str(path) for path in pc.unique(paths).to_pylist()]

    def _open_file(self, file: StagedFile) -> pa.NativeFile:
        filesystem, path = self._storage.at(file.path)
        return filesystem.open_input_file(path)

    def _remove_affected(
        self, change: Any, base: Snapshot, scope: Any, keys: Sequence[Any], part: StagedRows
    ) -> list[_DataFile]:
        """Makes a change remove the files that have rows of the keys or have deletes already, and those deletes.

        Returns the removed files, each with the deletes to apply to its copy.
        """
        candidates = list(self._candidates(base, scope, part))
        matching = self._with_matches([_DataFile(each.file, keys) for each in candidates if not each.deletes])
        removed = [*matching, *(_DataFile(each.file, [*each.deletes, *keys]) for each in candidates if each.deletes)]
        for each in removed:
            change.removeRows(each.file)
        if base.may_have_deletes:
            self._table.remove_deletes(change, self._java.snapshot(base.snapshot_id), scope)
        return removed

    def _candidates(self, base: Snapshot, scope: Any, part: StagedRows) -> Iterator[_DataFile]:
        """Yields the table's files that may have rows of the keys, and all files that have deletes."""
        scan = self._java.newScan().useSnapshot(base.snapshot_id).filter(scope)
        if not base.may_have_deletes:
            for bound in self._bounds(part):
                scan = scan.filter(bound)
        with closing(scan.planFiles()) as tasks:
            for task in java_items(tasks):
                yield _DataFile(task.file(), list(java_items(task.deletes())) if base.may_have_deletes else [])

    def _bounds(self, part: StagedRows) -> Iterator[Any]:
        """Yields filters that all keys satisfy, from the statistics of their files. Iceberg skips files by them."""
        make = self._jvm.org.apache.iceberg.expressions.Expressions
        files = [file for file in part.files if file.content is FileContent.EQUALITY_DELETES]
        columns = self._table.log.columns
        names = {int(field["id"]): str(field["name"]) for field in columns["fields"]}
        for key in key_ids(columns, part.keys):
            if (bounds := self._key_range(files, key)) is not None:
                yield make.greaterThanOrEqual(names[key], bounds[0])
                yield make.lessThanOrEqual(names[key], bounds[1])

    def _key_range(self, files: Sequence[StagedFile], key: int) -> tuple[Any, Any] | None:
        """Returns the least and the greatest value of a key column, by its field id: its name may be in another case.

        None if the statistics are incomplete, or if Iceberg and Python may order the values differently.
        """
        statistics = []
        for file in files:
            with self._open_file(file) as opened:
                found = pq.ParquetFile(opened)
                groups = map(found.metadata.row_group, range(found.num_row_groups))
                place = column_places(found.schema_arrow)[key]
                statistics += [group.column(place).statistics for group in groups]
        if any(each is None or not each.has_min_max or each.null_count != 0 for each in statistics):
            return None
        least, most = min(each.min for each in statistics), max(each.max for each in statistics)
        return (least, most) if _compares_alike(least) and _compares_alike(most) else None

    def _with_matches(self, files: Sequence[_DataFile]) -> list[_DataFile]:
        """Returns the files with rows that their deletes remove."""
        if not files:
            return []
        with self._staged_for_spark(files) as (rows, _):
            # Iceberg's metadata columns `_file` and `_deleted` are not available here in tables of format 3.
            found = rows.groupBy(f.input_file_name()).count().collect()
        left = {str(path): int(count) for path, count in found}
        return [each for each in files if left.get(str(each.file.location())) != int(each.file.recordCount())]

    def _rewrite(self, files: Sequence[_DataFile]) -> list[Any]:
        """Writes the rows of files to new files (Java's), without the rows that their deletes remove."""
        if not files:
            return []
        coordinator = self._jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()
        with self._staged_for_spark(files) as (rows, group):
            writer = rows.write.format("iceberg").option("rewritten-file-scan-task-set-id", group)
            try:
                writer.mode("append").save(group)
                return list(java_items(coordinator.fetchNewFiles(self._java, group)))
            finally:
                coordinator.clearRewrite(self._java, group)

    @contextmanager
    def _staged_for_spark(self, files: Sequence[_DataFile]) -> Iterator[tuple[DataFrame, str]]:
        """Yields the rows of files as a frame, and the id of the group under which Iceberg knows their scan tasks."""
        group = str(uuid4())
        with staged_tasks(self._session, self._java, self._tasks(files), group) as rows:
            yield rows, group

    def _tasks(self, files: Sequence[_DataFile]) -> Any:
        iceberg = self._jvm.org.apache.iceberg
        schema = iceberg.SchemaParser.toJson(self._java.schema())
        specs = {int(number): iceberg.PartitionSpecParser.toJson(spec) for number, spec in self._java.specs().items()}
        all_rows = iceberg.expressions.ResidualEvaluator.unpartitioned(iceberg.expressions.Expressions.alwaysTrue())
        tasks = self._jvm.java.util.ArrayList()
        for file, deletes in files:
            spec, array = specs[int(file.specId())], java_array(self._gateway, iceberg.DeleteFile, deletes)
            tasks.add(iceberg.BaseFileScanTask(file, array, schema, spec, all_rows))
        return tasks


def _compares_alike(value: Any) -> bool:
    """True for values that Java and Python order in the same way: integers, and text in ASCII."""
    return type(value) is int or (isinstance(value, str) and value.isascii())
