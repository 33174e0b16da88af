"""Connections whose tables are on a Spark Connect server, which goes on with the request of a client that is killed."""

import random
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, cast
from uuid import uuid4

import yaml
from pyspark.sql import DataFrame, SparkSession

from tests.soak.kill_methods import RunningSync
from tests.support.connect_server import running_server
from tests.support.network.ports import free_port
from tests.sync.crashes.spark_connections import DeltaConnection, IcebergConnection

_BRANCH_OF_A_MERGE = "airbyte_merge_"
# The server writes files of its own.
_STAGED_FILES_OF_TABLES: set[str] = set()


class KilledServer:
    """A Connect server that is killed, and started again on its port with the same catalog and warehouse."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self._running = ExitStack()
        self._reader: Any = None

    def __enter__(self) -> "KilledServer":
        self._folder.mkdir(parents=True)
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def server(self, running: RunningSync, chance: random.Random) -> None:  # noqa: ARG002 - as each kill method has it
        """Kills the server, and starts another one in its place. The sync finds its session gone."""
        self._stop()
        self._start()

    @property
    def session(self) -> SparkSession:
        """A session of the soak's own."""
        # Only here: its packages are an extra.
        from pyspark.sql.connect.session import SparkSession as RemoteSession

        self._reader = self._reader or RemoteSession.builder.remote(self.url).create()
        return cast(SparkSession, self._reader)  # one has no class of the other

    def _start(self) -> None:
        started = self._running.enter_context(running_server(self._folder, port=self._port))
        self.url, self.warehouse = started.url, started.warehouse

    def _stop(self) -> None:
        if self._reader is not None:  # Else Python does it at its end, and waits for a server that is gone.
            self._reader.client.close()
            self._reader = None
        self._running.close()


class RemoteConnection(IcebergConnection):
    """A connection with Iceberg tables on a server, in a namespace of their own."""

    def __init__(self, folder: Path, server: KilledServer) -> None:
        super().__init__(folder, server.session, kills_compactions=True)
        self._server = server
        self._namespace = _use_server(self, server)
        self.warehouse = server.warehouse / self._namespace

    def landed(self, stream: str) -> list[str]:
        """The loads in the history of what readers see: a MERGE that was killed may have left its snapshot on a branch
        of its own."""
        history, snapshots = self._read(stream, "#history"), self._read(stream, "#snapshots")
        if history is None or snapshots is None:
            return []
        shown = history.where("is_current_ancestor").join(snapshots, "snapshot_id")
        found = shown.selectExpr("summary['airbyte-proto.load-id'] as load_id").toArrow()
        return [load_id for load_id in found.column("load_id").to_pylist() if load_id]

    def branches(self) -> list[str]:
        """Leaves out those of killed MERGEs, which are dropped a day later."""
        return [name for name in super().branches() if not name.startswith(_BRANCH_OF_A_MERGE)]

    def _in_snapshots(self) -> set[str]:
        return _STAGED_FILES_OF_TABLES

    def _read(self, stream: str, part: str = "") -> DataFrame | None:
        session, table = self._server.session, f"lake.{self._namespace}.{stream}"
        if not session.catalog.tableExists(table):
            return None
        session.catalog.refreshTable(table)
        return session.table(table + part.replace("#", "."))


class RemoteDeltaConnection(DeltaConnection):
    """A connection with Delta tables on a server, in a namespace of their own."""

    def __init__(self, folder: Path, server: KilledServer) -> None:
        super().__init__(folder, server.session)
        self._server = server
        self._namespace = _use_server(self, server)
        self.warehouse = server.warehouse / self._namespace

    @property
    def _namespace_folder(self) -> Path:
        return self.warehouse

    def _in_snapshots(self) -> set[str]:
        return _STAGED_FILES_OF_TABLES

    def _read(self, stream: str, part: str = "") -> DataFrame | None:
        self._session = self._server.session
        return super()._read(stream, part)


def _use_server(connection: IcebergConnection, server: KilledServer) -> str:
    """Has the connection write the server's tables, and returns the namespace that it gets."""
    namespace = f"shop_{uuid4().hex[:8]}"
    connection.more = {"destination": {"namespace": namespace}}
    catalog = {"format": connection.format, "warehouse": str(server.warehouse)}
    settings = {"lease_seconds": 1, "spark": {"spark.remote": server.url}, "catalog": catalog}
    connection.settings_file.write_text(yaml.safe_dump(settings))
    return namespace
