"""The Spark session: made once per process, quiet, and ending with the process.

Its JVM is a child in a session of its own, so a Ctrl-C in our terminal never reaches it, and it holds the read end of a
pipe from us, so it ends when we do, even by SIGKILL. What it prints goes to a file or to our stderr, never to stdout,
which belongs to whoever called us.
"""

import datetime
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.types import VariantVal

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.storage import CATALOG_SETTINGS, HADOOP_SETTINGS, Storage, without_file_scheme
from dagster_airbyte_proto.tables.spark.class_archive import class_archive
from dagster_airbyte_proto.tables.spark.java_home import java_home
from dagster_airbyte_proto.tables.spark.jvm_errors import CALL_ERRORS, first_line

ICEBERG_VERSION = "1.11.0"
DELTA_VERSION = "4.4.0"
_ICEBERG = "org.apache.iceberg"
_S3_FILE_IO = "org.apache.iceberg.aws.s3.S3FileIO"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_OBJECT_STORES = frozenset(("s3", "s3a", "s3n", "gs", "oss", "cos"))
_LOG_TAIL_BYTES = 2000
_LOOK_SECONDS = 0.1
_ABANDON_SECONDS = 3.0
_starting = threading.Lock()


class SparkSettings(NamedTuple):
    """How tables are reached. What `config` says wins over every default here.

    `warehouse` is a path or a URI. `jvm_log` takes what the JVM prints; without it that goes to stderr.
    `cache` is where Spark's classes are kept for the next JVM, and where a JRE from the wheel is made ready if the
    machine has no Java. `short_lived` is for a process that runs one command: its JVM starts with half the CPU, and
    computes slower once it is warm.
    """

    warehouse: str
    catalog: str = "lake"
    format: str = "iceberg"
    config: Mapping[str, str] = {}
    jvm_log: Path | None = None
    short_lived: bool = False
    cache: Path = Path("~/.cache/dagster_airbyte_proto")

    @property
    def warehouse_location(self) -> str:
        """The warehouse as tables know it: a local one as an absolute path, without a scheme."""
        location = without_file_scheme(self.warehouse)
        return location if "://" in location else str(Path(location).expanduser().absolute())


class QueryResult(NamedTuple):
    """Columns, and rows of values that JSON knows: what it lacks (dates, decimals, bytes, NaN) is text, and so is a
    VARIANT, whose JSON it is."""

    columns: tuple[str, ...]
    rows: list[list[Any]]


def spark_config(settings: SparkSettings) -> dict[str, str]:
    """The session's whole configuration: the defaults, and over them what the user set."""
    if settings.format not in _IN_FORMAT:
        known = ", ".join(_IN_FORMAT)
        found = f"table format {settings.format!r} is not known; use {known}"
        raise ConfigError("reading the Spark settings", found)
    defaults = {
        "spark.master": "local[*]",
        "spark.app.name": "airbyte-proto",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        **_IN_FORMAT[settings.format](settings),
    }
    if settings.short_lived:
        defaults[_JAVA_OPTIONS] = _SHORT_LIVED
    if not settings.config.get("spark.master", "local").startswith("local"):
        # A cluster's executors must be able to call the driver back.
        del (
            defaults["spark.driver.host"],
            defaults["spark.driver.bindAddress"],
            defaults["spark.sql.shuffle.partitions"],
        )
    config = {**defaults, **settings.config}
    return {**config, **_jars(settings, config)}


def start_session(settings: SparkSettings) -> SparkSession:
    """The process's session, started if it has none. Takes seconds the first time; safe from any thread.

    Raises ConfigError when there is no fit Java or the JVM does not start.
    """
    config = spark_config(settings)
    with _starting, kept_interrupt(), _start_refusals(settings):
        if SparkContext._active_spark_context is None:
            _start_context(settings, config)
        # A running context keeps its own settings; what belongs to the session (a catalog) is added to it.
        builder = SparkSession.builder
        for key, value in config.items():
            if key.startswith("spark.sql.catalog."):
                builder = builder.config(key, value)
        return builder.getOrCreate()


class LateSession:
    """A session that may be a function: it is called when the first table is wanted, by the thread that wants it, and
    once. What it refuses is refused to all: every table would start a JVM of its own, in vain."""

    def __init__(self, session: SparkSession | Callable[[], SparkSession]) -> None:
        self._session = session
        self._opening = threading.Lock()
        self._refusal: ConfigError | None = None

    def open(self) -> SparkSession:
        if isinstance(self._session, SparkSession):
            return self._session
        with self._opening:
            if self._refusal is not None:
                raise self._refusal
            try:
                self._session = self._session() if callable(self._session) else self._session
            except ConfigError as error:
                self._refusal = error
                raise
            return self._session


