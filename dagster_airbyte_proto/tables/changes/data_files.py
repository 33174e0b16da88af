"""Finds the changed rows of an Iceberg table by its files: those that a snapshot has and an earlier one had not.

- A row that is new or changed stands in a file that is new. So new files are read, whoever wrote them and however.
- A row that is gone stood in a file that is gone, or that has more deletes than it had. Of these files the key is read,
  as it was and as it is; what is left out in between is gone. Where all new deletes name the key, they are read alone.
- A file that has lost a delete may have rows again. Mostly the delete went into a larger one: Spark keeps one for each
  data file. So the positions are compared, and only a file that really has rows again is read.
- A compaction (a `replace` snapshot) makes files new whose rows are not. So the way from one snapshot to the other is
  cut there into stretches, and each is compared by itself. A key counts as of the last stretch that has it.
- Two snapshots can also be compared where one does not descend from the other: after a rollback, or where snapshots in
  between have expired. Then compactions count as changes, which costs, and does no harm.

Sequence numbers alone would cost less to look at. But they miss deletes by position, and know no rollback.
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from typing import Any, NamedTuple
from uuid import uuid4

import pyspark
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto.tables.changes.row_events import EventsWanted, NoCommonHistory, RowEvents, at_step
from dagster_airbyte_proto.tables.iceberg.handle import OpenedTable, staged_tasks
from dagster_airbyte_proto.tables.iceberg.log import Snapshot, TableLog, lineage
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_array, java_items

_EQUALITY_DELETES = "EQUALITY_DELETES"
_POSITION_DELETES = "POSITION_DELETES"


class _Deletes(NamedTuple):
    """A delete file that applies to a data file, or a deletion vector: then with its `place` in the file."""

    location: str
    place: str


class _ScannedFile(NamedTuple):
    """A data file of a snapshot: its scan task (Java's), and its deletes with their Java objects."""

    task: Any
    rows: int
    deletes: Mapping[_Deletes, Any]


class _Stretch(NamedTuple):
    """Two snapshots, with no compaction after the first. `is_linear` if the second descends from the first."""

    first: int
    last: int
    is_linear: bool


class DataFileChanges:
    """The ChangeFinder of one Iceberg table."""

    def __init__(self, session: SparkSession, opened: OpenedTable) -> None:
        self._session, self._table, self._log = session, opened.table, opened.log
        self._jvm: Any = session._jvm
        self._gateway: Any = session.sparkContext._gateway

    def events(self, since: str, until: str, wanted: EventsWanted, stack: ExitStack) -> RowEvents:
        first, last = int(since), int(until)
        self._check(first, last)
        stretches = _stretches(self._log, first, last)
        found = RowEvents([], [], [], 0)
        # A row of one stretch may be gone in a later one, also where nobody asks for rows that are gone.
        finds_gone = wanted.finds_gone or len(stretches) > 1
        for step, stretch in enumerate(stretches):
            change = self._compared(stretch, wanted.key_columns, finds_gone=finds_gone)
            found = found.joined(self._events(change, step, wanted.key_columns, stack))
        return found

    def _events(
        self, change: "_FileChanges", step: int, key_columns: tuple[str, ...] | None, stack: ExitStack
    ) -> RowEvents:
        there, gone, keys = [], [], []
        most = sum(file.rows for file in (*change.there.values(), *change.gone.values()))
        if change.there:
            there.append(self._rows(change.there.values(), stack))
        if change.gone:
            gone.append(self._rows(change.gone.values(), stack))
        if change.trimmed:
            old, now = (self._rows(files, stack) for files in zip(*change.trimmed.values(), strict=True))
            if key_columns is None:
                gone.append(old)
                there.append(now)
                most += 2 * sum(file.old.rows for file in change.trimmed.values())
            else:
                columns = [*map(_quoted, key_columns)]
                keys.append(old.select(*columns).join(now.select(*columns), [*key_columns], "left_anti"))
                most += _most_trimmed(change.trimmed)
        if change.key_deletes and key_columns:
            keys.append(self._keys(change.key_deletes.values(), stack).select(*map(_quoted, key_columns)))
            most += sum(int(each.recordCount()) for each in change.key_deletes.values())
        return RowEvents(
            [at_step(each, step, is_gone=False) for each in there],
            [at_step(each, step, is_gone=True) for each in keys],
            [at_step(each, step, is_gone=True) for each in gone],
            most,
        )

    def _check(self, first: int, last: int) -> None:
        known = {snapshot.snapshot_id: snapshot for snapshot in self._log.snapshots}
        if first not in known or last not in known:
            raise NoCommonHistory(f"snapshot {first if first not in known else last} has expired")
        if _columns(self._log, known[first]) != _columns(self._log, None):
            raise NoCommonHistory(f"the table's columns have changed since snapshot {first}")

    def _compared(self, stretch: _Stretch, key_columns: tuple[str, ...] | None, *, finds_gone: bool) -> "_FileChanges":
        before, after = self._files(stretch.first), self._files(stretch.last)
        found = _FileChanges({}, {}, {}, {})
        for path, file in after.items():
            if path not in before or self._has_regained(before[path], file, stretch):
                found.there[path] = file
        for path, old in before.items() if finds_gone else ():
            if path not in after:
                found.gone[path] = old
                continue
            now = after[path]
            if new := now.deletes.keys() - old.deletes.keys():
                if key_columns is not None and all(self._names_key(now.deletes[each], key_columns) for each in new):
                    found.key_deletes.update({each.location: now.deletes[each] for each in new})
                else:
                    found.trimmed[path] = _Deleted(old, now)
        return found

    def _has_regained(self, old: _ScannedFile, now: _ScannedFile, stretch: _Stretch) -> bool:
        """True if a file has rows again which deletes had taken, or may have."""
        lost = old.deletes.keys() - now.deletes.keys()
        if all(stretch.is_linear and each.place for each in lost):
            return False  # While one snapshot follows the other a vector only gains rows.
        if any(str(old.deletes[each].content()) != _POSITION_DELETES for each in lost):
            return True
        before, after = self._positions(old), self._positions(now)
        if before is None or after is None:
            return before is not None
        count = after.cardinality()
        after.merge(before)
        return bool(after.cardinality() != count)

    def _positions(self, file: _ScannedFile) -> Any:
        """The positions of a file's rows (Java's) that deletes by position take; None if no such delete applies."""
        schema = self._table.schema()
        deletes = self._jvm.org.apache.iceberg.data.GenericDeleteFilter(self._table.io(), file.task, schema, schema)
        return deletes.deletedRowPositions()

    def _names_key(self, deletes: Any, key_columns: tuple[str, ...]) -> bool:
        """True for deletes in the whole table by exactly the key."""
        if str(deletes.content()) != _EQUALITY_DELETES or self._table.specs().get(deletes.specId()).isPartitioned():
            return False
        schema = self._table.schema()
        fields = {schema.findField(name).fieldId() for name in key_columns if schema.findField(name) is not None}
        return len(fields) == len(key_columns) and set(java_items(deletes.equalityFieldIds())) == fields

    def _files(self, snapshot_id: int) -> dict[str, _ScannedFile]:
        """The data files of a snapshot. It costs a few round trips to the JVM for each."""
        with closing(self._table.newScan().useSnapshot(snapshot_id).planFiles()) as tasks:
            return dict(self._scanned(task) for task in java_items(tasks))

    def _scanned(self, task: Any) -> tuple[str, _ScannedFile]:
        file = task.file()
        deletes = {_deletes_at(each): each for each in java_items(task.deletes())}
        return str(file.location()), _ScannedFile(task, int(file.recordCount()), deletes)

    def _rows(self, files: Iterable[_ScannedFile], stack: ExitStack) -> DataFrame:
        tasks = self._jvm.java.util.ArrayList()
        for file in files:
            tasks.add(file.task)
        return self._read(tasks, stack)

    def _keys(self, files: Iterable[Any], stack: ExitStack) -> DataFrame:
        """Reads delete files as if they were data files of the table: with its columns, found by their ids."""
        iceberg = self._jvm.org.apache.iceberg
        schema = iceberg.SchemaParser.toJson(self._table.schema())
        all_rows = iceberg.expressions.ResidualEvaluator.unpartitioned(iceberg.expressions.Expressions.alwaysTrue())
        tasks = self._jvm.java.util.ArrayList()
        for file in files:
            spec = self._table.specs().get(file.specId())
            as_data = iceberg.DataFiles.builder(spec).withPath(file.location()).withFormat(file.format())
            as_data = as_data.withFileSizeInBytes(file.fileSizeInBytes()).withRecordCount(file.recordCount()).build()
            none = java_array(self._gateway, iceberg.DeleteFile, [])
            tasks.add(
                iceberg.BaseFileScanTask(as_data, none, schema, iceberg.PartitionSpecParser.toJson(spec), all_rows)
            )
        return self._read(tasks, stack)

    def _read(self, tasks: Any, stack: ExitStack) -> DataFrame:
        frame = stack.enter_context(staged_tasks(self._session, self._table, tasks, str(uuid4())))
        # Tables of format 3 have two columns more here: Iceberg's row lineage.
        return frame.select(*self._columns)

    @property
    def _columns(self) -> list[str]:
        return [_quoted(str(field["name"])) for field in self._log.columns["fields"]]


class _Deleted(NamedTuple):
    """A data file as an earlier snapshot has it, and as a later one has it with other deletes."""

    old: _ScannedFile
    now: _ScannedFile


class _FileChanges(NamedTuple):
    """The files with rows that are there after a stretch, those with rows that were there before it, those from which
    deletes have taken rows, and deletes by key."""

    there: dict[str, _ScannedFile]
    gone: dict[str, _ScannedFile]
    trimmed: dict[str, _Deleted]
    key_deletes: dict[str, Any]


def _most_trimmed(files: Mapping[str, _Deleted]) -> int:
    """The rows that deletes can have taken at most: each position one, a delete by other columns all of a file."""
    by_position: dict[_Deletes, int] = {}
    most = 0
    for old, now in files.values():
        new = now.deletes.keys() - old.deletes.keys()
        if any(str(now.deletes[each].content()) == _EQUALITY_DELETES for each in new):
            most += now.rows
        else:
            by_position.update({each: int(now.deletes[each].recordCount()) for each in new})
    return most + sum(by_position.values())


def _deletes_at(deletes: Any) -> _Deletes:
    offset = deletes.contentOffset()
    return _Deletes(str(deletes.location()), "" if offset is None else str(offset))


def _stretches(log: TableLog, first: int, last: int) -> list[_Stretch]:
    """The way from one snapshot to another, cut at its compactions."""
    way: list[Snapshot] = []
    for snapshot in lineage(log, last):
        if snapshot.snapshot_id == first:
            break
        way.append(snapshot)
    else:
        return [_Stretch(first, last, is_linear=False)]
    found, start, end = [], first, first
    for snapshot in reversed(way):
        if snapshot.changes_rows:
            end = snapshot.snapshot_id
            continue
        if end != start:
            found.append(_Stretch(start, end, is_linear=True))
        start = end = snapshot.snapshot_id
    return [*found, _Stretch(start, end, is_linear=True)] if end != start else found


def _columns(log: TableLog, snapshot: Snapshot | None) -> Any:
    """The columns of a snapshot, or those of readers, by what a reader of the rows can notice."""
    if snapshot is None or snapshot.schema_id is None:
        return _without_docs(log.columns)
    return _without_docs(log.known_columns.get(snapshot.schema_id))


def _without_docs(columns: Any) -> Any:
    if isinstance(columns, Mapping):
        return {name: _without_docs(each) for name, each in columns.items() if name != "doc"}
    return [_without_docs(each) for each in columns] if isinstance(columns, list | tuple) else columns


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
