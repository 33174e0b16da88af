"""What every folder's tests may use."""

import os
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.durations import junit_id, recorded, work_unit
from tests.support.everyday import has_mark_of_module, mark_nightly_unless_everyday
from tests.support.needs import lacks
from tests.support.postgres import PostgresServer, programs, running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from dagster_airbyte_proto.tables.spark.settings import SparkSettings
    from tests.support.object_stores.s3 import ObjectStore
    from tests.support.tap_home import TapHome

# A machine that is busy is no fault of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# What `make quick` can do without, beside tests that are recorded as slow.
_NEEDS_OF_OTHERS = {"spark", "docker", "postgres", "browser", "connectors", "nightly"}
# A test that has one of these fixtures has the mark, also where nobody wrote it.
_MARK_OF_FIXTURE = {"spark": "spark", "postgres_server": "postgres"}

# As a short-lived one has them; but this one lives through hundreds of tests, and without the optimising compiler a JVM
# has room for a fifth of the code, which it then drops and compiles again. And Hadoop runs chmod and readlink for each
# file that it writes, by way of a helper that takes as long as they do.
_JAVA_OPTIONS = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -Djdk.lang.Process.launchMechanism=VFORK"
)


class FailureLines:
    """A plugin that says what failed when it fails: the end of the whole run can be an hour away."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message.partition("\n")[0] if crash else "no reason"
            self._terminal.ensure_newline()
            self._terminal.write_line(f"{report.nodeid}: {report.when} failed in {report.duration:.0f} s: {reason}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out slow tests, and those that need other programs")


@pytest.hookimpl(trylast=True)  # When there is a terminal.
def pytest_configure(config: pytest.Config) -> None:
    if terminal := config.pluginmanager.getplugin("terminalreporter"):
        config.pluginmanager.register(FailureLines(terminal))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which no test would be run are not imported: each worker would do that, before the first test."""
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    left_out = _NEEDS_OF_OTHERS if config.getoption("--quick") else {"nightly"} if _is_by_day(config) else set[str]()
    return True if left_out and has_mark_of_module(collection_path, left_out) else None


@pytest.hookimpl(tryfirst=True)  # Before those of other names are deselected.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest work units first: so no worker of several is left with one while the others have nothing to do."""
    _mark_by_fixtures(items)
    mark_nightly_unless_everyday(items, is_whole=not any("::" in each for each in config.args))
    durations = recorded()
    seconds = {item: durations.get(junit_id(item.nodeid), 0.0) for item in items}
    if config.getoption("--quick"):
        slow = {item for item in items if seconds[item] or _needs_others(item)}
        config.hook.pytest_deselected(items=[*slow])
        items[:] = [item for item in items if item not in slow]
    of_unit: defaultdict[str, float] = defaultdict(float)
    for item in items:
        is_run = not (_is_by_day(config) and item.get_closest_marker("nightly"))
        of_unit[work_unit(item.nodeid)] += seconds[item] if is_run else 0.0
    items.sort(key=lambda item: (-of_unit[work_unit(item.nodeid)], work_unit(item.nodeid), str(item.path)))


@pytest.hookimpl(optionalhook=True)  # Without xdist nobody knows it.
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives out work units where it would give out files, with `--dist loadfile`."""
    from xdist.scheduler import LoadFileScheduling

    class LoadUnitScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return work_unit(nodeid)

    return LoadUnitScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def _is_by_day(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "not nightly")


def _mark_by_fixtures(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture, mark in _MARK_OF_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)


def _needs_others(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in _NEEDS_OF_OTHERS)


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory: pytest.TempPathFactory) -> "SparkSettings":
    """Settings of the tests' one session: catalog `lake` in a warehouse of this run, and Delta's catalog beside it."""
    # Importing pyspark takes most of a second, which tests without it need not wait for.
    from dagster_airbyte_proto.tables.spark.session import spark_config
    from dagster_airbyte_proto.tables.spark.settings import SparkSettings

    folder: Path = tmp_path_factory.mktemp("spark")
    iceberg = spark_config(SparkSettings(str(folder)))
    delta = spark_config(SparkSettings(str(folder), catalog="spark_catalog", format="delta"))
    config = {
        **{key: value for key, value in delta.items() if key not in iceberg},
        "spark.sql.extensions": ",".join(each["spark.sql.extensions"] for each in (iceberg, delta)),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        # Tests' tables have a few rows: each task and each stage of its own is all cost.
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        # And to compile a plan takes longer than to interpret it for them.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.databricks.delta.snapshotPartitions": "1",
        # A session has its packages from its start, and tests of other catalogs add those to this one.
        "spark.jars.packages": ",".join(
            (
                spark_config(SparkSettings("s3://bucket"))["spark.jars.packages"],
                "org.postgresql:postgresql:42.7.8",
                "org.xerial:sqlite-jdbc:3.50.3.0",
                delta["spark.jars.packages"],
            )
        ),
    }
    return SparkSettings(str(folder / "ware house"), config=config, jvm_log=folder / "jvm.log", short_lived=True)


@pytest.fixture(scope="session")
def spark(spark_settings: "SparkSettings") -> "Iterator[SparkSession]":
    """One session for each process of the test run."""
    from dagster_airbyte_proto.tables.spark.session import start_session

    session = start_session(spark_settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connector_environments(pytestconfig: pytest.Config) -> Path:
    """Where virtual environments of real connectors are built, once for all processes of all test runs: beside pytest's
    own cache, or in the folder that AIRBYTE_PROTO_TEST_CACHE names. What is in them is compiled when it is imported:
    the most of it never is."""
    os.environ.setdefault("UV_COMPILE_BYTECODE", "0")
    folder = os.environ.get("AIRBYTE_PROTO_TEST_CACHE", pytestconfig.rootpath / ".pytest_cache" / "connectors")
    environments = Path(folder).absolute()
    environments.mkdir(parents=True, exist_ok=True)
    return environments


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: to sync it costs nothing there."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(dir="/dev/shm", prefix="airbyte-proto-") as made:
        yield Path(made)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    bin_folder = programs()
    if bin_folder is None:
        lacks("postgresql", "no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    with running_server(bin_folder) as server:
        yield server


@pytest.fixture(scope="session")
def object_store() -> "Iterator[ObjectStore]":
    from tests.support.object_stores.s3 import running_store

    with running_store() as store:
        yield store


@pytest.fixture(params=["folders", pytest.param("dagster", marks=[pytest.mark.spark, pytest.mark.nightly])])
def open_tap(
    request: pytest.FixtureRequest, tmp_path: Path, connector_environments: Path
) -> "Callable[[Mapping[str, str]], TapHome]":
    """A home for a real tap, by its launch."""
    from tests.support.tap_home import Assets, Folders, TapHome

    if request.param == "folders":
        return partial(TapHome, tmp_path, connector_environments, Folders())
    spark, settings = (request.getfixturevalue(name) for name in ("spark", "spark_settings"))
    return partial(TapHome, tmp_path, connector_environments, Assets(spark, settings))