def abandon_start() -> None:
    """Kills the JVM of a session that another thread is starting; that thread's `start_session` raises ConfigError.

    For the end of a process's work: a JVM that still looks for its packages heeds neither its parent's end nor a
    signal to it, and a thread that waits for one keeps the interpreter from its end.
    """
    deadline = time.monotonic() + _ABANDON_SECONDS
    while not _starting.acquire(timeout=_LOOK_SECONDS):
        if SparkContext._active_spark_context is not None or time.monotonic() > deadline:
            return
        for child in psutil.Process().children():
            with suppress(psutil.Error, ProcessLookupError):
                if "pyspark-shell" in child.cmdline():
                    os.killpg(child.pid, signal.SIGKILL)
    _starting.release()


def query(session: SparkSession, sql: str) -> QueryResult:
    """Runs one statement and brings back all its rows. Raises TableError with Spark's own first line."""
    # pyspark logs what it is about to raise, with the Java stack, to stderr.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        # By way of Arrow: rows from `collect` have their timestamps in the time zone of this process.
        answer = session.sql(sql).toArrow()
    except CALL_ERRORS as error:
        raise TableError("running the query", first_line(error)) from error
    values = [(column.to_pylist(maps_as_pydicts="lossy"), column.type) for column in answer.columns]
    columns = [[_plain(value, kind) for value in column] for column, kind in values]
    return QueryResult(tuple(answer.column_names), [list(row) for row in zip(*columns, strict=True)])


def _for_iceberg(settings: SparkSettings) -> dict[str, str]:
    catalog = f"spark.sql.catalog.{settings.catalog}"
    config = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
    }
    if not any(key in settings.config for key in (f"{catalog}.type", f"{catalog}.catalog-impl")):
        config[f"{catalog}.type"] = "hadoop"
    if settings.config.get(f"{catalog}.type") != "rest":
        # To a REST catalog it is a name on the server, not a place.
        config[f"{catalog}.warehouse"] = settings.warehouse_location
        if settings.warehouse_location.startswith("s3://"):
            config[f"{catalog}.io-impl"] = _S3_FILE_IO
    return config


def _for_parquet(settings: SparkSettings) -> dict[str, str]:
    return {"spark.sql.warehouse.dir": settings.warehouse_location}


def _for_delta(settings: SparkSettings) -> dict[str, str]:
    return {
        "spark.sql.warehouse.dir": settings.warehouse_location,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # A table's log is read by a job of so many tasks; the default is 50.
        "spark.databricks.delta.snapshotPartitions": "2",
    }


# Without the optimising compiler and the parallel collector: 6 s of CPU to the first commit instead of 12.
_SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
if sys.platform == "linux":
    # Hadoop runs a program for each file that it writes to this machine: without a helper that takes as long again.
    _SHORT_LIVED += " -Djdk.lang.Process.launchMechanism=VFORK"

_IN_FORMAT = {"iceberg": _for_iceberg, "delta": _for_delta, "parquet": _for_parquet}
# What is needed of each format: without its version, and with it.
_PACKAGES = {
    "iceberg": (f"{_ICEBERG}:iceberg-spark-runtime-", "{spark}_2.13:" + ICEBERG_VERSION),
    "delta": ("io.delta:delta-spark_", "{spark}_2.13:" + DELTA_VERSION),
}
_S3_PACKAGE = (f"{_ICEBERG}:iceberg-aws-bundle:", ICEBERG_VERSION)
# What delta-spark asks for and Spark has, 80 MB of it.
_EXCLUDED = (
    "com.fasterxml.jackson.core:jackson-annotations",
    "com.fasterxml.jackson.core:jackson-core",
    "com.fasterxml.jackson.core:jackson-databind",
    "com.fasterxml.jackson.datatype:jackson-datatype-jdk8",
    "com.google.code.findbugs:jsr305",
    "javax.annotation:javax.annotation-api",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.logging.log4j:log4j-api",
    "org.apache.logging.log4j:log4j-core",
    "org.apache.logging.log4j:log4j-slf4j2-impl",
    "org.apache.parquet:parquet-hadoop",
    "org.roaringbitmap:RoaringBitmap",
    "org.slf4j:slf4j-api",
)


def storage_of(session: SparkSession, catalog: str) -> Storage:
    """What the session knows of object stores: from its catalog, and from Hadoop."""
    hadoop = session._jsparkSession.sessionState().newHadoopConf()
    of_catalog = {key: session.conf.get(f"spark.sql.catalog.{catalog}.{key}", None) for key in CATALOG_SETTINGS}
    of_hadoop = {key: hadoop.get(key) for key in HADOOP_SETTINGS}
    return Storage({key: value for key, value in {**of_catalog, **of_hadoop}.items() if value})


