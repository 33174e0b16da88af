"""Prepares the tables of one sync, in threads, while the connector starts and is read."""

import errno
import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import Cancelled, InternalError, ProtoError, StagingError, TableError
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget, Witness, spec_digest
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.staging.faults import stream_fault
from dagster_airbyte_proto.staging.files.staging_folder import (
    StagingFolder,
    check_folder,
    run_staging_folder,
    staging_id,
)
from dagster_airbyte_proto.sync.commit.table_witness import LoadsReadOnce, Remembered, check_witness
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.tables.writer import SupportsBranches

_TABLES_AT_ONCE = 4
_POLL_SECONDS = 0.2
_CANCELLED_WAIT_SECONDS = 3.0
_OF_ONE_TABLE = (TableError, Cancelled, InternalError)
_OF_ONE_FOLDER = frozenset((errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EPERM))
"""Errors of a folder that say nothing of others. A disk that is full, broken or read-only has many tables."""


class TargetTables:
    """The target tables of one sync, for the reading thread.

    A table that refuses, or on which our own code fails, fails only its own stream, and so does one in whose folder no
    file can be staged. Rows of that stream go to the discard folder, a local folder that is no table's, so that the
    reading goes on for the others.

    Tables of the streams in `remembered` are held against what the store remembers of them (`table_witness.py`).

    A sync that is cancelled while tables are being prepared waits only a few seconds more: a Spark session takes long
    to start and cannot be interrupted. Rows without a table have not landed, and the connector sends them again.
    """

    def __init__(
        self,
        engine: Engine,
        specs: Mapping[StreamId, TableSpec],
        lease: Lease,
        cancel: threading.Event,
        remembered: Mapping[StreamId, Remembered],
    ) -> None:
        self._engine = engine
        self._specs = dict(specs)
        self._store, self._lease = engine.store, lease
        self._loads = LoadsReadOnce(engine.store)
        self._cancel = cancel
        self._remembered = remembered
        self._place = engine.tables_place
        self._ready_before: dict[StreamId, str] = {}
        self._is_started = False
        self._due: dict[StreamId, None] = {}
        self._has_stopped_waiting = False
        self._is_closed = False
        self._pool = ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="prepare")
        self._prepared: dict[StreamId, Future[TableTarget]] = {}
        self._table_ids: dict[StreamId, str] = {}
        self.folders: list[str] = []

    def support_branches(self) -> bool:
        """True once the tables are open and can hold rows on a branch."""
        return isinstance(self._engine.tables_if_open, SupportsBranches)

    def digests(self) -> Mapping[StreamId, str]:
        """A digest of each stream's spec."""
        return {stream: spec_digest(spec, self._place) for stream, spec in self._specs.items()}

    def note_ready(self, streams: Iterable[StreamId]) -> None:
        """Records that an earlier sync prepared the tables of these streams: they are opened only when rows come."""
        self._ready_before = {stream: spec_digest(self._specs[stream], self._place) for stream in streams}

    def has_to_be_made(self, stream: StreamId) -> bool:
        """True when the stream's table has to be prepared even if no row comes."""
        return self._ready_before.get(stream) != spec_digest(self._specs[stream], self._place)

    def expect(self, streams: Iterable[StreamId]) -> None:
        """Has the tables of these streams prepared as soon as `start` is called."""
        self._due.update(dict.fromkeys(streams))
        if self._is_started:
            for stream in self._due:
                self._ensure_submitted(stream)

    def start(self) -> None:
        """Starts to prepare the expected tables, and from now on each as soon as it is expected."""
        if not self._is_started:
            self._is_started = True
            self.expect(())

    def prepare(self, stream: StreamId, spec: TableSpec) -> None:
        """Replaces the spec of a stream's table and prepares the table by it. Waits for a running preparation first."""
        if stream in self._prepared:
            self._wait([self._prepared[stream]])
        self._specs[stream] = spec
        if self._is_started or stream in self._prepared:
            self._submit(stream)
        else:
            self._due[stream] = None

    def target(self, run: StreamRun) -> TableTarget:
        """Waits for the stream's table and returns it, or the discard folder where the table refuses.

        Records the staging folder in the store before it is used, so that the next run finds it after a crash.
        """
        stream = run.planned.id
        try:
            target = self._wait_for_target(stream)
            run.table.set_target(target, spec_digest(self._specs[stream], self._place))
            self._check_folder(stream, target)
        except _OF_ONE_TABLE as error:
            run.fail_table(error)
            spec = self._specs[stream]
            target = TableTarget(spec.name, spec.schema, str(self._engine.settings.staging_folder), str(spec.name))
            self._note_folder(target)
        return target

    def _note_folder(self, target: TableTarget) -> str:
        folder = run_staging_folder(target, staging_id(self._lease.run_id, self._lease.fence))
        self._store.note_folders(self._lease, [folder])
        self.folders.append(folder)
        reach("run.folders_noted")
        return folder

    def _check_folder(self, stream: StreamId, target: TableTarget) -> None:
        """Notes the staging folder of the table. Raises TableError where it cannot be made, and others may."""
        folder = self._note_folder(target)
        try:
            check_folder(StagingFolder.at(folder, target.storage))
        except StagingError as error:
            if getattr(error.__cause__, "errno", None) not in _OF_ONE_FOLDER:
                raise
            raise TableError(error.doing, error.found, remedy=error.remedy, stream=str(stream)) from error

    def wait_for_tables(self, runs: Iterable[StreamRun]) -> None:
        """Waits for the tables of these streams. Those of streams without rows must exist, or have failed, at the end
        too."""
        waited = list(runs)
        for run in waited:
            self._ensure_submitted(run.planned.id)
        for run in waited:
            try:
                stream = run.planned.id
                run.table.set_target(self._wait_for_target(stream), spec_digest(self._specs[stream], self._place))
            except _OF_ONE_TABLE as error:
                run.fail_table(error)

    def close(self) -> None:
        """Starts no further preparation, and waits for the running ones."""
        self._is_closed = True
        self._wait([prepared for prepared in self._prepared.values() if not prepared.cancel()])
        self._pool.shutdown(wait=False)

    def _ensure_submitted(self, stream: StreamId) -> None:
        if stream not in self._prepared:
            self._submit(stream)

    def _submit(self, stream: StreamId) -> None:
        self._prepared[stream] = self._pool.submit(self._prepare, stream, self._specs[stream])

    def _wait_for_target(self, stream: StreamId) -> TableTarget:
        self._ensure_submitted(stream)
        prepared = self._prepared[stream]
        self._wait([prepared])
        if not prepared.done():
            raise Cancelled("waiting for its table", "the sync was cancelled before it was ready", stream=str(stream))
        return prepared.result()

    def _wait(self, prepared: Collection[Future[TableTarget]]) -> None:
        """Waits for all of these. Returns earlier only when the sync was cancelled."""
        while not (self._has_stopped_waiting or all(each.done() for each in prepared)):
            was_cancelled = self._cancel.is_set()
            left = wait(prepared, _CANCELLED_WAIT_SECONDS if was_cancelled else _POLL_SECONDS).not_done
            self._has_stopped_waiting = was_cancelled and bool(left)

    def _checked_witness(self, stream: StreamId, spec: TableSpec) -> Witness | None:
        witness = self._engine.tables.witness(spec.name, self._lease.connection)
        check_witness(self._loads, self._lease, stream, witness, self._remembered[stream])
        return witness

    def _check_is_still(self, table_id: str, stream: StreamId, spec: TableSpec) -> None:
        """Raises TableError unless the table of this id, which this run has prepared before, is there."""
        witness = self._engine.tables.witness(spec.name, self._lease.connection)
        if witness is None or witness.table_id != table_id:
            found = "it was dropped, or made again, since this run prepared it: rows of the run may have been in it"
            raise TableError(f"preparing table {spec.name} once more", found, remedy="Sync again.", stream=str(stream))

    def _prepare(self, stream: StreamId, spec: TableSpec) -> TableTarget:
        """Prepares a table. An exception that nobody foresaw is an InternalError of this stream alone."""
        try:
            return self._checked_target(stream, spec)
        except (ProtoError, MemoryError):
            raise
        except Exception as error:
            raise stream_fault(str(stream), error, "preparing its table", "none of its rows were written") from error

    def _checked_target(self, stream: StreamId, spec: TableSpec) -> TableTarget:
        tables = self._engine.tables
        if self._is_closed:
            raise TableError(f"preparing table {spec.name}", "the sync is over")
        if used := self._table_ids.get(stream):
            # Rows of this run may have landed in it, of which the store remembered nothing when the run began.
            self._check_is_still(used, stream, spec)
        if stream not in self._remembered:
            target = tables.prepare(spec)
        else:
            # Before it is prepared: a table that somebody dropped is not made again, for readers to find no rows in it.
            witness = self._checked_witness(stream, spec)
            target = tables.prepare(spec)
            if witness is None or witness.table_id != target.table_id:
                self._checked_witness(stream, spec)
        self._table_ids[stream] = target.table_id
        reach("table.prepared")
        return target
