"""An engine whose store, tables, files and connectors fail as planned, and the end of the lease of a run that died."""

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.launchers.process import Launcher
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.tables.writer import TableWriter
from dagster_airbyte_proto.testing.faults import CallFaults, with_faults


class FaultyEngine(Engine):
    """The engine. The tables of a relay are its destination, whose connector fails. It leaves no connector running: one
    that died in this process could stop none."""

    def __init__(
        self, settings: Settings, faults: CallFaults, tables: TableWriter | None = None, grace_seconds: float = 0.2
    ) -> None:
        self._sql, self._faults = SqlStore(settings.state_url), faults
        faulty = with_faults(tables, faults) if tables is not None else None
        store = with_faults(self._sql, faults)
        options = ConnectorOptions(stop_grace_seconds=grace_seconds)
        super().__init__(settings, store=store, tables=faulty, connector_options=options)

    def close(self) -> None:
        super().close()
        for each in self._faults.launched:
            each.stop()
        self._sql.close()

    def _launcher(self, connection: Connection, log: RunLog) -> Launcher:
        return with_faults(super()._launcher(connection, log), self._faults)


def end_lease(settings: Settings, connection: str) -> None:
    """Ends the lease of a run that died in this process, which is alive, or that sleeps past it."""
    store = SqlStore(settings.state_url)
    for lease in store.current_leases(connection):
        store.release(lease)
    store.close()