def refuse_unfenced(session: SparkSession, catalog: str, warehouse: str) -> None:
    """Raises ConfigError for tables that are folders of an object store: what makes their commits exclusive is a
    rename, which such a store has not, and two writers would undo each other's without a sign."""
    said = f"spark.sql.catalog.{catalog}"
    is_hadoop = session.conf.get(f"{said}.type", None) == "hadoop" and not session.conf.get(f"{said}.lock-impl", None)
    if is_hadoop and warehouse.partition("://")[0] in _OBJECT_STORES:
        raise ConfigError(
            f"opening catalog {catalog}",
            f"it is of type hadoop, and {warehouse} has no rename that only one writer can win",
            remedy=f"Set {said}.type to jdbc or rest, or another catalog whose commits are exclusive.",
        )


def _jars(settings: SparkSettings, config: Mapping[str, str]) -> dict[str, str]:
    """What the tables need, before the packages that the user names. Who names files has them all."""
    if settings.format not in _PACKAGES or config.get("spark.jars"):
        return {}
    theirs = [package for package in config.get("spark.jars.packages", "").split(",") if package]
    wanted = [_PACKAGES[settings.format]]
    if config.get(f"spark.sql.catalog.{settings.catalog}.io-impl") == _S3_FILE_IO:
        wanted.append(_S3_PACKAGE)
    version = ".".join(pyspark.__version__.split(".")[:2])
    ours = [name + rest.format(spark=version) for name, rest in wanted if not any(x.startswith(name) for x in theirs)]
    excluded = {"spark.jars.excludes": ",".join(_EXCLUDED)} if settings.format == "delta" else {}
    return {"spark.jars.packages": ",".join([*ours, *theirs]), **excluded}


def _start_context(settings: SparkSettings, config: Mapping[str, str]) -> None:
    # pyspark reads it from the environment of this process, and from nowhere else.
    cache = settings.cache.expanduser()
    home = java_home(cache, os.environ)
    os.environ["JAVA_HOME"] = str(home)
    with class_archive(cache, home, Path(pyspark.__file__).parent / "jars") as options:
        SparkContext(conf=_conf(config), gateway=SparkContext._gateway or _gateway(settings, config, options))


@contextmanager
def _start_refusals(settings: SparkSettings) -> Iterator[None]:
    """A JVM that does not come up, or that is killed while it does, as an error of ours with its last words."""
    try:
        yield
    except (PySparkException, *CALL_ERRORS) as error:
        raise ConfigError(
            "starting Spark",
            first_line(error),
            remedy=f"{_last_words(settings.jvm_log)}\n"
            "Without a network to Maven Central, set spark.jars to the file of the tables' runtime.",
        ) from error


def _gateway(settings: SparkSettings, config: Mapping[str, str], options: Sequence[str]) -> Any:
    # These go to the JVM's command line, which everybody on the machine can read; credentials stay off it.
    at_launch = {key: value for key, value in config.items() if not key.startswith(("spark.sql.", "spark.hadoop."))}
    quoted_options = (f'"{option}"' for option in options)
    at_launch[_JAVA_OPTIONS] = " ".join([at_launch.get(_JAVA_OPTIONS, ""), *quoted_options]).strip()
    with _jvm_output(settings.jvm_log) as output:
        streams = {"stdout": output, "stderr": output, "start_new_session": True}
        return launch_gateway(_conf(at_launch), streams)  # type: ignore[no-untyped-call]  # pyspark does not annotate it


@contextmanager
def _jvm_output(log: Path | None) -> Iterator[int]:
    if log is None:
        yield sys.__stderr__.fileno() if sys.__stderr__ else 2
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        yield file.fileno()


def _conf(config: Mapping[str, str]) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll(list(config.items()))


def _last_words(log: Path | None) -> str:
    if log is None or not log.is_file():
        return "What the JVM said is on the stderr of this process."
    return f"The JVM said:\n{log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors='replace').strip()}"


@contextmanager
def kept_interrupt() -> Iterator[None]:
    """SparkContext puts its own SIGINT handler in, where it is made on the main thread; ours comes back.

    For whatever may start a session: `start_session` does it by itself.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGINT, handler)


def _plain(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, dict):
        if _is_variant(kind):
            return VariantVal(value["value"], value["metadata"]).toJson()
        if pa.types.is_map(kind):
            return {str(_plain(name, kind.key_type)): _plain(item, kind.item_type) for name, item in value.items()}
        return {name: _plain(item, kind.field(name).type) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, kind.value_type) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    is_number = value is None or (isinstance(value, bool | int | float) and math.isfinite(value))
    return value if is_number else str(value)


def _is_variant(kind: pa.DataType) -> bool:
    """As Spark marks one."""
    return pa.types.is_struct(kind) and any((field.metadata or {}).get(b"variant") == b"true" for field in kind)
