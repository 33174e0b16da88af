"""What a step works with, made of what its resources say: settings, the state store, tables, an engine."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from dagster_airbyte_proto.checkpoints.sql import sql_store
from dagster_airbyte_proto.dagster_defs.home import home_folder
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.docker.deployment import Deployment
from dagster_airbyte_proto.settings import CompactAfter, Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.tables.writer import TableWriter


class _OpensStores(Protocol):
    def open(self) -> sql_store.SqlStateStore: ...


class Connector(Protocol):
    """What is asked of a connector resource. Without `state` it lies in the home; a `home` of "" is the default one."""

    @property
    def state(self) -> _OpensStores | None: ...

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


@runtime_checkable
class GivesTables(Protocol):
    """An IO manager that syncs commit through."""

    def tables(self, labels: Mapping[str, str]) -> TableWriter:
        """Its tables. The labels say who writes, for the tables' own logs. Called by the thread that syncs."""
        ...


def engine_settings(connector: Connector) -> Settings:
    """Those of its home, with what it says itself."""
    compact_after = CompactAfter(
        delete_files=connector.compact_after_delete_files, small_files=connector.compact_after_small_files
    )
    said = {"lease_seconds": connector.lease_seconds, "compact_after": compact_after}
    return Settings.load(home_folder(connector.home)).model_copy(update=said)


@contextmanager
def opened_store(connector: Connector) -> Iterator[sql_store.SqlStateStore]:
    """The resource's states, or those of its home."""
    store = connector.state.open() if connector.state else sql_store.SqlStateStore(engine_settings(connector).state_url)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def opened_engine(
    connector: Connector,
    tables: TableWriter | None = None,
    deployment: Callable[[], Deployment] = Deployment,
) -> Iterator[Engine]:
    """With the resource's state and home, and these tables: for what is done to a connection outside of its syncs.
    What starts its connector says of which `deployment` it is."""
    settings = engine_settings(connector)
    with (
        opened_store(connector) as store,
        Engine(settings, store=store, tables=tables, deployment=deployment) as engine,
    ):
        yield engine


def gives_tables(resources: object, io_manager_key: str, connection: str) -> GivesTables:
    """The IO manager of a step's resources. Raises ConfigError for one that keeps no tables."""
    found = getattr(resources, io_manager_key)
    if isinstance(found, GivesTables):
        return found
    raise ConfigError(
        f"opening the tables of connection {connection}",
        f"the IO manager {io_manager_key!r} is {type(found).__name__}, which keeps no tables",
        remedy=f"Give the definitions a SparkTableIOManager under {io_manager_key!r}.",
    )
