"""A user's day with tables in Polaris, by the command line. Another client of the server reads what is there."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.catalogs.polaris import Client, PolarisCatalog, running_polaris
from tests.support.object_stores.s3 import ObjectStore
from tests.sync.crashes.spark_connections import CommandLine, running_command_line
from tests.sync.crashes.test_object_store import sync_killed_twice
from tests.tables.iceberg.polaris.conftest import PolarisConnection

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

_KEYS = 4
_LIFE_SECONDS = 10
_SHORT_LIVES = {
    "polaris.authentication.token-broker.max-token-generation": f"PT{_LIFE_SECONDS}S",
    'polaris.features."STORAGE_CREDENTIAL_CACHE_DURATION_SECONDS"': "1",
}
_Rows = list[list[Any]]


class Day(PolarisConnection):
    """Three streams of one source: events are added, users are upserted, prices are read anew each time."""

    def __init__(self, folder: Path, polaris: PolarisCatalog, client: Client) -> None:
        super().__init__(folder, polaris, client, f"c_{uuid4().hex}")
        self.modes = {
            "events": {"read": "incremental", "write": "append"},
            "users": {"read": "incremental", "write": "append_dedup"},
            "prices": {"read": "full_refresh", "write": "overwrite"},
        }

    def sync(self, records: int, *options: str, code: int = 0) -> dict[str, Any]:
        """Runs a sync of a source that has so many records of each stream. Returns the streams of its report."""
        users = {"records": records, "keys": _KEYS}
        streams = {"events": {"records": records, "pad": 20}, "users": users, "prices": {"records": records}}
        self.offer({"streams": streams, "state_every": 5})
        report = self.run("sync", str(self.connection_file), *options, code=code)
        return dict(report["streams"])

    def expect(self, records: int) -> None:
        """Compares every row of every table with the source's. pyiceberg reads them, unless the table has deletes by
        equality, which it does not know."""
        for stream in ("events", "prices"):
            assert self._read_elsewhere(stream) == _rows(stream, range(records))
        assert self.query("users") == _rows("users", range(records)[-_KEYS:])

    def query(self, stream: str) -> _Rows:
        answer = self.run("query", f"SELECT id, name FROM {self.catalog}.shop.{stream} ORDER BY id")
        return list(answer["rows"])

    def _read_elsewhere(self, stream: str) -> _Rows:
        table = self._table(stream)
        assert table is not None
        rows = table.scan(selected_fields=("id", "name")).to_arrow().to_pylist()
        return sorted([row["id"], row["name"]] for row in rows)


def _rows(stream: str, ids: range) -> _Rows:
    return [[each, f"{stream} {each}"] for each in ids]


@pytest.fixture
def day(polaris: PolarisCatalog, tmp_path: Path, spark: object) -> Day:
    assert spark  # The command line runs in this process, and takes its session.
    return Day(tmp_path / "day", polaris, polaris.new_client())


def test_syncs_with_care_and_a_rollback(day: Day) -> None:
    for records in (10, 23):
        streams = day.sync(records)
        assert {each["status"] for each in streams.values()} == {"complete"}
        day.expect(records)
    assert streams["events"]["committed"] == 13
    version = max(each.version for each in day.store.states("shop"))
    day.sync(31)
    day.expect(31)

    assert day.run("table", "compact", "shop")["tables"]
    day.expect(31)
    day.run("state", "rollback", "shop", "--to", str(version), "--tables")
    day.expect(23)
    day.sync(31)
    day.expect(31)
    day.run("table", "expire", "shop", "--keep", "0s")
    day.expect(31)
    day.sync(31, "--refresh")
    day.expect(31)


def test_a_push_sends_what_has_changed(day: Day) -> None:
    for records, sent in ((10, [6, 7, 8, 9]), (11, [10])):
        day.sync(records)
        assert sorted(row["id"] for row in day.push(f"{day.catalog}.shop.users")) == sent


def test_a_push_by_a_client_that_may_only_read_has_spark_plan(polaris: PolarisCatalog, day: Day) -> None:
    """Such a client cannot have the table keep its files for a plan."""
    day.sync(10)
    reader = PolarisConnection(day.home.parent / "reader", polaris, polaris.new_reader(), f"r_{uuid4().hex}")
    sent = reader.push(f"{reader.catalog}.shop.events", key=None, mode="append", changes="all")
    assert sorted(row["id"] for row in sent) == [*range(10)]
    [log] = (reader.home / "logs" / "crm").glob("*.log")
    assert "tagging snapshot" in log.read_text()


@pytest.fixture
def command_line() -> Iterator[CommandLine]:
    with running_command_line(AWS_EC2_METADATA_DISABLED="true") as runner:
        yield runner


def test_syncs_that_are_killed_lose_and_double_nothing_and_write_no_secret(
    command_line: CommandLine, polaris: PolarisCatalog, tmp_path: Path
) -> None:
    client = polaris.new_client()
    connection = PolarisConnection(tmp_path / "killed", polaris, client)
    sync_killed_twice(command_line, connection)
    assert json.loads(connection.report_file.read_text())["status"] == "complete"
    written = connection.written()
    assert not [secret for secret in {client.secret, *polaris.server.tokens.secrets} if secret in written]


@pytest.mark.usefixtures("spark")
def test_tokens_and_credentials_that_have_expired_are_renewed(object_store: ObjectStore, tmp_path: Path) -> None:
    """Spark's catalog, and the tables that it has loaded, outlive a sync in this process."""
    with running_polaris(tmp_path, object_store, **_SHORT_LIVES) as server:
        server.tokens.seconds = _LIFE_SECONDS
        catalog = server.new_catalog()
        day = Day(tmp_path / "day", catalog, catalog.new_client())
        for records in (10, 23, 31):
            day.sync(records)
            given = len(server.tokens.policies)
            time.sleep(_LIFE_SECONDS + 1)
        day.expect(31)
        assert len(server.tokens.policies) > given
