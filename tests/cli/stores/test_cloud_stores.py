"""Tables in stores like Google's and Azure's, by the settings that the docs name: each command has a JVM of its own."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.testing import fake_destination
from tests.cli.conftest import Place, Result
from tests.support.object_stores.azure import running_azure_store
from tests.support.object_stores.google import running_google_store

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

_ALL = {"streams": {"users": {"records": 25}}, "state_every": 5}


class Lake:
    """A project whose tables are in an object store."""

    def __init__(self, place: Place, store: Any) -> None:
        self._place = place
        self.warehouse = f"{store.location}/ware house"
        self.configure(store.settings)

    def configure(self, settings: Mapping[str, str]) -> None:
        catalog = "spark.sql.catalog.lake."
        spark = {
            "spark.jars.packages": "org.xerial:sqlite-jdbc:3.50.3.0",
            f"{catalog}type": "jdbc",
            f"{catalog}uri": f"jdbc:sqlite:{self._place.folder / 'catalog.db'}",
            **{f"{catalog}{name}": value for name, value in settings.items()},
        }
        written = {"lease_seconds": 60, "catalog": {"name": "lake", "warehouse": self.warehouse}, "spark": spark}
        (self._place.folder / "airbyte-proto.yaml").write_text(json.dumps(written))

    def run(self, *words: str) -> Result:
        return self._place.start(*words).end()

    def json(self, *words: str) -> Any:
        result = self.run(*words, "--json")
        assert result.code == 0, result.err
        return result.json

    def rows(self, sql: str) -> Any:
        return self.json("query", sql)["rows"]


@pytest.fixture(params=[running_google_store, running_azure_store])
def store(request: pytest.FixtureRequest, connector_environments: Path) -> Iterator[Any]:
    with request.param(connector_environments) as running:
        yield running


def test_rows_are_synced_changed_cared_for_and_pushed(place: Place, store: Any) -> None:
    lake = Lake(place, store)
    streams = {"users": {"read": "incremental", "write": "append_dedup"}}
    file = place.connect(_ALL, streams=streams)
    checked = lake.run("doctor")
    assert "a file was written, read and deleted" in checked.out, checked

    assert lake.json("sync", file)["streams"]["users"]["committed"] == 25
    place.connect({**_ALL, "streams": {"users": {"records": 30}}}, streams=streams)
    assert lake.json("sync", file)["streams"]["users"]["committed"] == 5
    # Read anew: each row comes a second time, and replaces the one before.
    assert lake.json("sync", file, "--refresh")["streams"]["users"]["committed"] == 30
    counts = "select count(*), count(distinct id) from lake.shop.users"
    assert lake.rows(counts) == [[30, 30]]

    lake.json("table", "compact", "shop.users")
    lake.json("table", "expire", "shop.users", "--keep", "0s", "--orphans-after", "1h")
    assert lake.rows(counts) == [[30, 30]]

    push = {"mode": "upsert", "changes": "snapshots", "from": "lake.shop.users", "key": ["id"]}
    received = place.folder / "received.jsonl"
    connector = {
        "protocol": "airbyte",
        "launch": {"kind": "local", "command": [sys.executable, "-m", fake_destination.__name__]},
    }
    document = {"connector": connector, "config": {"path": str(received)}, "push": {"people": push}}
    (place.folder / "crm.yaml").write_text(json.dumps(document))
    assert lake.json("push", "crm.yaml")["streams"]["people"]["acknowledged"] == 30
    assert lake.json("push", "crm.yaml")["streams"]["people"]["acknowledged"] == 0
    lines = [json.loads(line) for line in received.read_text().splitlines()]
    assert sorted(line["row"]["id"] for line in lines if "row" in line) == list(range(30))


def test_a_store_that_refuses_the_key_fails_the_stream_and_tells_no_secret(
    place: Place, connector_environments: Path
) -> None:
    with running_azure_store(connector_environments) as azure:
        lake = Lake(place, azure)
        lake.configure(
            {**azure.address, "adls.sas-token.devstoreaccount1.dfs.core.windows.net": "sv=2020-10-02&sig=hunter2"}
        )
        failed = lake.run("sync", place.connect(_ALL), "--verbose")
    assert failed.code == 1, failed
    assert "BlobStorageException" in failed.out
    assert "hunter2" not in failed.err + failed.out
