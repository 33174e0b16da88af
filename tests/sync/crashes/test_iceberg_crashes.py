"""Every named point once on Iceberg, those around commits in each mode and on Delta; and whole trees with their JVMs.

To start no more processes than it takes, each sync that recovers what the one before it left is itself the next one to
be killed. The whole matrix of points, modes, scopes and second kills is `python -m tests.soak --matrix`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.points import POINTS
from tests.sync.crashes.iceberg_house import CommandLine, DeltaHouse, IcebergHouse, processes_with
from tests.sync.crashes.life import Life, Runner
from tests.sync.crashes.spark_zygote import SparkZygote
from tests.sync.crashes.sweep import SWEPT_MODES
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
_AROUND_COMMITS = ("table.committing", "table.committed")
_REPLACING = ("append_dedup", "overwrite")
_NEW_RECORDS = 5
_MARK = ("AIRBYTE_PROTO_TEST", uuid4().hex)


@pytest.fixture(scope="module")
def zygote(spark: SparkSession) -> Iterator[SparkZygote]:
    runner = SparkZygote(spark)
    yield runner
    runner.close()


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


def chained(
    runner: Runner,
    house: IcebergHouse,
    mode: str,
    points: tuple[str, ...],
    options: Mapping[str, str] = MappingProxyType({}),
) -> Life:
    is_refreshed = mode == "overwrite"
    refreshes = "resumed" if is_refreshed else "whole"
    life = Life(
        runner, house, SWEPT_MODES[mode], "stream", refreshes=refreshes, changes_columns=is_refreshed, options=options
    )
    for point in points:
        life.grow(_NEW_RECORDS)
        life.die((point, 1))
    life.live()
    return life


def test_a_chain_of_deaths_at_every_point_loses_and_doubles_nothing(zygote: SparkZygote, house: IcebergHouse) -> None:
    life = chained(zygote, house, "append", _ENDLESS_RECOVERY)
    assert set(_ENDLESS_RECOVERY) == set(POINTS)
    assert set(life.reached) == set(POINTS)


@pytest.mark.parametrize(("mode", "merge"), [*((mode, None) for mode in _REPLACING), ("append_dedup", "copy_on_write")])
def test_a_chain_of_deaths_around_commits_that_replace_rows_loses_and_doubles_nothing(
    mode: str, merge: str | None, zygote: SparkZygote, house: IcebergHouse
) -> None:
    chained(zygote, house, mode, _WHOLE_RECOVERIES, {"merge": merge} if merge else {})


@pytest.mark.parametrize("mode", SWEPT_MODES)
def test_a_chain_of_deaths_around_commits_to_delta_loses_and_doubles_nothing(
    mode: str, zygote: SparkZygote, spark: SparkSession, tmp_path: Path
) -> None:
    chained(zygote, DeltaHouse(tmp_path / "ware house", spark), mode, _AROUND_COMMITS)


def test_a_chain_of_deaths_of_processes_and_their_jvms_loses_and_doubles_nothing(
    command_line: CommandLine, house: IcebergHouse
) -> None:
    """Of a tap, which those above are not."""
    house.protocol = "singer"
    chained(command_line, house, "append_dedup", _AROUND_COMMITS)
