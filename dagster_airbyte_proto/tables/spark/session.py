"""The Spark session: one for each process, quiet, and ending with the process.

- The JVM is a child in an operating system session of its own, so a Ctrl-C in our terminal does not reach it.
- The JVM holds the read end of a pipe from us, so it ends when we do, even by SIGKILL.
- Its output goes to a file or to our stderr (`jvm/output.py`), never to stdout, which belongs to our caller.
"""

import datetime
import math
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.types import VariantVal

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.object_stores.known import spark_settings
from dagster_airbyte_proto.loads.object_stores.store import scheme_of
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.vended import CredentialSource
from dagster_airbyte_proto.project_folder import expanded
from dagster_airbyte_proto.tables.connect_client import connect, opened_by_user
from dagster_airbyte_proto.tables.formats import SparkParts, find_format
from dagster_airbyte_proto.tables.remote_sessions import check_has_jvm, check_one_kind, is_remote
from dagster_airbyte_proto.tables.spark.jvm.class_archive import class_archive
from dagster_airbyte_proto.tables.spark.jvm.errors import (
    CALL_ERRORS,
    REMOTE_ERRORS,
    first_line,
    is_server_lost,
    log_no_raised_errors,
)
from dagster_airbyte_proto.tables.spark.jvm.hadoop_settings import hadoop_settings
from dagster_airbyte_proto.tables.spark.jvm.jar_downloads import download_lock, setting_items
from dagster_airbyte_proto.tables.spark.jvm.java_home import java_home
from dagster_airbyte_proto.tables.spark.jvm.output import jvm_output, last_output
from dagster_airbyte_proto.tables.spark.jvm.starts import given_up, one_start_at_a_time
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.spark.unknown_names import is_missing_table

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# The JVM's command line can be read by everyone on the machine. Credentials must stay off it.
_OFF_THE_COMMAND_LINE = ("spark.sql.", "spark.hadoop.", "spark.executorEnv.")
# Settings that `SET`, the UI and event logs show masked, by their keys or values. Spark's own list lacks the credential
# and the headers of a REST catalog, keys of encryption and of Google's accounts, and URLs with a password.
_SECRETS = (
    "(?i)secret|password|token|(access|account|private|encryption|sse)[.-]?key|credential|connection-string"
    r"|authorization|://[^/@\s]+:[^/@\s]+@"
)
_STORES_WITHOUT_RENAME = frozenset(("s3", "s3a", "s3n", "gs", "gcs", "oss", "cos"))
_CYCLE_DAYS = 146_097  # those of 400 years, after which the calendar repeats itself


class QueryResult(NamedTuple):
    """The columns and rows of a query, in values that JSON has.

    Dates and times, decimals, bytes and NaN are text. A VARIANT is the text of its JSON.
    """

    columns: tuple[str, ...]
    rows: list[list[Any]]


def spark_config(settings: SparkSettings) -> dict[str, str]:
    """Returns the session's whole configuration: the defaults, and over them what the user set."""
    parts = find_format(settings.format).spark_parts(settings)
    defaults = {
        "spark.master": "local[*]",
        "spark.app.name": "airbyte-proto",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.redaction.regex": _SECRETS,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        **parts.config,
    }
    if settings.short_lived:
        defaults[_JAVA_OPTIONS] = _SHORT_LIVED
    if not settings.config.get("spark.master", "local").startswith("local"):
        # The executors of a cluster must be able to reach the driver.
        del (
            defaults["spark.driver.host"],
            defaults["spark.driver.bindAddress"],
            defaults["spark.sql.shuffle.partitions"],
        )
    config = {**defaults, **settings.config}
    return {**config, **_jars(parts, config)}


def start_session(settings: SparkSettings) -> SparkSession:
    """Returns the process's session, and starts it if there is none, which takes seconds. Safe from any thread.

    With `spark.remote` it is one of Spark Connect, on the server of that URL.

    Raises ConfigError when there is no Java of a fit version, the JVM does not start, or the process has a session of
    the other kind.
    """
    if settings.is_remote:
        return connect(settings)
    if os.environ.get("SPARK_REMOTE") and SparkContext._active_spark_context is None:
        raise ConfigError(
            "starting Spark",
            "the environment has SPARK_REMOTE, by which Spark refuses to start here",
            remedy="Unset it; or name that server by spark.remote in the settings or SparkSessionResource(remote=…).",
        )
    check_one_kind("starting Spark", remote=False)
    config = spark_config(settings)
    with one_start_at_a_time(), keep_interrupt_handler(), _translated_start_errors(settings):
        if SparkContext._active_spark_context is None:
            _start_context(settings, config)
        # A running context keeps its own settings. Only those of the session (its catalogs) can still be added.
        builder = SparkSession.builder
        for key, value in config.items():
            if key.startswith("spark.sql.catalog."):
                builder = builder.config(key, value)
        return builder.getOrCreate()


