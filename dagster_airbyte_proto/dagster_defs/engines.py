"""Makes the settings, state store, tables and engine of a step from its Dagster resources."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, get_args, runtime_checkable

from dagster_airbyte_proto.checkpoints.sql import sql_store
from dagster_airbyte_proto.connection.connection import RunOn
from dagster_airbyte_proto.connection.document import Document
from dagster_airbyte_proto.connection.validation import validated
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.docker.deployment import Deployment
from dagster_airbyte_proto.project_folder import home_folder
from dagster_airbyte_proto.settings import Settings, SettingsFile
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.tables.writer import TableWriter


class _StateStoreResource(Protocol):
    def open(self) -> sql_store.SqlStore: ...


class ConnectorSettings(Protocol):
    """The fields that are read from a connector resource. Without `state`, state is kept in the home folder; a `home`
    of "" is the default one."""

    @property
    def state(self) -> _StateStoreResource | None: ...

    @property
    def home(self) -> str: ...

    @property
    def lease_seconds(self) -> float: ...

    @property
    def lease_wait_seconds(self) -> float: ...

    @property
    def compact_after_delete_files(self) -> int: ...

    @property
    def compact_after_small_files(self) -> int: ...

    @property
    def keep_history_days(self) -> float: ...

    @property
    def run_on(self) -> str: ...


@runtime_checkable
class TableIOManager(Protocol):
    """An IO manager that syncs commit through."""

    def tables(self, labels: Mapping[str, str]) -> TableWriter:
        """Returns the tables. The labels, which name the writer, go into the tables' own logs. Called by the sync's
        thread."""
        ...


def engine_settings(connector: ConnectorSettings) -> Settings:
    """The settings of the resource's home folder, overridden by its own fields. Raises ConfigError for values that a
    settings file may not have either."""
    doing = "reading the config of ConnectorResource"
    if connector.run_on not in get_args(RunOn):
        raise ConfigError(doing, f"run_on is {connector.run_on!r}", remedy=f"Set it to {' or '.join(get_args(RunOn))}.")
    compact_after = {
        "delete_files": connector.compact_after_delete_files,
        "small_files": connector.compact_after_small_files,
    }
    own_fields = {
        "lease_seconds": connector.lease_seconds,
        "compact_after": compact_after,
        "keep_history_days": connector.keep_history_days,
        "run_on": connector.run_on,
    }
    home = home_folder(connector.home)
    own = validated(SettingsFile, Document("config of ConnectorResource", own_fields, {}), folder=home)
    return Settings.load(home).model_copy(update={name: getattr(own, name) for name in own_fields})


@contextmanager
def opened_store(connector: ConnectorSettings) -> Iterator[sql_store.SqlStore]:
    """Opens the resource's state store, by default that of its home folder."""
    settings = engine_settings(connector)
    settings.make_home()
    store = connector.state.open() if connector.state else sql_store.SqlStore(settings.state_url)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def opened_engine(
    connector: ConnectorSettings,
    tables: TableWriter | None = None,
    deployment: Callable[[], Deployment] = Deployment,
    stop_grace_seconds: float = 5.0,
) -> Iterator[Engine]:
    """Opens an engine for work on a connection outside of its syncs. A caller that starts the connector passes its
    `deployment`."""
    settings = engine_settings(connector)
    with (
        opened_store(connector) as store,
        Engine(
            settings,
            store=store,
            tables=tables,
            connector_options=ConnectorOptions(deployment, stop_grace_seconds),
        ) as engine,
    ):
        yield engine


def table_io_manager(resources: object, io_manager_key: str, connection: str) -> TableIOManager:
    """The IO manager of a step's resources. Raises ConfigError if it keeps no tables."""
    found = getattr(resources, io_manager_key)
    if isinstance(found, TableIOManager):
        return found
    raise ConfigError(
        f"opening the tables of connection {connection}",
        f"the IO manager {io_manager_key!r} is {type(found).__name__}, which keeps no tables",
        remedy=f"Give the definitions a SparkTableIOManager under {io_manager_key!r}.",
    )
