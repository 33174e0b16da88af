"""Connections on the executors of a real cluster: tables of Iceberg in S3, with keys of one's own or vended ones."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.testing import fake_source
from tests.support.catalogs.vending_catalog import running_vending_catalog
from tests.support.needs import require_maven
from tests.support.object_stores.s3 import ObjectStore
from tests.support.postgres import PostgresServer
from tests.sync.cluster.spark_cluster import SparkCluster, running_cluster
from tests.sync.shop import until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.nightly, pytest.mark.timeout(600)]
_MODES = {
    "appended": {"read": "incremental", "write": "append"},
    "merged": {"read": "incremental", "write": "append_dedup"},
    "replaced": {"read": "full_refresh", "write": "overwrite"},
    "killed": {"read": "incremental", "write": "append"},
}
_LIFE_SECONDS = 12.0
_SLOW_SOURCE = """
import subprocess, sys, time
source = subprocess.Popen([sys.executable, {source!r}, *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
for line in source.stdout:
    time.sleep({pause} if '"RECORD"' in line else 0)
    print(line, end="", flush=True)
sys.exit(source.wait())
"""
_HELD = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN")


class Lake:
    """Connections whose tables lie in a bucket. `killed` hangs once, in a program of its own name."""

    def __init__(
        self, folder: Path, cluster: SparkCluster, properties: Mapping[str, str], **more_settings: Any
    ) -> None:
        self.folder, self.mark = folder, folder / "hung"
        self.program = fake_source.__file__
        self.hanging = folder / "hanging_source.py"
        self.hanging.write_text(f"import runpy\nrunpy.run_path({fake_source.__file__!r}, run_name='__main__')\n")
        settings = {
            "lease_seconds": 10,
            **more_settings,
            "spark": {
                **cluster.settings,
                "spark.jars.packages": "org.postgresql:postgresql:42.7.8",
                **{f"spark.sql.catalog.lake.{key}": value for key, value in properties.items()},
            },
        }
        (folder / "settings.yaml").write_text(yaml.safe_dump(settings))

    def offer(self, rows: int) -> list[str]:
        """Writes the connections, and returns their files."""
        return [self._write(name, rows) for name in _MODES]

    def start(self, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "dagster_airbyte_proto", "--home", str(self.folder / "home"), "--json"]
        return subprocess.Popen(
            [*command, "--settings", str(self.folder / "settings.yaml"), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name not in _HELD},
        )

    def query(self, sql: str) -> list[list[Any]]:
        with self.start("query", sql) as process:
            output, errors = process.communicate(timeout=300)
        assert output, errors
        return list(json.loads(output)["rows"])

    def _write(self, name: str, rows: int) -> str:
        scenario: dict[str, Any] = {"streams": {"users": {"records": rows}}, "state_every": 5}
        if name == "killed":
            scenario["failure"] = {"kind": "hang", "after": 12, "once": str(self.mark)}
        program = str(self.hanging) if name == "killed" else self.program
        connection = {
            "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": [sys.executable, program]}},
            "config": {"scenario": scenario},
            "streams": {"users": _MODES[name]},
            "destination": {"namespace": name},
            "load": {"max_bytes": 1},
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(connection))
        return str(file)


def test_four_connections_at_once_are_exact_though_a_task_is_killed(
    tmp_path: Path, object_store: ObjectStore, postgres_server: PostgresServer
) -> None:
    bucket, state_url = object_store.new_bucket(), postgres_server.new_store()
    catalog = {"type": "jdbc", "uri": postgres_server.jdbc_uri(), **object_store.settings}
    warehouse = {"warehouse": f"s3://{bucket}/ware house"}
    with running_cluster(tmp_path) as cluster:
        lake = Lake(tmp_path, cluster, catalog, state_url=state_url, catalog=warehouse)
        hanging = lake.hanging.name
        for turn, rows in enumerate((30, 50)):
            with lake.start("sync-all", *lake.offer(rows)) as driver:
                if turn == 0:
                    until(lambda: lake.mark.exists() and bool(cluster.python_workers_with(hanging)), "a source hangs")
                    [worker] = cluster.python_workers_with(hanging)
                    worker.kill()
                output, errors = driver.communicate(timeout=300)
            assert output, errors
            reports = json.loads(output)["connections"]
            assert {each["connection"]: each["status"] for each in reports} == dict.fromkeys(_MODES, "complete")
        tables = " union all ".join(f"select '{name}' as t, id from lake.{name}.users" for name in _MODES)
        assert lake.query(f"select t, id from ({tables}) order by t, id") == [
            [name, number] for name in sorted(_MODES) for number in range(50)
        ]
    state = SqlStore(state_url)
    assert {name: len(state.announced_loads(name)) + len(state.current_leases(name)) for name in _MODES} == (
        dict.fromkeys(_MODES, 0)
    )
    loads = [logged.load for name in _MODES for logged in state.loads(name, limit=1000)]
    files = {file.path.removeprefix(f"s3://{bucket}/") for load in loads for part in load.parts for file in part.files}
    # Compacted files lie elsewhere.
    assert {key for key in object_store.keys(bucket) if "/data/run-" in key} <= files
    assert object_store.uploads(bucket) == []


def test_tasks_get_what_the_catalog_vends_and_again_when_it_expires(tmp_path: Path, object_store: ObjectStore) -> None:
    require_maven()
    with (
        running_cluster(tmp_path) as cluster,
        running_vending_catalog(tmp_path, object_store) as catalog,
    ):
        lake = Lake(tmp_path, cluster, catalog.properties)
        catalog.credential_seconds = _LIFE_SECONDS
        slow = tmp_path / "slow_source.py"
        slow.write_text(_SLOW_SOURCE.format(source=fake_source.__file__, pause=_LIFE_SECONDS / 20))
        lake.program = str(slow)
        for rows in (30, 60):
            [connection] = [file for file in lake.offer(rows) if file.endswith("merged.yaml")]
            with lake.start("sync-all", connection) as driver:
                output, errors = driver.communicate(timeout=300)
            assert output, errors
            assert [each["status"] for each in json.loads(output)["connections"]] == ["complete"], output
        catalog.credential_seconds = 3600.0  # Spark reads with those that it got when it loaded the table.
        assert lake.query("select id from lake.merged.users order by id") == [[number] for number in range(60)]
        kept = {"settings.yaml"} | {path.name for path in tmp_path.rglob("*.jar")}
        for path in tmp_path.rglob("*"):
            content = path.read_bytes() if path.is_file() and path.name not in kept else b""
            assert not [secret for secret in catalog.secrets if secret.encode() in content], path