class LazySession:
    """A session that is opened when the first table needs it.

    A `session` that is a function is called once, by the thread that needs it first. If it raises ConfigError, every
    later `open` raises the same: else each table would start a JVM of its own in vain. It is called again where the
    session was closed: a server of Spark Connect that was started again no longer knows it. Raises ConfigError for a
    session of Spark Connect where it must be one that `has_jvm`.
    """

    def __init__(self, session: SparkSession | Callable[[], SparkSession], *, has_jvm: bool = True) -> None:
        self._session = session
        self._opened: Any = None if callable(session) else session
        self._has_jvm = has_jvm
        self._opening = threading.Lock()
        self._refusal: ConfigError | None = None

    def open(self) -> SparkSession:
        if isinstance(self._session, SparkSession):
            return self._session
        with self._opening:
            if self._refusal is not None:
                raise self._refusal
            if callable(self._session) and (self._opened is None or getattr(self._opened, "is_stopped", False)):
                self._opened = self._opened_anew(self._session)
            if self._has_jvm:
                check_has_jvm("opening the tables", "they", self._opened)
            return cast(SparkSession, self._opened)

    def _opened_anew(self, session: Callable[[], SparkSession]) -> SparkSession:
        try:
            return opened_by_user(session)
        except ConfigError as error:
            self._refusal = error
            raise


_ODD_NAMES = (
    "Write it as the report of its sync does. Delta and Parquet tables whose names have other characters than ASCII"
    " letters, digits and _ are named by their path."
)


def query(session: SparkSession, sql: str) -> QueryResult:
    """Runs one statement and returns all its rows. Raises TableError with the first line of Spark's message."""
    log_no_raised_errors()
    try:
        # Through Arrow: rows from `collect` have timestamps in the time zone of this process.
        answer = session.sql(sql).toArrow()
    except (*CALL_ERRORS, *REMOTE_ERRORS) as error:
        remedy = _ODD_NAMES if isinstance(error, PySparkException) and is_missing_table(error) else ""
        if isinstance(error, PySparkException) and is_server_lost(error):
            remedy = "Does the Connect server run, and may this machine reach it? Run the query again then."
        raise TableError("running the query", first_line(error), remedy=remedy) from error
    columns = [[_plain(value, each.type) for value in _python_values(each)] for each in answer.columns]
    return QueryResult(tuple(answer.column_names), [list(row) for row in zip(*columns, strict=True)])


def query_rows(session: SparkSession, sql: str) -> Iterator[list[Any]]:
    """Runs one statement and returns its rows one by one: they need not fit into memory. They may have text and numbers
    alone. Raises TableError with the first line of Spark's message."""
    log_no_raised_errors()
    try:
        for row in session.sql(sql).toLocalIterator():
            yield list(row)
    except (*CALL_ERRORS, *REMOTE_ERRORS) as error:
        raise TableError("running the query", first_line(error)) from error


# Without the optimising compiler and the parallel collector: 6 s of CPU to the first commit instead of 12.
_SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
if sys.platform == "linux":
    # Hadoop runs a program for each file that it writes to this machine. Java's default way through a helper process
    # doubles the time of each.
    _SHORT_LIVED += " -Djdk.lang.Process.launchMechanism=VFORK"


def session_storage(session: SparkSession, catalog: str, source: CredentialSource | None = None) -> Storage:
    """Returns the session's settings for object stores, from its catalog and from Hadoop; and from a source, if any."""
    return Storage({**spark_settings(session.conf.getAll, catalog), **hadoop_settings(session)}, source)


def has_file_system(session: SparkSession, location: str) -> bool:
    """Returns whether Spark can write files of its own at a location: Hadoop has a file system for its scheme.

    Tables need none, for they have a FileIO. A server of Spark Connect is taken to have what its tables need.
    """
    scheme = scheme_of(location)
    if not scheme or is_remote(session):
        return True
    java = cast(Any, session)
    try:
        java._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(
            scheme, java._jsparkSession.sessionState().newHadoopConf()
        )
    except Py4JJavaError:
        return False
    return True


def check_exclusive_commits(session: SparkSession, catalog: str, warehouse: str) -> None:
    """Raises ConfigError for a `hadoop` catalog in an object store.

    Such a catalog makes commits exclusive by a rename, which an object store does not have: two writers would silently
    undo each other's commits.
    """
    key = f"spark.sql.catalog.{catalog}"
    is_hadoop = session.conf.get(f"{key}.type", None) == "hadoop" and not session.conf.get(f"{key}.lock-impl", None)
    if is_hadoop and scheme_of(warehouse) in _STORES_WITHOUT_RENAME:
        raise ConfigError(
            f"opening catalog {catalog}",
            f"it is of type hadoop, and {warehouse} has no rename that only one writer can win",
            remedy=f"Set {key}.type to jdbc or rest, or another catalog whose commits are exclusive.",
        )


