"""What a sync does for its tables once it is over: those that have grown slow to read are compacted.

No lease is held by then, and all rows and states are where they belong: the next sync need not wait, and a table that
refuses is a warning. Snapshots are let go of by a schedule or by hand alone (`care.py`).
"""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from typing import NamedTuple

from dagster_airbyte_proto.loads.load import TableTotals
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import CompactAfter
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.maintenance.care import Cared, CareTerms, care_of, cared
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.stream_run import StreamRun

_COMPACTING = CareTerms(keep_seconds=None)
_FULL_FILE_BYTES = 128 << 20
_LOOK_SECONDS = 0.2


class Upkeep(NamedTuple):
    """The tables that were compacted, and what went wrong with others."""

    compacted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def kept_up(engine: Engine, runs: Iterable[StreamRun], log: RunLog, cancel: threading.Event) -> Upkeep:
    """Compacts, one after the other, the tables that the sync wrote to and that are due.

    Once `cancel` is set nothing is begun, and what is at work is not waited for: what it has not committed is nobody's.
    """
    compacted: list[str] = []
    warnings: list[str] = []
    for name in _due(runs, engine.settings.compact_after):
        done = None if cancel.is_set() else _finished(_begun(engine, name), cancel)
        if done is None:
            break
        if done.error is not None:
            warnings.append(f"table {name} could not be compacted, and is as it was: {done.error}")
        elif done.compacted is not None and (done.compacted.rewritten_files or done.compacted.removed_delete_files):
            files, into = done.compacted.rewritten_files, done.compacted.written_files
            log.write("NOTE", f"table {name} was compacted: {files} files into {into}")
            compacted.append(str(name))
    return Upkeep(tuple(compacted), tuple(warnings))


def is_due(totals: TableTotals, after: CompactAfter, *, has_slices: bool) -> bool:
    """Whether a reader of the table opens too many files. Those of slices do not pile up: each is replaced whole."""
    if after.delete_files and totals.delete_files >= after.delete_files:
        return True
    small_files = totals.data_files - totals.size_bytes // _FULL_FILE_BYTES
    return bool(after.small_files) and not has_slices and small_files >= after.small_files


def _due(runs: Iterable[StreamRun], after: CompactAfter) -> Sequence[TableName]:
    return [
        run.planned.table
        for run in runs
        if run.landed is not None
        and run.landed.totals is not None
        and is_due(run.landed.totals, after, has_slices=run.planned.slice is not None)
    ]


def _begun(engine: Engine, name: TableName) -> "Future[Cared]":
    """In a thread that need not end before the process does."""
    asked: Future[Cared] = Future()

    def compact() -> None:
        try:
            asked.set_result(cared(engine.store, care_of(engine.tables), name, _COMPACTING))
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: raised again where it is waited for
            asked.set_exception(error)

    threading.Thread(target=compact, name="compact", daemon=True).start()
    return asked


def _finished(at_work: "Future[Cared]", cancel: threading.Event) -> Cared | None:
    while not wait([at_work], _LOOK_SECONDS).done:
        if cancel.is_set():
            return None
    return at_work.result()
