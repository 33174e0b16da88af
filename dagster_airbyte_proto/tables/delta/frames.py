"""Frames in Delta tables: Spark's writer puts our metadata into the commit that it makes.

Delta itself keeps an append from being made twice: its load id is the application id of the transaction, as that of a
staged load is. A replacement has none, for Delta would skip the one of a step that is tried again with other rows.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.column_ids import columns_of
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, TableSpec, TableTarget
from dagster_airbyte_proto.model import IDENTITY, PartitionField, TableName
from dagster_airbyte_proto.tables.connect_client import check_same_server
from dagster_airbyte_proto.tables.delta.actions import TableMetadata
from dagster_airbyte_proto.tables.delta.connect.delta_log import DeltaLog, read_log
from dagster_airbyte_proto.tables.delta.history import commit_of_load
from dagster_airbyte_proto.tables.formats import LOAD_ID, SESSION_CATALOG
from dagster_airbyte_proto.tables.only_writer import only_writer
from dagster_airbyte_proto.tables.writer import FrameLoad

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.delta.connect.tables import RemoteDeltaTables
    from dagster_airbyte_proto.tables.delta.tables import DeltaTables


class FrameCommit(NamedTuple):
    """The commit of a frame: its version, and the rows that it added and that the table has since."""

    snapshot_id: int
    added_rows: int
    rows: int | None


class DeltaFrames(NamedTuple):
    """The tables of a writer, with a JVM or without, as those that take frames."""

    tables: "DeltaTables | RemoteDeltaTables"

    def prepare(self, name: TableName, frame: DataFrame, slice_column: str | None) -> TableTarget:
        doing = f"preparing table {self.tables.catalog}.{name}"
        if self.tables.catalog != SESSION_CATALOG:
            remedy = f"Name the table by {SESSION_CATALOG}, its namespace and its name."
            raise ConfigError(doing, f"Delta tables are in {SESSION_CATALOG} alone", remedy=remedy)
        if self.tables.abilities.is_remote:
            check_same_server(doing, frame, self.tables.open_session())
        log = self._log(name)
        return self.tables.prepare(_spec(name, _schema(doing, frame), slice_column, log.metadata if log else None))

    @contextmanager
    def writing(self, load: FrameLoad, target: TableTarget) -> Iterator[Mapping[str, str]]:
        labels = {f"airbyte-proto.{key}": value for key, value in load.labels.items()}
        metadata = {"userMetadata": json.dumps({**labels, LOAD_ID: load.load_id})}
        # Always the same version: Delta skips a load of which it has this one or a later one.
        once = {} if load.replaces else {"txnAppId": load.load_id, "txnVersion": "1"}
        with only_writer(target.location):
            yield {**metadata, **once}

    def landed(self, load_id: str, name: TableName) -> FrameCommit | None:
        log = self._log(name)
        if log is None or (commit := commit_of_load(self._log_folder(name), log.version, load_id)) is None:
            return None
        # As a rule Delta counts by its log alone.
        reader = self.tables.open_session().read.format("delta").option("versionAsOf", str(commit.version))
        rows = int(reader.load(self.tables.location(name)).count())
        return FrameCommit(commit.version, commit.row_counts[0], rows)

    def _log(self, name: TableName) -> DeltaLog | None:
        return read_log(*self._log_folder(name))

    def _log_folder(self, name: TableName) -> tuple[pa.fs.FileSystem, str]:
        return self.tables.storage.at(f"{self.tables.location(name)}/_delta_log")


def _schema(doing: str, frame: DataFrame) -> pa.Schema:
    """Returns the columns of a frame. Raises ConfigError for a type that no Delta table of ours has."""
    for field in frame.schema.fields:
        if not _has_place(field):
            found = (
                f"column {field.name} has the type {field.dataType.simpleString()}, which Delta tables do not have here"
            )
            raise ConfigError(doing, found, remedy="Cast the column to a type that they have, or drop it.")
    return to_arrow_schema(frame.schema)


def _has_place(field: StructField) -> bool:
    try:
        columns_of(to_arrow_schema(StructType([field])))
    except (TableError, PySparkException):
        return False
    return not _has_variant(field.dataType)


def _has_variant(kind: DataType) -> bool:
    """True for a VARIANT, which Arrow has as a struct, and for what contains one."""
    if isinstance(kind, StructType):
        return any(_has_variant(field.dataType) for field in kind.fields)
    if isinstance(kind, MapType):
        return _has_variant(kind.keyType) or _has_variant(kind.valueType)
    return _has_variant(kind.elementType) if isinstance(kind, ArrayType) else isinstance(kind, VariantType)


def _spec(name: TableName, schema: pa.Schema, slice_column: str | None, table: TableMetadata | None) -> TableSpec:
    """Returns the table as the frame needs it: partitioned by the slice column, or as it is."""
    by = (slice_column,) if slice_column else table.partition_columns if table else ()
    if by != (SLICE_COLUMN,):
        return TableSpec(name, schema, partitioning=tuple(PartitionField(IDENTITY, column) for column in by))
    # A table of slices has the column of its own.
    return TableSpec(
        name, pa.schema([field for field in schema if field.name != SLICE_COLUMN]), slice_column=SLICE_COLUMN
    )
