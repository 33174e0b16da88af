"""Every named point once on Iceberg, and those around commits on Delta, with real processes and their JVMs.

To start no more of them than it takes, each sync that recovers what the one before it left is itself the next one to
be killed. The whole matrix of modes, scopes and second kills is `python -m tests.soak --matrix`.
"""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.points import POINTS
from tests.sync.iceberg_house import CommandLine, DeltaHouse, IcebergHouse, processes_with
from tests.sync.life import Life
from tests.sync.shop import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

# Here a load that is announced stays unfinished over as many deaths as there can be: from `load.announced` on, each one
# is in the recovery of the one before.
_ENDLESS_RECOVERY = (
    "run.leased", "run.begun", "table.prepared", "run.folders_noted", "stage.file_closed", "run.ended", "load.staged",
    "run.delivered", "load.announced", "table.committing", "table.committed", "load.committed", "recover.begun",
    "recover.swept", "load.promoted",
)  # fmt: skip
# And here every other sync recovers whole before it dies, so that commits die in a sync's own course too.
_WHOLE_RECOVERIES = (
    "table.committing", "load.staged", "table.committed", "load.promoted", "load.committed", "table.prepared",
    "load.announced",
)  # fmt: skip
# Those between which a commit to the table is; whatever is before and after them knows no format.
_ON_DELTA = ("table.committing", "table.committed")
_NEW_RECORDS = 5
_MARK = ("AIRBYTE_PROTO_TEST", uuid4().hex)


@pytest.fixture
def house(spark: SparkSession, tmp_path: Path) -> IcebergHouse:
    return IcebergHouse(tmp_path / "ware house", spark)


@pytest.fixture
def command_line() -> Iterator[CommandLine]:
    """Whatever was killed, nothing that it started outlives it."""
    runner = CommandLine(dict([_MARK]))
    yield runner
    runner.close()
    until(lambda: not any(processes_with(_MARK)), "the end of every JVM and connector")


def test_a_chain_of_deaths_at_every_point_loses_and_doubles_nothing(
    command_line: CommandLine, house: IcebergHouse
) -> None:
    life = Life(command_line, house, "append", "stream")
    for point in _ENDLESS_RECOVERY:
        life.grow(_NEW_RECORDS)
        life.die((point, 1))
    life.live()
    assert set(_ENDLESS_RECOVERY) == set(POINTS)
    assert set(life.reached) == set(POINTS)


def test_a_chain_of_deaths_around_commits_that_replace_rows_loses_and_doubles_nothing(
    command_line: CommandLine, house: IcebergHouse
) -> None:
    modes = {"users": "append_dedup", "orders": "overwrite"}
    life = Life(command_line, house, modes, "stream", refreshes="resumed")
    for point in _WHOLE_RECOVERIES:
        life.grow(_NEW_RECORDS)
        life.die((point, 1))
    life.live()


def test_a_chain_of_deaths_around_commits_to_delta_loses_and_doubles_nothing(
    command_line: CommandLine, spark: SparkSession, tmp_path: Path
) -> None:
    house = DeltaHouse(tmp_path / "ware house", spark)
    life = Life(command_line, house, {"users": "append", "orders": "overwrite"}, "stream")
    for point in _ON_DELTA:
        life.grow(_NEW_RECORDS)
        life.die((point, 1))
    life.live()
