"""An Iceberg table, opened for what is done to it apart from syncs: its Java object, and what it says of itself."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.tables.iceberg.log import TableLog
from dagster_airbyte_proto.tables.spark.jvm_errors import CALL_ERRORS, first_line


class _Shown(msgspec.Struct, frozen=True, rename="kebab"):
    snapshot_id: int
    timestamp_ms: int


class WholeLog(TableLog, frozen=True, rename="kebab"):
    """With what readers were shown, one after the other."""

    snapshot_log: tuple[_Shown, ...] = ()
    properties: Mapping[str, str] = {}


# Made here, in one thread: two that use a type for the first time at once can crash msgspec.
_LOG = msgspec.json.Decoder(WholeLog)


class OpenTable(NamedTuple):
    """A handle on a table, and what it was when it was opened."""

    table: Any
    log: WholeLog


def opened(session: SparkSession, qualified: str) -> OpenTable:
    """The table as it is now. The handle is the session's: whoever else opens the table refreshes it."""
    jvm: Any = session._jvm
    # A catalog is made from the config of the thread's session, and a new thread of the gateway has none.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, qualified)
    # The catalog's own copy may be half a minute old.
    table.refresh()
    metadata = table.operations().current()
    return OpenTable(table, _LOG.decode(jvm.org.apache.iceberg.TableMetadataParser.toJson(metadata)))


def actions(session: SparkSession) -> Any:
    """What Iceberg does to tables by jobs of Spark."""
    jvm: Any = session._jvm
    return jvm.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession)


@contextmanager
def refusals(doing: str) -> Iterator[None]:
    """Java's exceptions as ours, in one line."""
    try:
        yield
    except CALL_ERRORS as error:
        raise TableError(doing, first_line(error)) from error
