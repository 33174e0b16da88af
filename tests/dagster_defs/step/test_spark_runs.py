"""Runs with a Spark of their own that are killed, or terminated: the next one heals, and nothing else is left."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from tests.dagster_defs.support.shop_runs import Run, terminate
from tests.dagster_defs.support.spark_steps import SparkSteps, instance_of
from tests.sync.crashes.killed_connection import STREAMS, KilledConnection
from tests.sync.crashes.spark_connections import IcebergConnection
from tests.sync.shop import processes_of, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

MOST_SECONDS = 10.0
_JVM_SECONDS = 120.0
_SETTINGS = """<ivysettings>
  <settings defaultResolver="silent"/>
  <resolvers><ibiblio name="silent" m2compatible="true" root="http://127.0.0.1:{port}/"/></resolvers>
</ivysettings>"""


@pytest.fixture(scope="module")
def steps() -> Iterator[SparkSteps]:
    server = SparkSteps()
    yield server
    server.close()


@pytest.fixture
def killed(steps: SparkSteps, spark: SparkSession, tmp_path: Path) -> Iterator[KilledConnection]:
    connection = IcebergConnection(tmp_path / "ware house", spark)
    yield KilledConnection(steps, connection, {"users": "append", "orders": "append_dedup"}, "stream")
    until(lambda: processes_of(tmp_path) == [], "the end of every JVM and connector")


def run_of(connection: IcebergConnection, steps: SparkSteps) -> Run:
    with instance_of(connection) as instance:
        return Run(instance, steps.run_id)


@contextmanager
def silent_repository(folder: Path) -> Iterator[tuple[dict[str, str], socket.socket]]:
    """Settings by which Spark looks for a package where nobody ever answers, and who listens there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(_JVM_SECONDS)
        settings = folder / "ivysettings.xml"
        settings.write_text(_SETTINGS.format(port=listening.getsockname()[1]))
        spark = {"jars.packages": "nobody:nothing:1.0", "jars.ivySettings": str(settings), "jars.ivy": str(folder)}
        yield {f"spark.{name}": value for name, value in spark.items()}, listening


@pytest.mark.nightly
def test_a_run_that_is_killed_around_a_commit_is_healed_by_the_next(
    killed: KilledConnection, steps: SparkSteps
) -> None:
    assert isinstance(killed.connection, IcebergConnection)
    for kill in (("table.committed", 1), ("load.committed", 2)):
        killed.add_records()
        killed.sync_killed(kill)
    killed.add_records()
    killed.sync_to_end()
    healed = run_of(killed.connection, steps)
    assert sorted(healed.materialized) == sorted(STREAMS)
    assert healed.metadata("users")["dagster/row_count"] == killed.records["users"]


@pytest.mark.nightly
def test_a_run_that_is_terminated_while_spark_starts_takes_its_jvm_along(
    killed: KilledConnection, steps: SparkSteps, tmp_path: Path
) -> None:
    assert isinstance(killed.connection, IcebergConnection)
    killed.add_records()
    with silent_repository(tmp_path) as (spark, repository):
        process = steps.start(killed.connection, spark=spark)
        asked, _ = repository.accept()
        with asked, instance_of(killed.connection) as instance:
            seconds = terminate(instance, steps.run_id, process, steps.end)
            until(lambda: processes_of(tmp_path) == [], "the end of its JVM")
    run = run_of(killed.connection, steps)
    assert run.status is dg.DagsterRunStatus.CANCELED
    assert (run.attempts, run.materialized) == (1, [])
    assert seconds < MOST_SECONDS
    killed.sync_to_end()
