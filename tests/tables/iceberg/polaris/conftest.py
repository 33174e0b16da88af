"""A running Polaris, and a connection into it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tests.support.catalogs.polaris import Client, PolarisCatalog, PolarisServer, running_polaris
from tests.support.object_stores.s3 import ObjectStore
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.test_object_store import ObjectStoreConnection


@pytest.fixture(scope="session")
def polaris_server(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolarisServer]:
    with running_polaris(tmp_path_factory.mktemp("polaris"), object_store) as running:
        yield running


@pytest.fixture
def polaris(polaris_server: PolarisServer) -> PolarisCatalog:
    return polaris_server.new_catalog()


class PolarisConnection(ObjectStoreConnection):
    """A connection with its tables in Polaris. Its processes have no right to the bucket. Its tables are read without
    Spark, by pyiceberg as another client of the server."""

    def __init__(self, folder: Path, polaris: PolarisCatalog, client: Client, catalog: str = "lake") -> None:
        FakeConnection.__init__(self, folder)
        self.catalog = catalog
        self._store, self._bucket = polaris.server.store, polaris.bucket
        self.settings_file, self.errors_file = self.home / "settings.yaml", folder / "stderr.txt"
        self._reader = polaris.properties(polaris.new_reader())
        self._configure({"name": catalog}, polaris.properties(client))

    def _table(self, stream: str) -> Table | None:
        catalog = RestCatalog("lake", **{key: value for key, value in self._reader.items() if key != "io-impl"})
        try:
            found: Table = catalog.load_table(("shop", stream))
        except NoSuchTableError:
            return None
        return found
