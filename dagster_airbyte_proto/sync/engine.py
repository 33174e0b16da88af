"""The engine: the state store, the tables and the home folder, which all syncs of a process share."""

import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.process import Launcher
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.answer_cache import AnswerCache
from dagster_airbyte_proto.sync.connector.configured_connector import ConfiguredConnector
from dagster_airbyte_proto.sync.connector.connector_config import connector_config
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.connector.launcher_choice import (
    ConnectorOptions,
    destination_protocol_of,
    launcher_for,
    source_protocol_of,
)
from dagster_airbyte_proto.sync.connector.queries import LaunchableConnector
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.tables.abilities import Abilities
from dagster_airbyte_proto.tables.formats import (
    Format,
    SupportsConnect,
    abilities_on,
    check_staging_on,
    check_works_on,
    find_format,
    register_tables,
    sql_name,
)
from dagster_airbyte_proto.tables.planner import PushPlanner, SupportsPlans, SupportsSession
from dagster_airbyte_proto.tables.remote_sessions import check_one_kind, is_remote, needs_jvm
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.tasks import SupportsTasks, TaskRunner
from dagster_airbyte_proto.tables.writer import TableWriter

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.session import QueryResult


class Engine:
    """Runs any number of syncs; a process makes one.

    Tables need a Spark session, which takes seconds to start. They are opened when they are first used, or earlier and
    in the background by `start_opening_tables`. The caller closes `store` and `tables` if it passes them, and the Spark
    `session` that it passes in the place of the tables.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        store: DeliveryStore | None = None,
        tables: TableWriter | None = None,
        session: Any = None,
        connector_options: ConnectorOptions = ConnectorOptions(),  # noqa: B008  # a tuple, and frozen
    ) -> None:
        self.settings = settings
        self._connector_options = connector_options
        self.answer_cache = connector_options.answer_cache or AnswerCache(settings.catalogs_folder)
        self._given_store = store
        self._own_store: SqlStore | None = None
        self._given_tables = tables
        self._given_session = session
        self._tables: Future[TableWriter] | None = None
        self._opening = threading.Lock()

    def check_session(self) -> None:
        """Raises ConfigError where the tables cannot be opened on the session that the settings name, or that was
        given. It starts nothing."""
        if self._given_tables is None:
            check_works_on(self._format, self.spark_settings)
            has_session = isinstance(self._format, SupportsConnect)
        else:
            has_session = isinstance(self._given_tables, SupportsSession)
        if has_session and self._given_session is None:
            check_one_kind("opening the tables", remote=self.abilities.is_remote)

    def check_staging(self) -> None:
        """Raises ConfigError where the settings show that no rows can be staged for the tables. It starts nothing."""
        if self._given_tables is None:
            check_staging_on(self._format, self.spark_settings)

    def check_has_jvm(self, doing: str, what: str) -> None:
        """Raises ConfigError where the session is one of Spark Connect. It starts nothing."""
        if self.abilities.is_remote or (self._given_tables is None and self.spark_settings.is_remote):
            raise needs_jvm(doing, what)

    @property
    def store(self) -> DeliveryStore:
        if self._given_store is not None:
            return self._given_store
        if self._own_store is None:
            self._own_store = SqlStore(self.settings.state_url)
        return self._own_store

    @property
    def tables(self) -> TableWriter:
        return self._given_tables or self.start_opening_tables().result()

    @property
    def abilities(self) -> Abilities:
        """The abilities of tables of the engine's format. Known before the tables are open."""
        return self._given_tables.abilities if self._given_tables else abilities_on(self._format, self.spark_settings)

    @property
    def tables_if_open(self) -> TableWriter | None:
        """The tables if they are open by now, else None. Does not wait."""
        if self._given_tables is not None:
            return self._given_tables
        opening = self._tables
        is_open = opening is not None and opening.done() and opening.exception() is None
        return opening.result() if opening is not None and is_open else None

    @property
    def has_started_opening(self) -> bool:
        """True if the tables are open or being opened."""
        return self._given_tables is not None or self._tables is not None

    def start_opening_tables(self) -> "Future[TableWriter]":
        """Starts opening the tables in the background, if that has not begun yet."""
        with self._opening:
            if self._tables is None:
                self._tables = Future()
                # A daemon thread and no pool: a session that is still starting must not keep the process from ending.
                threading.Thread(target=self._open_into, args=(self._tables,), name="tables", daemon=True).start()
            return self._tables

    def sql_name(self, name: TableName) -> str:
        """A table's name in SQL, as far as it is known before the tables are open."""
        return str(name) if self._given_tables is not None else sql_name(self._format, self.spark_settings, name)

    @property
    def tables_place(self) -> str:
        """The format, catalog and warehouse of the tables. Two engines with the same text have the same tables."""
        catalog = self.settings.catalog
        return f"{self.abilities.format} {catalog.name} {catalog.warehouse}"

    def with_tables(self, tables: TableWriter) -> "Engine":
        """Returns an engine with the same store and settings, and other tables."""
        return Engine(
            self.settings,
            store=self.store,
            tables=tables,
            connector_options=self._connector_options._replace(answer_cache=self.answer_cache),
        )

    def source(self, connection: Connection, log: RunLog, window: Mapping[str, str] | None = None) -> Source:
        """The connection's connector. Its stderr goes to the log; `window` fills the templates of its config. Raises
        ConfigError."""
        if connection.push is not None:
            raise ConfigError(
                f"reading connection {connection.name}",
                "its connector is the destination of a push",
                remedy=f"Run `airbyte-proto push {connection.origin or connection.name}`.",
            )
        connector = LaunchableConnector(self._launcher(connection, log), source_protocol_of(connection))
        config = connector_config(connection, os.environ, window)
        return Source(connection, config, connector, self.answer_cache, log)

    def destination(self, connection: Connection, log: RunLog) -> Destination:
        """The connection's connector, as the destination of a push. Raises ConfigError."""
        protocol = destination_protocol_of(connection)
        connector = LaunchableConnector(self._launcher(connection, log), protocol)
        return ConfiguredConnector(
            connection, connector_config(connection, os.environ, {}), connector, self.answer_cache, log
        )

    def _launcher(self, connection: Connection, log: RunLog) -> Launcher:
        return launcher_for(
            connection,
            self.settings.environments_folder,
            log,
            lambda: self.store,
            self._connector_options._replace(hidden_files=self.hidden_files()),
        )

    def hidden_files(self) -> tuple[Path, ...]:
        """The files that no connector may see: of the state store that is used, of the one that the settings name (it
        may be another), of settings with secrets, and those that were given."""
        stores: list[object] = [self._given_store]
        with suppress(ConfigError):  # Whoever opens it learns what is wrong with its URL.
            stores.append(SqlStore(self.settings.state_url))
        own = (store.file for store in stores if isinstance(store, SqlStore))
        named = (*own, self.settings.secret_file)
        return (*self._connector_options.hidden_files, *(file for file in named if file is not None))

    def query(self, sql: str) -> "QueryResult":
        """Runs SQL on the warehouse by Spark. Raises ConfigError for a format that Spark does not read."""
        from dagster_airbyte_proto.tables.spark.session import query

        return query(self.open_session(), sql)

    def query_rows(self, sql: str) -> Iterator[list[Any]]:
        """Runs SQL as `query` does, and returns its rows one by one: they need not fit into memory."""
        from dagster_airbyte_proto.tables.spark.session import query_rows

        return query_rows(self.open_session(), sql)

    @property
    def planner(self) -> PushPlanner:
        """Plans the pushes of the engine's tables."""
        if isinstance(self.tables, SupportsPlans):
            return self.tables.planner()
        from dagster_airbyte_proto.tables.changes.push_plan import SparkPlanner

        return SparkPlanner(self.open_session())

    @property
    def tasks(self) -> TaskRunner:
        """Runs tasks on the executors of the engine's Spark session."""
        if isinstance(self.tables, SupportsTasks):
            return self.tables.tasks()
        from dagster_airbyte_proto.tables.spark.tasks import SparkTasks

        return SparkTasks(self.open_session())

    def open_session(self) -> Any:
        """The Spark session, which knows the tables of the warehouse by name, as they are now."""
        if isinstance(self._given_tables, SupportsSession):
            given = self._given_tables.open_session()
            register_tables(self._given_tables, given)
            return given
        from dagster_airbyte_proto.tables.spark.session import start_session

        self.check_session()
        settings = self.spark_settings
        if settings.is_remote and isinstance(self.tables, SupportsSession):
            session = self.tables.open_session()
            register_tables(self.tables, session)
            return session
        session = self._given_session or start_session(settings)
        self._format.register(self._format.open_tables(settings, lambda: session), session)
        return session

    @property
    def spark_settings(self) -> SparkSettings:
        """The settings of the tables and of their Spark session."""
        catalog = self.settings.catalog
        return SparkSettings(
            warehouse=catalog.warehouse,
            catalog=catalog.name,
            format=catalog.format,
            config=self.settings.spark,
            jvm_log=self.settings.logs_folder / "jvm.log",
            short_lived=True,
            on_connect=self._given_session is not None and is_remote(self._given_session),
        )

    def close(self) -> None:
        """Closes the tables and the store that the engine opened.

        Does not wait for tables that are still being opened: callers that wait for them get CancelledError, and the
        tables are closed once they are open, unless the process ends before.
        """
        if self._tables is not None and not self._tables.cancel() and self._tables.exception() is None:
            self._tables.result().close()
        if self._own_store is not None:
            self._own_store.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Importing Spark's modules takes a second, so they are imported inside the functions that need them.

    def _open_into(self, opening: "Future[TableWriter]") -> None:
        try:
            tables = self._open_tables()
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: raised again where they are waited for
            with suppress(InvalidStateError):
                opening.set_exception(error)
            return
        try:
            opening.set_result(tables)
        except InvalidStateError:  # the engine was closed meanwhile
            tables.close()

    def _open_tables(self) -> TableWriter:
        if self._given_tables is not None:
            return self._given_tables
        given = self._given_session
        tables: TableWriter = self._format.open_tables(self.spark_settings, (lambda: given) if given else None)
        return tables

    @property
    def _format(self) -> Format[Any]:
        return find_format(self.settings.catalog.format)
