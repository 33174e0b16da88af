"""All that syncs need beside a connection: the state store, the tables, what is kept under the home folder."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStateStore
from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.docker.deployment import Deployment
from dagster_airbyte_proto.protocols.lookup import source_protocol
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.answer_cache import Offers
from dagster_airbyte_proto.sync.connector.launching import launcher_of
from dagster_airbyte_proto.sync.connector.queries import Connector
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.tables.folder.tables import FolderTables
from dagster_airbyte_proto.tables.formats import FORMATS, Abilities
from dagster_airbyte_proto.tables.parquet.tables import ParquetTables
from dagster_airbyte_proto.tables.writer import TableWriter

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.session import QueryResult, SparkSettings


class Engine:
    """One a process, for any number of syncs. What takes long to start (a Spark session) is started when it is first
    needed, or early and in the background by `warm`. Tables and a store that are given are their giver's to close.
    `deployment` is asked by what starts containers. A connector that is to stop has so long to do so by itself."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: StateStore | None = None,
        tables: TableWriter | None = None,
        deployment: Callable[[], Deployment] = Deployment,
        stop_grace_seconds: float = 5.0,
    ) -> None:
        self.settings = settings
        self._deployment = deployment
        self._stop_grace_seconds = stop_grace_seconds
        self.offers = Offers(settings.catalogs_folder)
        self._store = store
        self._given_tables = tables
        self._tables: Future[TableWriter] | None = None

    @property
    def store(self) -> StateStore:
        if self._store is None:
            self._store = SqlStateStore(self.settings.state_url)
        return self._store

    @property
    def tables(self) -> TableWriter:
        return self._given_tables or self.warm().result()

    @property
    def abilities(self) -> Abilities:
        """Those of its tables, known before they are open."""
        return self._given_tables.abilities if self._given_tables else FORMATS[self.settings.catalog.format]

    @property
    def tables_if_open(self) -> TableWriter | None:
        """The tables, where that takes no waiting."""
        if self._given_tables is not None:
            return self._given_tables
        opening = self.warm()
        return opening.result() if opening.done() and opening.exception() is None else None

    def warm(self) -> "Future[TableWriter]":
        """Starts what the tables need, beside whatever the caller does next."""
        if self._tables is None:
            self._tables = Future()
            # A session that is still starting must not keep the process from its end: hence a daemon, and no pool.
            threading.Thread(target=self._open_into, args=(self._tables,), name="tables", daemon=True).start()
        return self._tables

    def source(self, connection: Connection, log: RunLog, window: Mapping[str, str] | None = None) -> Source:
        """Its connector, whose stderr goes to the log, with templates filled from `window`. Raises ConfigError."""
        launcher = launcher_of(
            connection,
            self.settings.environments_folder,
            log,
            lambda: self.store,
            deployment=self._deployment,
            stop_grace_seconds=self._stop_grace_seconds,
        )
        connector = Connector(launcher, source_protocol(connection.connector.protocol))
        return Source(connection, connector, self.offers, log, window)

    def query(self, sql: str) -> "QueryResult":
        if self.settings.catalog.format == "folder":
            raise ConfigError(
                "querying the warehouse",
                "tables of the format folder are not read by Spark",
                remedy="Set catalog: {format: iceberg}, delta or parquet in the settings.",
            )
        from dagster_airbyte_proto.tables.delta.tables import DeltaTables
        from dagster_airbyte_proto.tables.parquet.session_catalog import register
        from dagster_airbyte_proto.tables.spark.session import query, start_session

        settings = self._spark_settings()
        session = start_session(settings)
        if settings.format == "parquet":
            register(session, ParquetTables(Path(settings.warehouse)))
        elif settings.format == "delta":
            DeltaTables(session, settings).register_all()
        return query(session, sql)

    def close(self) -> None:
        """Does not wait for tables that are still being opened: whoever waits for them gets CancelledError, and they
        are closed once they are open, unless the process ends before."""
        if self._tables is not None and not self._tables.cancel() and self._tables.exception() is None:
            self._tables.result().close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Only what works on tables waits for the import of Spark's modules: hence the imports inside.

    def _open_into(self, asked: "Future[TableWriter]") -> None:
        try:
            tables = self._open_tables()
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: raised again where they are waited for
            with suppress(InvalidStateError):
                asked.set_exception(error)
            return
        try:
            asked.set_result(tables)
        except InvalidStateError:  # the engine was closed meanwhile
            tables.close()

    def _open_tables(self) -> TableWriter:
        if self._given_tables is not None:
            return self._given_tables
        catalog = self.settings.catalog
        if catalog.format == "folder":
            return FolderTables(Path(catalog.warehouse))
        if catalog.format == "parquet":
            return ParquetTables(Path(catalog.warehouse), catalog=catalog.name)
        from dagster_airbyte_proto.tables.delta.tables import DeltaTables
        from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
        from dagster_airbyte_proto.tables.spark.session import start_session

        settings = self._spark_settings()
        in_session = DeltaTables if settings.format == "delta" else IcebergTables
        return in_session(start_session(settings), settings)

    def _spark_settings(self) -> "SparkSettings":
        from dagster_airbyte_proto.tables.spark.session import SparkSettings

        catalog = self.settings.catalog
        return SparkSettings(
            warehouse=catalog.warehouse,
            catalog=catalog.name,
            format=catalog.format,
            config=self.settings.spark,
            jvm_log=self.settings.logs_folder / "jvm.log",
            short_lived=True,
        )
