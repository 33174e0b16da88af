"""The tables of one sync, made ready while the connector starts."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.staging.area import run_folder
from dagster_airbyte_proto.sync.streams import StreamRun
from dagster_airbyte_proto.tables.writer import TableSpec, TableTarget, TableWriter

_TABLES_AT_ONCE = 4


class Targets:
    """Asked by the reading thread. A table that refuses fails its stream alone: what was read of it meanwhile goes to
    a blind folder beside the tables, so that the reading need not stop."""

    def __init__(
        self, tables: Callable[[], TableWriter], specs: Mapping[StreamId, TableSpec], store: StateStore, lease: Lease
    ) -> None:
        self._tables = tables
        self._specs = specs
        self._store = store
        self._lease = lease
        self._pool = ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="prepare")
        self._prepared: dict[StreamId, Future[TableTarget]] = {}
        self.folders: list[str] = []

    def prepare_all(self) -> None:
        self._prepared = {stream: self._pool.submit(self._prepare, spec) for stream, spec in self._specs.items()}

    def target(self, run: StreamRun, blind_folder: Path) -> TableTarget:
        """Waits for the table. Its folder is written down before it is given away, so that a crash leaves no orphan."""
        stream = run.planned.id
        try:
            target = self._prepared[stream].result()
        except TableError as error:
            run.refuse_all(error)
            spec = self._specs[stream]
            target = TableTarget(spec.name, spec.schema, str(blind_folder), str(spec.name))
        folder = run_folder(target, self._lease.run_id)
        self._store.note_folders(self._lease, [folder])
        self.folders.append(folder)
        reach("run.folders_noted")
        run.table = target.qualified
        return target

    def settle(self, runs: Iterable[StreamRun]) -> None:
        """Waits for the tables of streams that sent nothing: they too must stand, or have failed, at the end."""
        for run in runs:
            try:
                run.table = self._prepared[run.planned.id].result().qualified
            except TableError as error:
                run.refuse_all(error)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _prepare(self, spec: TableSpec) -> TableTarget:
        target = self._tables().prepare(spec)
        reach("table.prepared")
        return target
