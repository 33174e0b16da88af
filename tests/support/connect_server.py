"""A Spark Connect server for tests: pyspark's own, with an Iceberg catalog in SQLite, and Delta's as the session's."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.spark.jvm.jar_downloads import download_lock
from dagster_airbyte_proto.tables.spark.jvm.java_home import java_home
from dagster_airbyte_proto.tables.spark.session import spark_config
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.support.network.ports import free_port

Connect = Callable[[], SparkSession]
"""Opens a session of its own."""

_PATIENCE_SECONDS = 120.0
_CACHE = SparkSettings("").cache.expanduser()
_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
_TOKEN = "spark.connect.authenticate.token"
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djdk.lang.Process.launchMechanism=VFORK"


class ConnectServer(NamedTuple):
    """A running server: its URL, its process, and the warehouse, which lies on this machine."""

    url: str
    process: "subprocess.Popen[bytes]"
    warehouse: Path


@contextmanager
def running_server(
    folder: Path, *, port: int = 0, token: str = "", catalog: Mapping[str, str] | None = None
) -> Iterator[ConnectServer]:
    """Yields a server with the catalogs `lake` (Iceberg) and `spark_catalog` (Delta), which may demand a token.

    `catalog` has the properties of `lake` in the place of those of a catalog in SQLite.
    """
    port = port or free_port()
    warehouse = folder / "ware house"
    in_sqlite = {
        "warehouse": str(warehouse),
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}?busy_timeout=20000",
        "jdbc.schema-version": "V1",
    }
    config = {**_config(warehouse, folder, port), **({_TOKEN: token} if token else {})}
    config |= {f"spark.sql.catalog.lake.{name}": value for name, value in (catalog or in_sqlite).items()}
    with ExitStack() as server:
        with download_lock(_CACHE, config, threading.Event()):
            process = server.enter_context(_process(_command(config), folder / "server.log"))
            _wait(process, port, folder / "server.log")
        yield ConnectServer(f"sc://127.0.0.1:{port}", process, warehouse)


@contextmanager
def sessions(server: ConnectServer) -> Iterator[Connect]:
    """Connects anew, beside a session with a JVM that the process may have."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    opened: list[RemoteSession] = []

    def session() -> SparkSession:
        opened.append(RemoteSession.builder.remote(server.url).create())
        return opened[-1]  # type: ignore[return-value]  # one has no class of the other

    yield session
    for each in opened:
        for one in (vars(each).get("_airbyte_proto_copy"), each):
            if one is not None:  # Else Python does it at its end, and waits for a server that is gone.
                one.client.close()


@contextmanager
def _process(command: Sequence[str], log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=_environment(), start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # A test has killed it.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_alone(script: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Runs Python in a process of its own, which has no session with a JVM."""
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        env=without_spark(),
        check=False,
    )


def without_spark() -> dict[str, str]:
    """The environment of a process that has no session yet."""
    return {key: value for key, value in os.environ.items() if "SPARK" not in key}


def _config(warehouse: Path, folder: Path, port: int) -> dict[str, str]:
    iceberg = spark_config(SparkSettings(str(warehouse)))
    del iceberg["spark.sql.catalog.lake.warehouse"]  # A REST catalog takes it for the name of one of its own.
    delta = spark_config(SparkSettings(str(warehouse), catalog="spark_catalog", format="delta"))
    packages = [iceberg["spark.jars.packages"], delta["spark.jars.packages"], "org.xerial:sqlite-jdbc:3.50.3.0"]
    return {
        **delta,
        **iceberg,
        "spark.jars.packages": ",".join(packages),
        "spark.sql.extensions": ",".join(each["spark.sql.extensions"] for each in (iceberg, delta)),
        "spark.sql.warehouse.dir": str(folder / "delta"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.databricks.delta.snapshotPartitions": "1",
    }


def _command(config: Mapping[str, str]) -> list[str]:
    settings = [word for key, value in config.items() if value for word in ("--conf", f"{key}={value}")]
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    return [str(submit), "--class", _MAIN, *settings, "spark-internal"]


def _environment() -> dict[str, str]:
    home = java_home(_CACHE, os.environ)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    return {**kept, "JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()[-2000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"the Connect server did not start: {log.read_text()[-2000:]}")
