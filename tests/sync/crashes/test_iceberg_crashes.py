"""Kills at every named point on Iceberg, at those around commits in each mode and on Delta, and of processes with JVMs.

To save processes, each sync that recovers from a kill is itself killed next. The whole matrix of points, modes, scopes
and second kills is `python -m tests.soak --matrix`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.points import POINTS
from tests.sync.crashes.killed_connection import KilledConnection, Runner
from tests.sync.crashes.spark_connections import CommandLine, DeltaConnection, IcebergConnection, running_command_line
from tests.sync.crashes.spark_fork_server import SparkSyncForkServer
from tests.sync.crashes.sweep import SWEPT_MODES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

# An announced load stays unfinished over as many kills as possible: from `load.announced` on, each kill is in the
# recovery from the one before.
_ENDLESS_RECOVERY = (
    "run.leased", "run.begun", "table.prepared", "run.folders_noted", "stage.file_closed", "run.ended", "load.staged",
    "run.delivered", "load.announced", "table.committing", "table.committed", "load.committed", "recover.begun",
    "recover.swept", "load.promoted",
)  # fmt: skip
# Every other sync completes its recovery before it is killed, so that commits outside of a recovery are killed too.
_WHOLE_RECOVERIES = (
    "table.committing", "load.staged", "table.committed", "load.promoted", "load.committed", "table.prepared",
    "load.announced",
)  # fmt: skip
# The points around the commit to a table. The steps before and after them are the same in every format.
_AROUND_COMMITS = ("table.committing", "table.committed")
_REPLACING = ("append_dedup", "overwrite")
_NEW_RECORDS = 5


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[SparkSyncForkServer]:
    runner = SparkSyncForkServer(spark)
    yield runner
    runner.close()


@pytest.fixture
def connection(spark: SparkSession, tmp_path: Path) -> IcebergConnection:
    return IcebergConnection(tmp_path / "ware house", spark)


@pytest.fixture
def command_line() -> Iterator[CommandLine]:
    """Checks at the end that no process of a killed sync has outlived it."""
    with running_command_line() as runner:
        yield runner


def chained(
    runner: Runner,
    connection: IcebergConnection,
    mode: str,
    points: tuple[str, ...],
    options: Mapping[str, str] = MappingProxyType({}),
) -> KilledConnection:
    is_refreshed = mode == "overwrite"
    refreshes = "resumed" if is_refreshed else "whole"
    killed = KilledConnection(
        runner,
        connection,
        SWEPT_MODES[mode],
        "stream",
        refreshes=refreshes,
        changes_columns=is_refreshed,
        options=options,
    )
    for point in points:
        killed.add_records(_NEW_RECORDS)
        killed.sync_killed((point, 1))
    killed.sync_to_end()
    return killed


@pytest.mark.nightly
def test_a_chain_of_deaths_at_every_point_loses_and_doubles_nothing(
    server: SparkSyncForkServer, connection: IcebergConnection
) -> None:
    killed = chained(server, connection, "append", _ENDLESS_RECOVERY)
    assert set(_ENDLESS_RECOVERY) == set(POINTS)
    assert set(killed.reached) == set(POINTS)


def test_deaths_on_both_sides_of_a_commit_that_replaces_rows_lose_and_double_nothing(
    server: SparkSyncForkServer, connection: IcebergConnection
) -> None:
    chained(server, connection, "append_dedup", _AROUND_COMMITS)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("mode", "merge"),
    [
        *((mode, None) for mode in _REPLACING),
        *(("append_dedup", merge) for merge in ("positions", "equality_deletes", "copy_on_write")),
        # A refresh of a stream with keys lands on a branch, in several loads.
        ("overwrite", "positions"),
    ],
)
def test_a_chain_of_deaths_around_commits_that_replace_rows_loses_and_doubles_nothing(
    mode: str, merge: str | None, server: SparkSyncForkServer, connection: IcebergConnection
) -> None:
    chained(server, connection, mode, _WHOLE_RECOVERIES, {"merge": merge} if merge else {})


@pytest.mark.nightly
@pytest.mark.parametrize("mode", SWEPT_MODES)
def test_a_chain_of_deaths_around_commits_to_delta_loses_and_doubles_nothing(
    mode: str, server: SparkSyncForkServer, spark: SparkSession, tmp_path: Path
) -> None:
    chained(server, DeltaConnection(tmp_path / "ware house", spark), mode, _AROUND_COMMITS)


@pytest.mark.nightly
def test_a_chain_of_deaths_of_processes_and_their_jvms_loses_and_doubles_nothing(
    command_line: CommandLine, connection: IcebergConnection
) -> None:
    """The connector is a Singer tap, unlike in the tests above."""
    connection.protocol = "singer"
    chained(command_line, connection, "append_dedup", _AROUND_COMMITS)
