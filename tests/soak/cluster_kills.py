"""Connections whose connectors run on the executors of a standalone cluster, and what is killed of those."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml
from pyspark.sql import SparkSession

from tests.soak.kill_methods import RunningSync, kill_each, words_of
from tests.support.fork_server import Kill
from tests.sync.cluster.spark_cluster import SparkCluster, running_cluster
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.spark_connections import CommandLine, IcebergConnection, processes_with
from tests.sync.shop import until

_SOURCE = "fake_source"


class KilledCluster:
    """A running cluster, with the ways to kill what a sync has there. A worker starts another executor in the place of
    a dead one, and the task is tried again."""

    def __init__(self, cluster: SparkCluster) -> None:
        self._cluster = cluster
        self.settings: Mapping[str, str] = cluster.settings

    def python_worker(self, running: RunningSync, chance: random.Random) -> None:  # noqa: ARG002 - as each has it
        """Kills the Python of the task."""
        kill_each(self._cluster.python_workers_with(_SOURCE) or self._cluster.python_workers_with(""))

    def spark_executor(self, running: RunningSync, chance: random.Random) -> None:  # noqa: ARG002
        """Kills the JVMs of all executors."""
        kill_each(self._cluster.executors())

    def remote_connector(self, running: RunningSync, chance: random.Random) -> None:  # noqa: ARG002
        kill_each([each for each in self._of_the_source() if "guardian.py" not in " ".join(words_of(each))])

    def remote_guardian(self, running: RunningSync, chance: random.Random) -> None:  # noqa: ARG002
        kill_each([each for each in self._of_the_source() if "guardian.py" in " ".join(words_of(each))])

    def _of_the_source(self) -> list[psutil.Process]:
        return [each for each in self._cluster.processes() if _SOURCE in " ".join(words_of(each))]


@contextmanager
def killed_cluster(folder: Path) -> Iterator[KilledCluster]:
    folder.mkdir(parents=True)
    with running_cluster(folder) as cluster:
        yield KilledCluster(cluster)


class ClusterConnection(IcebergConnection):
    """A connection with Iceberg tables in a folder that driver and executors share."""

    more = {"run_on": "executors"}  # noqa: RUF012 - never changed

    def __init__(
        self, folder: Path, session: SparkSession, cluster: KilledCluster, variables: Mapping[str, str]
    ) -> None:
        """Executors get the `variables`: by them the soak finds what they leave."""
        super().__init__(folder, session, kills_compactions=True)
        settings = yaml.safe_load(self.settings_file.read_text())
        of_executors = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
        settings["spark"] = {**settings["spark"], **cluster.settings, **of_executors}
        self.settings_file.write_text(yaml.safe_dump(settings))


class ClusterCommandLine(CommandLine):
    """The command line as driver. A sync has ended when its executors have, too: until they hear of their driver's
    death, their task has the lease."""

    def __init__(self, variables: Mapping[str, str], mark: tuple[str, str]) -> None:
        super().__init__(variables)
        self._mark = mark

    def end(self) -> int:
        code = super().end()
        until(lambda: not any(processes_with(self._mark)), "the end of the executors")
        return code

    def sync(self, connection: FakeConnection, crash: Kill | None = None, *, refresh: bool = False) -> int:
        assert crash is None, "the points of a task are not those of its driver"
        return super().sync(connection, crash, refresh=refresh)
