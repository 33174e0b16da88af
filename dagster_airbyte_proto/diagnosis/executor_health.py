"""Health checks of the cluster, for connections that run on its executors (`run_on`)."""

import platform
import socket
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.diagnosis.connector_health import MODULES, Needs, connectors_of
from dagster_airbyte_proto.diagnosis.health_check import Finding, HealthCheck, fails, ok, warning
from dagster_airbyte_proto.diagnosis.storage_health import warehouse_location
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.storage import is_local
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.cluster.connector_files import SyncFiles
from dagster_airbyte_proto.sync.cluster.executor_inspection import (
    ExecutorFacts,
    ExecutorInspection,
    ExecutorNeeds,
    NeededExtra,
)
from dagster_airbyte_proto.sync.cluster.remote_calls import package_version
from dagster_airbyte_proto.sync.engine import Engine

_CLUSTER, _EXECUTORS = "cluster", "executors"
_MASTER, _STANDALONE = "spark.master", "spark://"
_ANSWER_SECONDS = 5.0
_TASK_SECONDS = 180.0
"""An executor may have to be started, and to fetch the jars from the driver."""


def runs_on_executors(settings: Settings, connection: Connection) -> bool:
    on_driver = connection.push is not None or connection.to is not None
    return not on_driver and (connection.run_on or settings.run_on) == "executors"


def cluster_checks(engine: Engine, connections: Sequence[Connection]) -> Sequence[HealthCheck]:
    """The check of the master, which needs no Spark: where none answers, Spark's own start takes a minute to say so."""
    if not _is_wanted(engine.settings, connections):
        return []
    seconds = _ANSWER_SECONDS * (2 + len(_masters(_master(engine))))
    return [HealthCheck(_CLUSTER, lambda: _cluster(engine), seconds, late=f"Correct {_MASTER} in the settings.")]


def executor_checks(engine: Engine, connections: Sequence[Connection]) -> Sequence[HealthCheck]:
    """The check of an executor, by a task on it. It starts Spark, if that has not been done."""
    if not _is_wanted(engine.settings, connections):
        return []
    there = [each for each in connections if runs_on_executors(engine.settings, each)]
    needs = _needs(engine.settings, there)
    begun: list[ExecutorInspection] = []

    def look() -> Sequence[Finding]:
        engine.check_has_jvm("looking at executors", "tasks on executors")
        if _is_silent(_master(engine)):  # The check of the cluster says so, and Spark would wait once more.
            return []
        if unsendable := [*_unsendable_files(there)]:
            return unsendable
        begun.append(ExecutorInspection(engine.tasks, needs))
        return _executor(begun[0])

    def give_up() -> None:
        for inspection in begun:
            inspection.give_up()

    return [
        HealthCheck(
            _EXECUTORS,
            look,
            _TASK_SECONDS,
            late="No executor took the task, or one took it and it does not end. Do workers run, has one of them a "
            "free core and the memory that spark.executor.memory names, and does the warehouse answer there?",
            give_up=give_up,
        )
    ]


def _is_wanted(settings: Settings, connections: Sequence[Connection]) -> bool:
    return settings.run_on == "executors" or any(runs_on_executors(settings, each) for each in connections)


def _needs(settings: Settings, connections: Sequence[Connection]) -> ExecutorNeeds:
    launches = [connector.launch for connection in connections for connector in connectors_of(connection)]
    programs = {launch.command[0] for launch in launches if launch.kind == "local"}
    extras = Needs.of(connections, is_on_executors=False, is_remote=False).extras
    warehouse = warehouse_location(settings)
    return ExecutorNeeds(
        tuple(sorted(programs)),
        tuple(NeededExtra(extra, MODULES[extra]) for extra in extras),
        any(launch.kind == "docker" for launch in launches),
        any(connection.files for connection in connections),
        warehouse if is_local(warehouse) else "",
        any(launch.kind == "npm" for launch in launches),
    )


def _unsendable_files(connections: Sequence[Connection]) -> Iterator[Finding]:
    for connection in connections:
        try:
            SyncFiles(connection, {})
        except ConfigError as error:
            yield fails(_EXECUTORS, error.found, error.remedy)


def _master(engine: Engine) -> str:
    return engine.spark_settings.config.get(_MASTER, "local[*]")


def _masters(url: str) -> Sequence[str]:
    """The places of a standalone cluster's masters: more than one, where others stand by."""
    return url.removeprefix(_STANDALONE).split(",") if url.startswith(_STANDALONE) else ()


def _cluster(engine: Engine) -> Sequence[Finding]:
    engine.check_has_jvm("looking at the cluster", "tasks on executors")
    url = _master(engine)
    if url.startswith("local"):
        found = f"{_MASTER} is {url}: executors are this machine, and a connector there costs a Python more"
        return [warning(_CLUSTER, found, f"Name a cluster by {_MASTER} under `spark`, or set run_on: driver.")]
    if not _masters(url):
        return [ok(_CLUSTER, f"{url}: Spark's start shows whether it answers")]
    refusals = _refusals(url)
    if not _is_silent(url, refusals):
        silent = f" ({', '.join(refusals)} does not)" if refusals else ""
        return [ok(_CLUSTER, f"the master of {url} answers{silent}")]
    found = "; ".join(f"{place}: {why}" for place, why in refusals.items())
    return [fails(_CLUSTER, f"no master answers: {found}", f"Start it, or correct {_MASTER} in the settings.")]


def _is_silent(url: str, refusals: Mapping[str, str] | None = None) -> bool:
    """Returns whether none of the masters answers."""
    places = _masters(url)
    return bool(places) and len(_refusals(url) if refusals is None else refusals) == len(places)


def _refusals(url: str) -> Mapping[str, str]:
    return {place: why for place in _masters(url) if (why := _refusal(place))}


def _refusal(place: str) -> str:
    """Returns why nobody answers at a place, or ""."""
    try:
        url = urlsplit(f"//{place}")
        socket.create_connection((url.hostname or "", url.port or 7077), _ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _executor(inspection: ExecutorInspection) -> Sequence[Finding]:
    failure, has_package, place, facts = inspection.run()
    if failure and has_package:
        return [fails(_EXECUTORS, f"a task on an executor ended with: {failure}", "Read the log of the executor.")]
    if failure:
        here = ".".join(platform.python_version_tuple()[:2])
        remedy = (
            f"Install dagster_airbyte_proto {package_version()} in a Python {here} on every worker, and name that by "
            "spark.pyspark.python."
        )
        return [fails(_EXECUTORS, f"an executor cannot run our tasks: {failure}", remedy)]
    if facts is None:
        found = f"an executor ran a task and did not reach this process at {place}"
        remedy = "Let executors connect to it: spark.driver.host is the host, spark.airbyteProto.port fixes the port."
        return [fails(_EXECUTORS, found, remedy)]
    return _findings(facts)


def _findings(facts: ExecutorFacts) -> Sequence[Finding]:
    if facts.faults:
        return [fails(_EXECUTORS, f"on {facts.machine} {each.found}", each.remedy) for each in facts.faults]
    version = package_version()
    return [
        ok(_EXECUTORS, f"one on {facts.machine} has Python {facts.python} with {version}, and reaches this process")
    ]
