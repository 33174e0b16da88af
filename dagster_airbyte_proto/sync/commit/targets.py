"""The tables of one sync, made ready while the connector starts."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from dagster_airbyte_proto.checkpoints.store import Lease, OpenGeneration, StateStore
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, TableSpec, TableTarget
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.schema.evolution import Terms
from dagster_airbyte_proto.staging.files.area import run_folder
from dagster_airbyte_proto.sync.plan.stream_plan import lands_aside
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.tables.writer import TableWriter

_TABLES_AT_ONCE = 4
_LOOK_SECONDS = 0.2
_LAST_WAIT_SECONDS = 3.0


class Targets:
    """Asked by the reading thread. A table that refuses fails its stream alone: what was read of it meanwhile goes to
    a blind folder beside the tables, so that the reading need not stop.

    A sync that is cancelled while its tables are still made ready (a session takes seconds to start, and no signal
    hastens it) waits for them a moment more. Nothing of it has landed then, and the connector sends it again.
    """

    def __init__(
        self,
        tables: Callable[[], TableWriter],
        specs: Mapping[StreamId, TableSpec],
        holder: tuple[StateStore, Lease],
        cancel: threading.Event,
    ) -> None:
        self._tables = tables
        self._specs = dict(specs)
        self._store, self._lease = holder
        self._cancel = cancel
        self._has_given_up = False
        self._is_closed = False
        self._pool = ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="prepare")
        self._prepared: dict[StreamId, Future[TableTarget]] = {}
        self.folders: list[str] = []

    def prepare_all(self) -> None:
        for stream in self._specs:
            self._begin(stream)

    def prepare(self, stream: StreamId, spec: TableSpec) -> None:
        """Has a table made ready by this from now on. Where it is being made ready by something else, that comes
        first."""
        if stream in self._prepared:
            self._wait([self._prepared[stream]])
        self._specs[stream] = spec
        self._prepared[stream] = self._pool.submit(self._prepare, spec)

    def target(self, run: StreamRun, blind_folder: Path) -> TableTarget:
        """Waits for the table. Its folder is written down before it is given away, so that a crash leaves no orphan."""
        stream = run.planned.id
        try:
            target = self._ready(stream)
            run.place(target)
        except TableError as error:
            run.refuse_all(error)
            spec = self._specs[stream]
            target = TableTarget(spec.name, spec.schema, str(blind_folder), str(spec.name))
        folder = run_folder(target, self._lease.run_id)
        self._store.note_folders(self._lease, [folder])
        self.folders.append(folder)
        reach("run.folders_noted")
        return target

    def settle(self, runs: Iterable[StreamRun]) -> None:
        """Waits for the tables of streams that sent nothing: they too must stand, or have failed, at the end."""
        waited = list(runs)
        for run in waited:
            self._begin(run.planned.id)
        for run in waited:
            try:
                run.place(self._ready(run.planned.id))
            except TableError as error:
                run.refuse_all(error)

    def close(self) -> None:
        """Begins no table any more, and waits for those at work."""
        self._is_closed = True
        self._wait([prepared for prepared in self._prepared.values() if not prepared.cancel()])
        self._pool.shutdown(wait=False)

    def _begin(self, stream: StreamId) -> None:
        if stream not in self._prepared:
            self.prepare(stream, self._specs[stream])

    def _ready(self, stream: StreamId) -> TableTarget:
        self._begin(stream)
        prepared = self._prepared[stream]
        self._wait([prepared])
        if not prepared.done():
            raise TableError("waiting for its table", "the sync was cancelled before it was ready", stream=str(stream))
        return prepared.result()

    def _wait(self, prepared: Collection[Future[TableTarget]]) -> None:
        """Comes back with some of them not done only where the sync is cancelled."""
        while not (self._has_given_up or all(each.done() for each in prepared)):
            was_cancelled = self._cancel.is_set()
            left = wait(prepared, _LAST_WAIT_SECONDS if was_cancelled else _LOOK_SECONDS).not_done
            self._has_given_up = was_cancelled and bool(left)

    def _prepare(self, spec: TableSpec) -> TableTarget:
        tables = self._tables()
        if self._is_closed:
            raise TableError(f"preparing table {spec.name}", "the sync is over")
        target = tables.prepare(spec)
        reach("table.prepared")
        return target


def table_spec(
    planned: PlannedStream, columns: Columns, terms: Terms, begun: OpenGeneration | None = None
) -> TableSpec:
    """The table as the stream needs it, whose generation may have been `begun` by an earlier run."""
    slice_column = None if planned.slice is None else SLICE_COLUMN
    return TableSpec(
        planned.table,
        columns.schema,
        columns.keys,
        slice_column=slice_column,
        terms=terms,
        partitioning=columns.partitioning,
        ordering=columns.ordering,
        replaces=lands_aside(planned),
        begun=begun.branch if begun else None,
    )
