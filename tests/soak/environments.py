"""The environments of killed syncs: forked processes on folder tables; on Iceberg the command line or a Dagster run.

On a Connect server, and on the executors of a standalone cluster, it is the command line too.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.spark.session import start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.dagster_defs.support.spark_steps import SparkSteps
from tests.soak.cluster_kills import ClusterCommandLine, ClusterConnection, KilledCluster
from tests.soak.connect_server_kills import KilledServer, RemoteConnection, RemoteDeltaConnection
from tests.soak.containers import DockerDaemon, ImageConnection, container, fake_source_image, left
from tests.soak.kill_methods import KillMethod, connector, executor, guardian, jvm, python, tree, words_of
from tests.support.fork_server import ForkServer
from tests.sync.crashes.fake_connection import ExecutorConnection, FakeConnection
from tests.sync.crashes.killed_connection import KilledConnection
from tests.sync.crashes.spark_connections import CommandLine, IcebergConnection, processes_with
from tests.sync.crashes.sweep import killed_connection_of
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.shop import processes_of

_MARK = "AIRBYTE_PROTO_SOAK"
_TIMEOUT_SECONDS = 600.0


class Environment(NamedTuple):
    """A place to run and kill syncs: the runner, the connection with its tables, and the ways to kill."""

    runner: SyncForkServer | SparkSteps | CommandLine
    connection: Callable[[Path], FakeConnection]
    kill_methods: tuple[KillMethod, ...]
    new_records: tuple[int, int]
    mark: tuple[str, str]
    folder: Path
    left_elsewhere: Callable[[], list[str]] = list

    def new_connection(self, name: str, mode: str, scope: str) -> KilledConnection:
        return killed_connection_of(mode, scope, self.connection)(self.folder / name, self.runner)

    def leftovers(self) -> list[str]:
        """Processes that still run after a while, and what dead runs left in the temporary folder."""
        kept = {self.runner.pid} if isinstance(self.runner, ForkServer) else set()
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while running := [
            *(" ".join(words_of(each)) for each in processes_with(self.mark) if each.pid not in kept),
            *self.left_elsewhere(),
        ]:
            if time.monotonic() > deadline:
                return running
            # The one place where this program sleeps: the end of other processes' children cannot be waited for.
            time.sleep(0.02)
        return [str(path) for path in (self.folder / "tmp").glob("airbyte-proto-run-*")]


@contextmanager
def open_environment(
    folder: Path,
    session: SparkSession | None,
    through: str = "engine",
    daemon: DockerDaemon | None = None,
    server: KilledServer | KilledCluster | None = None,
    tables: str = "iceberg",
) -> Iterator[Environment]:
    mark = (_MARK, uuid4().hex)
    (folder / "tmp").mkdir(parents=True)
    variables = {
        **dict([mark]),
        "TMPDIR": str(folder / "tmp"),
        "AIRBYTE_PROTO_EXECUTOR_HOME": str(folder / "executor-home"),
    }
    everywhere: tuple[KillMethod, ...] = (python, python, tree, connector, guardian)
    if daemon is not None:
        with fake_source_image() as image:
            runner: SyncForkServer | SparkSteps | CommandLine = SyncForkServer(variables)
            kill_methods: tuple[KillMethod, ...] = (python, python, tree, guardian, container, daemon.dockerd)
            connection: Callable[[Path], FakeConnection] = partial(ImageConnection, image=image)
            environment = Environment(runner, connection, kill_methods, (10, 80), mark, folder, left)
    elif isinstance(server, KilledCluster):
        assert session is not None
        runner = ClusterCommandLine(variables, mark)
        connection = partial(ClusterConnection, session=session, cluster=server, variables=variables)
        on_cluster = (server.python_worker, server.spark_executor)
        kill_methods = (
            *(python, tree, jvm, *on_cluster, *on_cluster),
            *(server.remote_connector, server.remote_guardian),
        )
        left_of_tasks = partial(processes_of, folder)
        environment = Environment(runner, connection, kill_methods, (10, 60), mark, folder, left_of_tasks)
    elif server is not None:
        runner = CommandLine(variables)
        connection = partial(RemoteDeltaConnection if tables == "delta" else RemoteConnection, server=server)
        environment = Environment(runner, connection, (*everywhere, server.server), (10, 60), mark, folder)
    elif session is None:
        runner = SyncForkServer(variables)
        on_executors = through == "executors"
        kill_methods = (*everywhere, executor, executor, executor) if on_executors else everywhere
        connection = ExecutorConnection if on_executors else FakeConnection
        environment = Environment(runner, connection, kill_methods, (10, 80), mark, folder)
    else:
        connection = partial(IcebergConnection, session=session, kills_compactions=True)
        is_run = through == "dagster"
        runner = SparkSteps(variables) if is_run else CommandLine(variables)
        kill_methods = (python,) if is_run else (*everywhere, jvm, jvm)
        environment = Environment(runner, connection, kill_methods, (10, 60), mark, folder)
    try:
        yield environment
    finally:
        runner.close()


@contextmanager
def reading_session(root: Path, tables: str) -> Iterator[SparkSession]:
    """A session that reads the tables. Syncs have their own sessions, in their own JVMs except in the matrix."""
    config = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    place = str(root / "none")
    settings = SparkSettings(place, format=tables, config=config, jvm_log=root / "jvm.log", short_lived=True)
    session = start_session(settings)
    yield session
    session.stop()
