"""Looks at an executor before any sync runs there: two tiny tasks, the second over the channel that syncs use.

That the first one ends proves an executor with a free core, its Python, and this package in it. Only then is a channel
that nobody comes to known to be at fault.
"""

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from socket import gethostname
from typing import NamedTuple, Protocol
from uuid import uuid4

from dagster_airbyte_proto.errors import ConfigError, StagingError, StateUnavailable
from dagster_airbyte_proto.launchers.local.programs import find_program
from dagster_airbyte_proto.launchers.packages.npm.node import node_program
from dagster_airbyte_proto.sync.cluster.channel import Channel, RemoteObject
from dagster_airbyte_proto.sync.cluster.connector_files import check_files_folder
from dagster_airbyte_proto.sync.cluster.remote_calls import Access, DriverLink
from dagster_airbyte_proto.sync.cluster.sync_task import check_shared, executor_home, version_mismatch
from dagster_airbyte_proto.sync.cluster.values import RemoteMethods
from dagster_airbyte_proto.tables.tasks import TaskRunner

_DOCKER_SECONDS = 10
_INSTALL = "Install it on every worker, or set run_on: driver."


class NeededExtra(NamedTuple):
    """An extra of this package, and the module by which it is known to be installed."""

    name: str
    module: str


class ExecutorNeeds(NamedTuple):
    """The needs of connectors on an executor: programs, our extras, a Docker engine, a cache for `files` that come from
    the driver, the warehouse if it is a folder, and Node."""

    programs: tuple[str, ...] = ()
    extras: tuple[NeededExtra, ...] = ()
    docker: bool = False
    files: bool = False
    warehouse: str = ""
    node: bool = False


class ExecutorFault(NamedTuple):
    """Something that an executor lacks."""

    found: str
    remedy: str


class ExecutorFacts(NamedTuple):
    """An executor, as its task describes it."""

    machine: str
    python: str
    faults: tuple[ExecutorFault, ...]


class InspectedExecutor(NamedTuple):
    """The end of an inspection. `failure` is the error of a task, or "": of the first, unless it `has_package`. Without
    one and without `facts` the second task did not reach the driver at `place`."""

    failure: str
    has_package: bool
    place: str
    facts: ExecutorFacts | None


class ExecutorInspector(Protocol):
    """The driver, as the second task calls it."""

    def sees(self, path: str) -> bool: ...

    def learn(self, facts: ExecutorFacts) -> None: ...


class ExecutorInspection:
    """One inspection, of whichever executor takes its tasks. Implements `ExecutorInspector`."""

    def __init__(self, tasks: TaskRunner, needs: ExecutorNeeds) -> None:
        self._tasks = tasks
        self._needs = needs
        self._tag = f"airbyte-proto-{uuid4().hex}"
        self._facts: ExecutorFacts | None = None
        self.served: Mapping[str, RemoteObject] = {
            "driver": RemoteObject(RemoteMethods(ExecutorInspector), lambda _: self)
        }

    def run(self) -> InspectedExecutor:
        """Returns what was found. It waits for an executor for as long as Spark does. Raises ConfigError without the
        extra."""
        with Channel(*self._tasks.place) as channel:
            access = channel.admit(self)
            place = f"{access.host}:{access.port}"
            failure = self._tasks.run(partial(check_package, access.version), 1, self._tag)
            has_package = not failure
            if has_package:
                failure = self._tasks.run(partial(inspect_executor, access, self._needs), 1, self._tag)
        return InspectedExecutor(failure, has_package, place, self._facts)

    def give_up(self) -> None:
        self._tasks.interrupt(self._tag)

    def sees(self, path: str) -> bool:
        return Path(path).exists()

    def learn(self, facts: ExecutorFacts) -> None:
        self._facts = facts


def check_package(version_of_driver: str, number: int, attempt: int) -> None:  # noqa: ARG001 - as tasks are called
    """A task that says nothing: where Python, or this package, is another one, it does not get so far. Raises
    ConfigError for another version."""
    mismatch = version_mismatch(version_of_driver)
    if mismatch is not None:  # Spark passes on the last line of an error: here without the remedy.
        raise ConfigError(mismatch.doing, mismatch.found)


def inspect_executor(access: Access, needs: ExecutorNeeds, number: int, attempt: int) -> None:  # noqa: ARG001 - likewise
    """A task that reports what is here to the driver. Ends well if the driver is out of reach: that one notices."""
    link = DriverLink(access, attempt)
    try:
        with suppress(StateUnavailable):
            driver: ExecutorInspector = link.stub("driver", ExecutorInspector)
            driver.learn(ExecutorFacts(gethostname(), platform.python_version(), tuple(_faults(needs, driver))))
    finally:
        link.close()


def _faults(needs: ExecutorNeeds, driver: ExecutorInspector) -> Iterator[ExecutorFault]:
    for program in needs.programs:
        try:
            find_program(program, search_path=os.environ.get("PATH", ""), folder=Path.cwd())
        except ConfigError as error:
            yield ExecutorFault(error.found, _INSTALL)
    if needs.node and node_program() is None:
        yield ExecutorFault("there is no node on the PATH", _INSTALL)
    for extra in needs.extras:
        if find_spec(extra.module) is None:
            remedy = f"Install dagster_airbyte_proto[{extra.name}] in the Python of every worker."
            yield ExecutorFault(f"the extra {extra.name} is not installed", remedy)
    try:
        home = executor_home()
        if needs.files:
            check_files_folder(home)
        if needs.warehouse:
            check_shared(Path(needs.warehouse), "looking at an executor", driver)
    except (ConfigError, StagingError) as error:
        yield ExecutorFault(error.found, error.remedy)
    if needs.docker:
        yield from _docker_faults()


def _docker_faults() -> Iterator[ExecutorFault]:
    # Docker's client takes a while to import.
    from dagster_airbyte_proto.launchers.docker.daemon import UNREACHABLE, open_daemon, root_cause

    place = os.environ.get("DOCKER_HOST") or "its machine"
    remedy = "Start a daemon on every worker, and let Spark's user use it."
    try:
        open_daemon(_DOCKER_SECONDS).version()
    except ConfigError as error:
        yield ExecutorFault(f"no Docker daemon on {place}: {error.found}", remedy)
    except UNREACHABLE as error:
        yield ExecutorFault(f"the Docker daemon on {place} does not answer: {root_cause(error)}", remedy)
