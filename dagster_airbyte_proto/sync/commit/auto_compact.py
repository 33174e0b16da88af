"""Compacts the tables that have become slow to read, at the end of a sync or push.

- The lease has been released by then, and all rows and states are committed: the next run need not wait.
- A table that refuses gives a warning. The run has succeeded all the same.
- Snapshots are not expired here: only a schedule or a person does that (`maintenance/care.py`).
"""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from typing import NamedTuple

from dagster_airbyte_proto.errors import CommitUnknown, ProtoError
from dagster_airbyte_proto.loads.load import TableTotals
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import CompactAfter
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.tables.care import CompactionResult
from dagster_airbyte_proto.tables.formats import care_of

# As in Iceberg's own compaction (`delete-ratio-threshold`).
_DELETED_SHARE = 0.3
_FULL_FILE_BYTES = 128 << 20
_POLL_SECONDS = 0.2


class DueTable(NamedTuple):
    """A table to compact. It `keeps_deletes` if it is due for its small files alone.

    A table of more than a hundred small partitions is due after each load. If the deletes were applied each time, every
    file from which an upsert took a row would be written again after each load.
    """

    name: TableName
    keeps_deletes: bool


class AutoCompactResult(NamedTuple):
    """The tables that were compacted, and warnings about those that could not be."""

    compacted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def auto_compact(engine: Engine, due: Iterable[DueTable], log: RunLog, cancel: threading.Event) -> AutoCompactResult:
    """Compacts these tables, one after the other.

    Once `cancel` is set, no compaction starts and a running one is not waited for. If the process ends before it
    commits, no reader sees its files, and they are removed later as orphans.
    """
    compacted: list[str] = []
    warnings: list[str] = []
    for table in due:
        name = table.name
        try:
            done = None if cancel.is_set() else _wait_for(_start(engine, table), cancel)
        except ProtoError as error:
            is_unknown = isinstance(error, CommitUnknown)
            what = "may have been compacted or not" if is_unknown else "could not be compacted"
            warnings.append(f"table {name} {what}, and has the same rows: {error}")
            continue
        if done is None:
            break
        if done.rewritten_files or done.removed_delete_files:
            log.write("NOTE", f"table {name} was compacted: {done.rewritten_files} files into {done.written_files}")
            compacted.append(str(name))
    return AutoCompactResult(tuple(compacted), tuple(warnings))


def due_table(name: TableName, totals: TableTotals, after: CompactAfter, *, has_slices: bool) -> DueTable | None:
    """Returns the table if a reader of it has to open too many files, or to read too many rows that are deleted.

    Small files of slices do not count: each slice is replaced whole, so they do not pile up.
    """
    has_deletes = totals.delete_files >= after.delete_files or totals.deleted_share >= _DELETED_SHARE
    small_files = totals.data_files - totals.size_bytes // _FULL_FILE_BYTES
    has_small_files = bool(after.small_files) and not has_slices and small_files >= after.small_files
    if has_small_files or (after.delete_files and has_deletes):
        return DueTable(name, keeps_deletes=not has_deletes)
    return None


def tables_due(runs: Iterable[StreamRun], after: CompactAfter) -> Sequence[DueTable]:
    """Returns the tables that a sync has written to, and that are due."""
    found = (
        due_table(run.planned.table, last.totals, after, has_slices=run.planned.slice is not None)
        for run in runs
        if (last := run.outcome.last_commit) is not None and last.totals is not None
    )
    return [each for each in found if each is not None]


def _start(engine: Engine, table: DueTable) -> "Future[CompactionResult]":
    """Starts the compaction in a daemon thread, so that the process can end before it does."""
    future: Future[CompactionResult] = Future()

    def compact() -> None:
        try:
            future.set_result(care_of(engine.tables).compact(table.name, keeps_deletes=table.keeps_deletes))
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: raised again where it is waited for
            future.set_exception(error)

    threading.Thread(target=compact, name="compact", daemon=True).start()
    return future


def _wait_for(future: "Future[CompactionResult]", cancel: threading.Event) -> CompactionResult | None:
    while not wait([future], _POLL_SECONDS).done:
        if cancel.is_set():
            return None
    return future.result()
