"""Runs functions as tasks of a Spark job: one task a number, on whichever executor has a free core."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, first_line
from dagster_airbyte_proto.tables.spark.jvm.job_tags import interrupt_jobs, tagged_jobs
from dagster_airbyte_proto.tables.tasks import DriverPlace, Task

_PORT = "spark.airbyteProto.port"


class SparkTasks:
    """The TaskRunner of a Spark session."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def place(self) -> DriverPlace:
        conf: Any = self._session.sparkContext.getConf()
        host = conf.get("spark.driver.host")
        return DriverPlace(host, conf.get("spark.driver.bindAddress", host), int(conf.get(_PORT, "0")))

    @property
    def last_attempt(self) -> int | None:
        context: Any = self._session.sparkContext
        conf = context.getConf()
        # On a local master nothing is tried again, unless that itself has a number for it.
        is_local = context.master.startswith("local") and not context.master.startswith("local-cluster")
        if is_local or conf.get("spark.speculation", "false").lower() == "true":
            return None
        return int(conf.get("spark.task.maxFailures", "4")) - 1 or None

    def run(self, task: Task, count: int, tag: str) -> str:
        def run_batches(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            context = TaskContext.get()
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    task(number, context.attemptNumber() if context else 0)
                yield batch

        try:
            with tagged_jobs(self._session, tag):
                self._session.range(0, count, 1, count).mapInArrow(run_batches, "id bigint").collect()
        except (PySparkException, *CALL_ERRORS) as error:
            return _reason(error)
        return ""

    def interrupt(self, tag: str) -> None:
        interrupt_jobs(self._session, tag)


def _reason(error: Exception) -> str:
    """The last line of the Python of a task, or the first of Spark's own message."""
    _, is_python, trace = str(error).partition("Traceback (most recent call last):")
    plain = [line for line in trace.splitlines() if line.strip() and not line.startswith((" ", "\t", "JVM stacktrace"))]
    return plain[-1] if is_python and plain else first_line(error)
