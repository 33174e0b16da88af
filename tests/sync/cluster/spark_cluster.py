"""A standalone Spark cluster on loopback: a master and two workers of one core each.

The workers have addresses of their own, as of two machines: Spark starts no speculative attempt on the machine of the
first."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil
import pyspark
import requests

from dagster_airbyte_proto.tables.spark.jvm.java_home import java_home
from tests.support.network.ports import free_ports

_LOOPBACK = "127.0.0.1"
_WORKERS = 2
_DEADLINE_SECONDS = 120.0
_ROOT = Path(__file__).parents[3]


class SparkCluster:
    """A running cluster. `settings` are those of a session on it, `pids` those of its workers."""

    def __init__(self, port: int, page: int, pids: Sequence[int], folder: Path) -> None:
        self._page = page
        self.pids = pids
        self.settings = {
            "spark.master": f"spark://{_LOOPBACK}:{port}",
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": str(_WORKERS),
            "spark.pyspark.python": sys.executable,
            "spark.executorEnv.PYTHONPATH": str(_ROOT),
            "spark.executorEnv.SPARK_LOCAL_IP": _LOOPBACK,
            "spark.executorEnv.AIRBYTE_PROTO_EXECUTOR_HOME": str(folder / "executor-home"),
        }

    @property
    def workers_alive(self) -> int:
        """The number of workers that the master knows."""
        try:
            return int(requests.get(f"http://{_LOOPBACK}:{self._page}/json/", timeout=5).json()["aliveworkers"])
        except requests.RequestException:  # It does not listen yet, or has no answer yet.
            return 0

    def executors(self) -> list[psutil.Process]:
        """The JVMs of its executors."""
        return [each for each in self.processes() if "CoarseGrainedExecutorBackend" in _command(each)]

    def python_workers_with(self, word: str) -> list[psutil.Process]:
        """The Python processes of executors among whose children is a command with this word."""
        return [
            each
            for each in self.processes()
            if "pyspark.daemon" in _command(each) and any(word in _command(child) for child in _children(each))
        ]

    def processes(self) -> Iterator[psutil.Process]:
        """All that its workers have started."""
        for pid in self.pids:
            yield from psutil.Process(pid).children(recursive=True)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # It has just ended.
        return ""


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []


@contextmanager
def running_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Starts a cluster whose logs and work lie in the folder, and ends it with all of its executors."""
    port, page = free_ports(2)
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home(Path("~/.cache/dagster_airbyte_proto").expanduser(), os.environ)),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with ExitStack() as opened:
        log = opened.enter_context((folder / "cluster.log").open("wb"))
        commands = [["master.Master", "--port", str(port), "--host", _LOOPBACK, "--webui-port", str(page)]]
        for number in range(_WORKERS):
            own = ["--cores", "1", "--memory", "700m", "--work-dir", str(folder / f"work-{number}")]
            at = ["--host", f"127.0.0.{2 + number}", "--webui-port", "0"]
            commands.append(["worker.Worker", *own, *at, f"spark://{_LOOPBACK}:{port}"])
        pids = [opened.enter_context(_started(command, environment, log)) for command in commands]
        cluster = SparkCluster(port, page, pids[1:], folder)
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while cluster.workers_alive < _WORKERS:
            assert time.monotonic() < deadline, (folder / "cluster.log").read_text()
            time.sleep(0.2)
        yield cluster


@contextmanager
def _started(command: Sequence[str], environment: dict[str, str], log: IO[bytes]) -> Iterator[int]:
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    name, *words = command
    words = [str(program), f"org.apache.spark.deploy.{name}", *words]
    with subprocess.Popen(words, env=environment, stdout=log, stderr=log) as process:
        try:
            yield process.pid
        finally:
            for child in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):  # It has just ended.
                    child.kill()
            process.kill()
