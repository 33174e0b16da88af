"""Syncs into tables in Google Cloud Storage, as an emulator has it, by the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagster_airbyte_proto.testing import fake_source
from tests.support.catalogs.google_store import GoogleStore, running_google_store

pytestmark = [pytest.mark.spark, pytest.mark.connectors, pytest.mark.nightly, pytest.mark.timeout(900)]
_PACKAGES = "org.xerial:sqlite-jdbc:3.50.3.0,org.apache.iceberg:iceberg-gcp-bundle:1.12.0"
_KEYS = 10


class _Home:
    def __init__(self, folder: Path, store: GoogleStore) -> None:
        self._folder = folder
        self._environment = {**os.environ, **store.environment}
        properties = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder / 'catalog.db'}", **store.properties}
        spark = {f"spark.sql.catalog.lake.{name}": value for name, value in properties.items()}
        settings = {
            "catalog": {"name": "lake", "warehouse": f"gs://{store.bucket}/ware house"},
            "spark": {**spark, "spark.jars.packages": _PACKAGES},
            "compact_after": {"delete_files": 0, "small_files": 0},
        }
        (folder / "settings.yaml").write_text(yaml.safe_dump(settings))

    def offer(self, records: int) -> None:
        streams = {name: {"records": records, "keys": _KEYS} for name in ("users", "my orders")}
        launch = {"kind": "local", "command": [sys.executable, fake_source.__file__]}
        connection = {
            "connector": {"protocol": "airbyte", "launch": launch},
            "config": {"scenario": {"streams": streams, "state_every": 5}},
            "streams": {name: {"write": "append_dedup"} for name in streams},
            "load": {"max_bytes": 1},
        }
        (self._folder / "shop.yaml").write_text(yaml.safe_dump(connection))

    def run(self, *words: str) -> dict[str, Any]:
        program = [sys.executable, "-m", "dagster_airbyte_proto", "--home", str(self._folder / "home")]
        command = [*program, "--settings", str(self._folder / "settings.yaml"), *words, "--json"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, env=self._environment, cwd=self._folder, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout))


def test_tables_in_google_cloud_storage_are_written_merged_and_compacted(
    tmp_path: Path, connector_environments: Path
) -> None:
    with running_google_store(tmp_path, connector_environments) as store:
        home = _Home(tmp_path, store)
        for records in (12, 17):
            home.offer(records)
            report = home.run("sync", "shop.yaml")
            assert report["status"] == "complete", report
        tables = [report["streams"][name]["table"] for name in ("users", "my orders")]
        home.run("table", "compact", "shop.users")
        for table in tables:
            catalog, namespace, name = table.split(".")
            rows = home.run("query", f"select id from {catalog}.{namespace}.`{name}` order by id")["rows"]
            assert rows == [[number] for number in range(records - _KEYS, records)]