def _jars(parts: SparkParts, config: Mapping[str, str]) -> dict[str, str]:
    """Returns the jars that the tables need, before the user's packages. None if the user sets `spark.jars`."""
    if not parts.packages or config.get("spark.jars"):
        return {}
    theirs = setting_items(config, "spark.jars.packages")
    version = ".".join(pyspark.__version__.split(".")[:2])
    ours = [
        each.coordinates(version)
        for each in parts.packages
        if not any(package.startswith(each.name) for package in theirs)
    ]
    excluded = {"spark.jars.excludes": ",".join(parts.excluded)} if parts.excluded else {}
    return {"spark.jars.packages": ",".join([*ours, *theirs]), **excluded}


def _start_context(settings: SparkSettings, config: Mapping[str, str]) -> None:
    # pyspark takes JAVA_HOME only from the environment of this process.
    cache = expanded(settings.cache)
    home = java_home(cache, os.environ)
    os.environ["JAVA_HOME"] = str(home)
    if named := config.get("spark.pyspark.python"):
        # Spark reads this setting only where it starts the driver's Python itself.
        os.environ["PYSPARK_PYTHON"] = named
    if config["spark.master"].startswith("local"):
        # Else Spark's workers are the first python3 of the PATH, which need not have our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = Path(pyspark.__file__).parent / "jars"
    with class_archive(cache, home, jars) as options, jvm_output(settings.jvm_log) as output:
        with download_lock(cache, config, given_up):
            gateway = SparkContext._gateway or _gateway(config, options, output)
        SparkContext(conf=_conf(config), gateway=gateway)


@contextmanager
def _translated_start_errors(settings: SparkSettings) -> Iterator[None]:
    """Turns the failure of a JVM to start, or its death meanwhile, into a ConfigError with its last output."""
    try:
        yield
    except (PySparkException, *CALL_ERRORS) as error:
        raise ConfigError(
            "starting Spark",
            first_line(error),
            remedy=f"{last_output(settings.jvm_log)}\n"
            "Without a network to Maven Central, set spark.jars to the file of the tables' runtime.",
        ) from error


def launch_config(config: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings for the JVM's command line. All others, secrets among them, it gets once it runs."""
    return {
        key: value
        for key, value in config.items()
        if not key.startswith(_OFF_THE_COMMAND_LINE) and not re.search(_SECRETS, key)
    }


def _gateway(config: Mapping[str, str], options: Sequence[str], output: int) -> Any:
    at_launch = launch_config(config)
    quoted_options = (f'"{option}"' for option in options)
    at_launch[_JAVA_OPTIONS] = " ".join([at_launch.get(_JAVA_OPTIONS, ""), *quoted_options]).strip()
    streams = {"stdout": output, "stderr": output, "start_new_session": True}
    return launch_gateway(_conf(at_launch), streams)  # type: ignore[no-untyped-call]  # pyspark does not annotate it


def _conf(config: Mapping[str, str]) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll(list(config.items()))


@contextmanager
def keep_interrupt_handler() -> Iterator[None]:
    """Restores the SIGINT handler, which SparkContext replaces when it is created on the main thread.

    For code that calls a function of the user which may start a session. `start_session` does it by itself.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGINT, handler)


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    try:
        return cast(list[Any], column.to_pylist(maps_as_pydicts="lossy"))
    except (OverflowError, ValueError):  # A time before the year 1 or after 9999: Python has none.
        return [_python_value(each) for each in column]


def _python_value(scalar: Any) -> Any:
    """The value of a scalar, in which a time that Python does not have is text."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_map(kind):
        return {_python_value(item["key"]): _python_value(item["value"]) for item in scalar.values}
    if pa.types.is_struct(kind):
        return {name: _python_value(item) for name, item in scalar.items()}
    if pa.types.is_list(kind):
        return [_python_value(item) for item in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        is_date = pa.types.is_date(kind)
        days, rest = (scalar.value, 0) if is_date else divmod(scalar.value, 86_400_000_000)  # microseconds, in Spark
        cycles, days = divmod(days, _CYCLE_DAYS)
        first = datetime.datetime(1970, 1, 1, tzinfo=None if is_date or not kind.tz else datetime.UTC)
        near = first + datetime.timedelta(days, microseconds=rest)
        return f"{near.year + 400 * cycles:04}{(near.date() if is_date else near).isoformat()[4:]}"


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
    """Returns whether a type is a VARIANT, by the mark that Spark sets in its metadata."""
    return pa.types.is_struct(kind) and any((field.metadata or {}).get(b"variant") == b"true" for field in kind)
