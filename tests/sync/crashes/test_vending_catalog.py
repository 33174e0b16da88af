"""Killed syncs into a REST catalog with tokens and vended credentials, which expire in the middle: real processes that
have no right to the bucket, read without Spark."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tests.support.catalogs.vending_catalog import VendingCatalog, running_vending_catalog
from tests.support.needs import require_maven
from tests.support.object_stores.s3 import ObjectStore
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.spark_connections import CommandLine, running_command_line
from tests.sync.crashes.test_object_store import ObjectStoreConnection, sync_killed_twice

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

_TOKEN_SECONDS, _CREDENTIAL_SECONDS = 3.0, 12.0  # Less than a sync takes, and more than one commit of a busy machine.


class VendedConnection(ObjectStoreConnection):
    """The connection with its tables in the vending catalog."""

    def __init__(self, folder: Path, vending: VendingCatalog) -> None:
        FakeConnection.__init__(self, folder)
        self._store, self._bucket, self._vending = vending.store, vending.bucket, vending
        self.settings_file = self.home / "settings.yaml"
        self.errors_file = folder / "stderr.txt"
        self._configure({"name": "lake"}, vending.properties)

    def _table(self, stream: str) -> Table | None:
        catalog = RestCatalog("lake", uri=self._vending.upstream.geturl(), **self._store.settings)
        try:
            table: Table = catalog.load_table(("shop", stream))
        except NoSuchTableError:
            return None
        return table


@pytest.fixture
def vending(object_store: ObjectStore, tmp_path: Path) -> Iterator[VendingCatalog]:
    require_maven()
    (tmp_path / "catalog").mkdir()
    with running_vending_catalog(tmp_path / "catalog", object_store) as catalog:
        catalog.token_seconds, catalog.credential_seconds = _TOKEN_SECONDS, _CREDENTIAL_SECONDS
        yield catalog


@pytest.fixture
def command_line() -> Iterator[CommandLine]:
    with running_command_line(AWS_EC2_METADATA_DISABLED="true") as runner:
        yield runner


def test_syncs_that_are_killed_lose_and_double_nothing_and_write_no_secret(
    command_line: CommandLine, vending: VendingCatalog, tmp_path: Path
) -> None:
    connection = VendedConnection(tmp_path / "home", vending)
    sync_killed_twice(command_line, connection)
    assert json.loads(connection.report_file.read_text())["status"] == "complete"
    written = connection.written()
    assert not [secret for secret in vending.secrets if secret in written]
    assert len(vending.tokens) > 3
