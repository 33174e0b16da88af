"""Where syncs are killed: forked processes on folder tables; on Iceberg the command line, or a run of Dagster's."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.spark.session import SparkSettings, start_session
from tests.dagster_defs.support.spark_steps import SparkSteps
from tests.soak.containers import DockerDaemon, ImageHouse, container, fake_source_image, left
from tests.soak.victims import Weapon, connector, guardian, jvm, python, tree, words_of
from tests.support.fork_server import ForkServer
from tests.sync.crashes.house import House
from tests.sync.crashes.iceberg_house import CommandLine, IcebergHouse, processes_with
from tests.sync.crashes.life import Life
from tests.sync.crashes.sweep import life_of
from tests.sync.crashes.zygote import Zygote

_MARK = "AIRBYTE_PROTO_SOAK"
_PATIENCE_SECONDS = 600.0


class Ground(NamedTuple):
    """Where syncs run: how one is started, where its tables are, with what it is killed."""

    runner: Zygote | SparkSteps | CommandLine
    house: Callable[[Path], House]
    weapons: tuple[Weapon, ...]
    new_records: tuple[int, int]
    mark: tuple[str, str]
    folder: Path
    left_elsewhere: Callable[[], list[str]] = list

    def life(self, name: str, mode: str, scope: str) -> Life:
        return life_of(mode, scope, self.house)(self.folder / name, self.runner)

    def leftovers(self) -> list[str]:
        """What still runs of it, once that has had the time to go, and what dead runs left in the temporary folder."""
        kept = {self.runner.pid} if isinstance(self.runner, ForkServer) else set()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while running := [
            *(" ".join(words_of(each)) for each in processes_with(self.mark) if each.pid not in kept),
            *self.left_elsewhere(),
        ]:
            if time.monotonic() > deadline:
                return running
            # The one place where this program sleeps: the end of strangers' children cannot be waited for.
            time.sleep(0.02)
        return [str(path) for path in (self.folder / "tmp").glob("airbyte-proto-run-*")]


@contextmanager
def open_ground(
    folder: Path, session: SparkSession | None, through: str = "engine", daemon: DockerDaemon | None = None
) -> Iterator[Ground]:
    mark = (_MARK, uuid4().hex)
    (folder / "tmp").mkdir(parents=True)
    environment = {**dict([mark]), "TMPDIR": str(folder / "tmp")}
    everywhere: tuple[Weapon, ...] = (python, python, tree, connector, guardian)
    if daemon is not None:
        with fake_source_image() as image:
            runner: Zygote | SparkSteps | CommandLine = Zygote(environment)
            weapons: tuple[Weapon, ...] = (python, python, tree, guardian, container, daemon.dockerd)
            house: Callable[[Path], House] = partial(ImageHouse, image=image)
            ground = Ground(runner, house, weapons, (10, 80), mark, folder, left)
    elif session is None:
        runner = Zygote(environment)
        ground = Ground(runner, House, everywhere, (10, 80), mark, folder)
    else:
        house = partial(IcebergHouse, session=session, kills_compactions=True)
        is_run = through == "dagster"
        runner = SparkSteps(environment) if is_run else CommandLine(environment)
        weapons = (python,) if is_run else (*everywhere, jvm, jvm)
        ground = Ground(runner, house, weapons, (10, 60), mark, folder)
    try:
        yield ground
    finally:
        runner.close()


@contextmanager
def reading_session(root: Path, tables: str) -> Iterator[SparkSession]:
    """Reads the tables; syncs have sessions of their own, in JVMs of their own but for those of the matrix."""
    config = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    place = str(root / "none")
    settings = SparkSettings(place, format=tables, config=config, jvm_log=root / "jvm.log", short_lived=True)
    session = start_session(settings)
    yield session
    session.stop()
