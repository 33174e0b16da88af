"""Upserts by position deletes, the default: every reader of Iceberg applies these, and at little cost.

- The load is staged as usual, with files of its keys, but these are never added to the table. Before the commit, the
  rows that have one of the keys are found in the table's files, by reading key columns alone: in this process, or by a
  Spark job if there are too many rows, or files that only Spark reads. One snapshot then adds the load's rows, and
  deletes of the rows that were found: deletion vectors in tables of format 3, files of position deletes in format 2.
- Of a load with very many keys, some are sought at a time, so that memory has a limit.
- Iceberg skips files by the bounds of the keys, and by partition and bucket if the keys are few.
- The change is fenced. It is refused if rows or deletes came in since the snapshot that was searched, or if a data file
  that the deletes refer to is gone: a compaction has put its rows into another file, where they would be back. Then the
  next attempt searches the table as it is by then.
- A delete file that a process wrote before it died is in no snapshot. `table expire` removes it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.column_ids import FIELD_ID, POSITION_DELETES, arrow_schema, key_ids
from dagster_airbyte_proto.loads.load import FileContent, StagedRows
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.model import MergeMode
from dagster_airbyte_proto.tables.deleted_rows import Positions
from dagster_airbyte_proto.tables.iceberg.jvm import WITH_VECTORS, JavaTable
from dagster_airbyte_proto.tables.iceberg.log import History, Snapshot
from dagster_airbyte_proto.tables.iceberg.positions.deletion_vectors import puffin_file
from dagster_airbyte_proto.tables.iceberg.positions.key_columns import (
    KEYS_AT_ONCE,
    SearchKeys,
    UnreadableFile,
    find_rows,
    read_keys,
)
from dagster_airbyte_proto.tables.iceberg.positions.older_deletes import (
    JoinedDeletes,
    OlderDeletes,
    position_delete_table,
)
from dagster_airbyte_proto.tables.iceberg.positions.planned_files import PARQUET, PUFFIN, NewDeletes, PlannedTask
from dagster_airbyte_proto.tables.iceberg.positions.spark_search import find_rows_by_spark
from dagster_airbyte_proto.tables.part_checks import effective_files
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_items

ROWS_SEARCHED_HERE = 50_000_000
"""Beyond so many rows in the files that may have the keys, Spark searches them. Here a million rows cost 0.02 to 0.13
CPU seconds."""
# Iceberg evaluates a list of values against bounds only up to this length.
_MOST_VALUES = 200
BY_POSITION = frozenset((MergeMode.ON_READ, MergeMode.POSITIONS))
"""The merge modes that leave the positions of rows."""


def needs_positions(part: StagedRows, history: History) -> bool:
    """True if a part has keys to find among older rows, and its merge mode deletes their rows by position."""
    files = effective_files(part, holds_rows=history.may_have_rows)
    return part.merge in BY_POSITION and any(file.content is FileContent.EQUALITY_DELETES for file in files)


class PositionMerge:
    """One attempt to land one part by position deletes. `qualified` is the table's name in SQL."""

    def __init__(
        self,
        session: SparkSession,
        storage: Storage,
        table: JavaTable,
        qualified: str,
        rows_searched_here: int = ROWS_SEARCHED_HERE,
    ) -> None:
        self._session, self._storage, self._table, self._qualified = session, storage, table, qualified
        self._java: Any = table.java
        self._jvm: Any = session._jvm
        self._rows_searched_here = rows_searched_here
        self._written: list[str] = []

    def change(self, part: StagedRows, history: History) -> Any:
        """Returns a change as `JavaTable.change` does. It may run a Spark job."""
        base, scope = history.current, self._table.scope(part)
        assert base is not None, "there are rows that the keys may be in"
        change = self._java.newRowDelta()
        referenced = self.add_files(change, part, base, scope)
        change.validateDeletedFiles().validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()
        change.validateDataFilesExist(self._java_list(referenced)).conflictDetectionFilter(scope)
        return change.validateFromSnapshot(base.snapshot_id)

    def add_files(self, change: Any, part: StagedRows, base: Snapshot, scope: Any) -> Sequence[str]:
        """Adds the part's rows, and deletes of all rows of its keys that a snapshot has, to a row delta.

        Returns the paths of the data files that the deletes refer to.
        """
        files = [file for file in part.files if file.content is not FileContent.EQUALITY_DELETES]
        self._table.with_files(change, part, files)
        try:
            tasks: dict[str, PlannedTask] = {}
            found = defaultdict(list)
            for sought in self._sought(part):
                planned = self._tasks(sought, base, scope)
                tasks |= planned
                for path, rows in self._positions_of_keys(planned, sought, base).items():
                    found[path].append(rows)
            older = OlderDeletes(self._storage, writes_vectors=self._writes_vectors)
            united = {path: np.unique(np.concatenate(rows)) for path, rows in found.items()}
            joined = {path: each for path, rows in united.items() if (each := older.joined(tasks[path], rows))}
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            doing = f"looking for the rows that a load replaces in table {self._qualified}"
            raise TableError(doing, str(error).partition("\n")[0], stream=str(part.stream)) from error
        described = self._delete_file_reader()
        for new in self._write(tasks, joined):
            change.addDeletes(described(new.json()))
        for each in joined.values():
            for old in each.replaced:
                change.removeDeletes(described(old.json))
        return list(joined)

    def discard(self, holders: Sequence[Snapshot]) -> None:
        """Deletes the delete files of a refused change, unless a snapshot has its load: then it may have them."""
        io, written, self._written = self._java.io(), self._written, []
        for path in written if not holders else ():
            with suppress(*CALL_ERRORS):
                io.deleteFile(path)

    @property
    def _writes_vectors(self) -> bool:
        return self._table.log.format_version >= WITH_VECTORS

    def _sought(self, part: StagedRows) -> Iterator[SearchKeys]:
        schema_id = part.branch_position.schema_id if part.branch_position else None
        columns = self._table.log.columns_of("committing a load", schema_id)
        by_id = {int(field.metadata[FIELD_ID]): field for field in arrow_schema(columns)}
        paths = [file.path for file in part.files if file.content is FileContent.EQUALITY_DELETES]
        fields = [by_id[each] for each in key_ids(columns, part.keys)]
        return read_keys(self._storage, paths, fields, KEYS_AT_ONCE)

    def _tasks(self, sought: SearchKeys, base: Snapshot, scope: Any) -> dict[str, PlannedTask]:
        """Returns the files of a snapshot that may have rows of the keys, by path."""
        scan = self._java.newScan().useSnapshot(base.snapshot_id).filter(scope)
        for bound in self._bounds(sought, base):
            scan = scan.filter(bound)
        to_json = self._jvm.org.apache.iceberg.ScanTaskParser.toJson
        with closing(scan.planFiles()) as planned:
            tasks = [PlannedTask.from_json(to_json(task)) for task in java_items(planned)]
        return {task.data_file.file_path: task for task in tasks}

    def _names(self, sought: SearchKeys, base: Snapshot) -> dict[str, str]:
        """The name in a snapshot of each key column that it has. One that was added since is null in its rows."""
        log = self._table.log
        columns = log.columns if base.schema_id is None else log.known_columns.get(base.schema_id, log.columns)
        names = {str(field["id"]): str(field["name"]) for field in columns["fields"]}
        return {each: names[each] for each in sought.keys.column_names if each in names}

    def _bounds(self, sought: SearchKeys, base: Snapshot) -> Iterator[Any]:
        """Yields filters that all keys satisfy.

        Iceberg looks their columns up both in the snapshot's schema and in the current one, by name.
        """
        make = self._jvm.org.apache.iceberg.expressions.Expressions
        current = {str(field["id"]): str(field["name"]) for field in self._table.log.columns["fields"]}
        for column, name in self._names(sought, base).items():
            values = sought.keys.column(column)
            if values.null_count or not _compares_alike(values) or current.get(column) != name:
                continue
            distinct = pc.unique(values)
            if len(distinct) <= _MOST_VALUES:
                yield getattr(make, "in")(name, self._java_list(distinct.to_pylist()))
                continue
            ends = pc.min_max(distinct).as_py()
            yield make.greaterThanOrEqual(name, ends["min"])
            yield make.lessThanOrEqual(name, ends["max"])

    def _positions_of_keys(
        self, tasks: Mapping[str, PlannedTask], sought: SearchKeys, base: Snapshot
    ) -> Mapping[str, Positions]:
        files = [task.data_file for task in tasks.values()]
        if sum(file.record_count for file in files) <= self._rows_searched_here:
            with suppress(UnreadableFile):
                return find_rows(self._storage, files, sought)
        self._session.catalog.refreshTable(self._qualified)
        frame = self._session.read.option("versionAsOf", base.snapshot_id).table(self._qualified)
        found = find_rows_by_spark(frame, sought.keys, self._names(sought, base))
        # Spark also looks into other slices.
        return {path: rows for path, rows in found.items() if path in tasks}

    def _write(self, tasks: Mapping[str, PlannedTask], joined: Mapping[str, JoinedDeletes]) -> Iterator[NewDeletes]:
        if not joined:
            return
        if self._writes_vectors:
            content, vectors = puffin_file({path: each.rows for path, each in joined.items()})
            path = self._store(content, "puffin")
            for vector in vectors:
                file = tasks[vector.data_file].data_file
                yield NewDeletes(
                    file.spec_id, file.partition, path, PUFFIN, len(content), vector.rows,
                    vector.data_file, vector.offset, vector.size_bytes,
                )  # fmt: skip
            return
        by_partition = defaultdict(list)
        for data_file in joined:
            file = tasks[data_file].data_file
            by_partition[file.spec_id, bytes(file.partition)].append(data_file)
        for data_files in by_partition.values():
            rows = position_delete_table(POSITION_DELETES, [(each, joined[each].rows) for each in data_files])
            sink = pa.BufferOutputStream()
            pq.write_table(rows, sink, compression="zstd")
            content, file = sink.getvalue().to_pybytes(), tasks[data_files[0]].data_file
            only = data_files[0] if len(data_files) == 1 else None
            path = self._store(content, "parquet")
            yield NewDeletes(file.spec_id, file.partition, path, PARQUET, len(content), rows.num_rows, only)

    def _store(self, content: bytes, kind: str) -> str:
        # Not in the folder of the staged files: the sweep of that folder deletes files that no announced load names.
        path = str(self._java.locationProvider().newDataLocation(f"{uuid4().hex}-deletes.{kind}"))
        with closing(self._java.io().newOutputFile(path).create()) as stream:
            stream.write(content)
        self._written.append(path)
        return path

    def _delete_file_reader(self) -> Callable[[str], Any]:
        """Returns a function from the JSON of a delete file to Iceberg's object."""
        iceberg, specs = self._jvm.org.apache.iceberg, self._java.specs()
        parse, read = iceberg.ContentFileParser.fromJson, iceberg.util.JsonUtil.mapper().readTree
        return lambda text: parse(read(text), specs)

    def _java_list(self, values: Sequence[Any]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made


def _compares_alike(values: pa.ChunkedArray) -> bool:
    """True for values that Java and Arrow order in the same way: integers, and text in ASCII."""
    if pa.types.is_string(values.type):
        return bool(pc.all(pc.string_is_ascii(values), min_count=0).as_py())
    return bool(pa.types.is_integer(values.type))
