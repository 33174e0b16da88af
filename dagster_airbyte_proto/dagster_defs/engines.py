"""An engine for what is done to a connection outside of its syncs, made of what the connector resource says."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from dagster_airbyte_proto.checkpoints import sql_store
from dagster_airbyte_proto.dagster_defs.home import home_folder
from dagster_airbyte_proto.settings import Settings
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


@contextmanager
def opened_engine(connector: Connector, tables: TableWriter | None = None) -> Iterator[Engine]:
    """With the resource's state and home, and these tables."""
    settings = Settings.load(home_folder(connector.home)).model_copy(update={"lease_seconds": connector.lease_seconds})
    store = connector.state.open() if connector.state else sql_store.SqlStateStore(settings.state_url)
    try:
        with Engine(settings, store=store, tables=tables) as engine:
            yield engine
    finally:
        store.close()
