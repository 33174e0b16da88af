"""Opens an Iceberg table for care: its Java object, and its metadata with the log of what readers saw; and reads single
files of it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import msgspec
import pyspark
from py4j.java_gateway import JavaMember
from py4j.protocol import STATIC_PREFIX
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto.errors import CommitUnknown, TableError
from dagster_airbyte_proto.tables.iceberg.log import FullTableLog
from dagster_airbyte_proto.tables.only_writer import only_writer
from dagster_airbyte_proto.tables.spark.jvm.errors import (
    NO_OUTCOME,
    SESSION_ERRORS,
    failure_of,
    first_line,
    lacks_table,
)
from dagster_airbyte_proto.tables.spark.jvm.java_values import use_session

_LOG = msgspec.json.Decoder(FullTableLog)


class OpenedTable(NamedTuple):
    """A handle on a table (Java's), and the table's metadata when it was opened."""

    table: Any
    log: FullTableLog


def open_table(session: SparkSession, qualified: str) -> OpenedTable:
    """Opens the table as it is now. The session shares the handle: anyone else who opens the table refreshes it."""
    jvm: Any = session._jvm
    use_session(session)
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, qualified)
    # The catalog's cached copy may be 30 s old.
    table.refresh()
    metadata = table.operations().current()
    return OpenedTable(table, _LOG.decode(jvm.org.apache.iceberg.TableMetadataParser.toJson(metadata)))


def alone(table: Any) -> AbstractContextManager[None]:
    """While it is entered, no other process of this machine commits to the table (Java's), if it lies on it."""
    return only_writer(str(table.location()))


def spark_actions(session: SparkSession) -> Any:
    """Returns Iceberg's maintenance actions, which run as Spark jobs."""
    jvm: Any = session._jvm
    return jvm.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession)


@contextmanager
def staged_tasks(session: SparkSession, table: Any, tasks: Any, group: str) -> Iterator[DataFrame]:
    """Yields the rows of a list of scan tasks (Java's) as a frame, which can be read until the end of the block.

    Iceberg's own compaction reads its files in this way. The group names the tasks in Iceberg's registry.
    """
    jvm: Any = session._jvm
    spark = jvm.org.apache.iceberg.spark
    cache, registry = _table_cache(session), spark.ScanTaskSetManager.get()
    use_session(session)  # Tables and tasks are registered with it.
    cache.add(group, table)
    registry.stageTasks(table, group, tasks)
    try:
        reader = session.read.format("iceberg").option("scan-task-set-id", group)
        # Iceberg 1.12.0 takes a table with VARIANT columns for one that can be read in batches, and fails.
        has_variants = "variant" in str(table.schema())
        yield (reader.option("vectorization-enabled", "false") if has_variants else reader).load(group)
    finally:
        cache.remove(group)
        registry.removeTasks(table, group)


def _table_cache(session: SparkSession) -> Any:
    """Returns Iceberg's `SparkTableCache.get()`.

    py4j resolves the attribute `get` to the first method of that name, which differs between JVMs and may be the one of
    an instance. A call over the class name finds the static method without arguments.
    """
    gateway: Any = session.sparkContext._gateway
    name = f"{STATIC_PREFIX}org.apache.iceberg.spark.SparkTableCache"
    return JavaMember("get", None, name, gateway._gateway_client)()


@contextmanager
def table_errors(doing: str, *, commits: bool = False) -> Iterator[None]:
    """Raises Java's exceptions as TableError, with the first line of their message.

    If the block `commits`, an error that leaves open whether it did is CommitUnknown.
    """
    try:
        yield
    except SESSION_ERRORS as error:
        if lacks_table(error):
            raise TableError(doing, "there is no such table", remedy="Was it dropped, or renamed?") from error
        if commits and failure_of(error) in NO_OUTCOME:
            raise CommitUnknown(doing, first_line(error)) from error
        raise TableError(doing, first_line(error)) from error
