"""The metadata file that counts, among those that a server lists."""

import datetime as dt
import json
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.tables.iceberg.connect.remote_table import RemoteTable

_LOG = {
    "format-version": 2,
    "location": "",
    "last-column-id": 0,
    "current-schema-id": 0,
    "schemas": [{"schema-id": 0, "type": "struct", "fields": []}],
    "default-spec-id": 0,
    "partition-specs": [{"spec-id": 0}],
}


class _Listing:
    """The server's answers: the metadata files of a table, in its order."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self._entries = entries

    def sql(self, _: str) -> "_Listing":
        return self

    def collect(self) -> list[dict[str, Any]]:
        return self._entries


def test_a_commit_of_a_writer_whose_clock_is_ahead_is_not_newer_than_the_one_after_it(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = []
    for number, second in ((5, 20), (6, 3)):
        file = tmp_path / f"{number:05}-x.metadata.json"
        snapshot = {"snapshot-id": number, "timestamp-ms": second * 1000}
        file.write_text(json.dumps({**_LOG, "current-snapshot-id": number, "snapshots": [snapshot]}))
        entries.append({"timestamp": dt.datetime(2026, 1, 1, 12, 0, second), "file": str(file)})
    table = RemoteTable(cast(SparkSession, _Listing(entries)), LOCAL, "lake.shop.users")
    current = table.refresh().current
    assert current is not None and current.snapshot_id == 6
