"""Reads and writes tables as Spark DataFrames. A frame is written by a Spark job, not by reference.

- The write puts a load id into the table's log, as a staged load does. By it the snapshot is found again, and an
  append that is repeated is not made twice.
- The write is not fenced: where two runs append at the same time, both appends land.
- What differs by format is behind `FrameTables`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyspark
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import NullType, StringType, StructField, StructType

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.connect_client import opened_by_user
from dagster_airbyte_proto.tables.formats import SESSION_CATALOG
from dagster_airbyte_proto.tables.remote_sessions import is_remote
from dagster_airbyte_proto.tables.spark.jvm.errors import first_line
from dagster_airbyte_proto.tables.spark.session import keep_interrupt_handler
from dagster_airbyte_proto.tables.sql_names import is_by_folder, quoted
from dagster_airbyte_proto.tables.writer import FrameLoad, FrameTables, Slices


class TableSelection(NamedTuple):
    """The part of a table to read. Without arguments it is the whole table as of now. Nothing else is read."""

    columns: tuple[str, ...] = ()
    slices: Slices | None = None
    snapshot_id: str | None = None


class WrittenTable(NamedTuple):
    """The result of a write.

    `columns` are the table's, with their types in SQL. `table_rows` is None where deletes leave it open. `was_there` is
    true if an earlier attempt had appended the frame.
    """

    table: str
    location: str
    columns: tuple[tuple[str, str], ...]
    snapshot_id: str
    rows: int
    table_rows: int | None
    was_there: bool


def open_catalog(session: Callable[[], SparkSession], catalog: str) -> SparkSession:
    """Opens a session that the user made. Raises ConfigError where it does not know the catalog."""
    with keep_interrupt_handler():
        found = opened_by_user(session)
    key = f"spark.sql.catalog.{catalog}"
    if catalog != SESSION_CATALOG and found.conf.get(key, None) is None:
        raise ConfigError(
            f"opening catalog {catalog}",
            f"the Spark session has no {key}",
            remedy="Set it, its `.type` and `.warehouse`, and the Iceberg jar in the Spark resource's config, or use a "
            "SparkSessionResource, which does all that.",
        )
    return found


def read_table(session: SparkSession, table: str, wanted: TableSelection) -> DataFrame:
    """Returns a table, by its name in SQL, as a frame that reads no more than is wanted.

    Raises ConfigError for a table, column or snapshot that is not there. Of no slices nothing is read, so there need
    not be a table: an asset that depends on its own partition before has none when its first one is made.
    """
    if wanted.slices is not None and not wanted.slices.values and not session.catalog.tableExists(table):
        return session.createDataFrame([], StructType([]))
    frame = _table(session, table, wanted.snapshot_id)
    if wanted.slices is not None:
        field = _fields(frame, table, [wanted.slices.column])[0]
        frame = frame.filter(_is_one_of(field, wanted.slices.values))
    if wanted.columns:
        names = [field.name for field in _fields(frame, table, wanted.columns)]
        frame = frame.select(*(f.col(quoted(name)) for name in names))
    return frame


def from_arrow(session: SparkSession, rows: pa.Table) -> DataFrame:
    if rows.num_rows or not is_remote(session):
        return session.createDataFrame(rows)
    # A client of Spark Connect takes a schema from Arrow only where there are rows.
    without_zone = session.conf.get("spark.sql.timestampType", None) == "TIMESTAMP_NTZ"
    return session.createDataFrame([], from_arrow_schema(rows.schema, prefer_timestamp_ntz=without_zone))


def write_table(tables: FrameTables, frame: DataFrame, load: FrameLoad) -> WrittenTable:
    """Creates the table or adds the columns that it lacks, then writes the frame. Readers see all of it or nothing.

    A replacement without rows empties the slices, or the table. Raises ConfigError for a frame that no table can take.
    Errors from computing the frame pass through unchanged.
    """
    frame = _with_slice_column(_without_untyped_columns(frame, load.table), load)
    target = tables.prepare(load.table, frame, load.slices.column if load.slices else None)
    existing = frame.sparkSession.read.table(target.qualified)
    columns = tuple((field.name, field.dataType.simpleString()) for field in existing.schema.fields)
    landed = None if load.replaces else tables.landed(load.load_id, load.table)
    was_there = landed is not None
    if not was_there:
        with tables.writing(load, target) as options:
            _commit(_in_columns_of(existing, frame), target.qualified, load, options)
        landed = tables.landed(load.load_id, load.table)
    found = (str(landed.snapshot_id), landed.added_rows, landed.rows) if landed else ("", 0, None)
    return WrittenTable(target.qualified, target.location, columns, *found, was_there=was_there)


def _commit(frame: DataFrame, table: str, load: FrameLoad, options: Mapping[str, str]) -> None:
    writer = frame.writeTo(table).options(**options)
    if not load.replaces:
        writer.append()
    elif load.slices is None:
        writer.overwrite(f.lit(True))
    else:
        # By a filter: Spark's dynamic overwrite would leave a slice alone for which the frame has no rows.
        field = _fields(frame, table, [load.slices.column])[0]
        writer.overwrite(_is_one_of(field, load.slices.values))


def _table(session: SparkSession, table: str, snapshot_id: str | None) -> DataFrame:
    reader = session.read.option("versionAsOf", snapshot_id) if snapshot_id else session.read
    try:
        # The session may know the table as it was before another process wrote to it. It knows no folders.
        if not is_by_folder(table):
            session.catalog.refreshTable(table)
        frame = reader.table(table)
        # On Spark Connect a frame is looked at only when something of it is needed.
        _ = frame.schema
        return frame
    except (AnalysisException, IllegalArgumentException) as error:  # the latter for a snapshot that is not there
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            raise ConfigError(
                f"reading table {table}",
                "there is no such table",
                remedy="Materialize its asset first, or name another one by the asset's metadata dagster/table_name.",
            ) from error
        raise ConfigError(f"reading table {table}", first_line(error)) from error


def _fields(frame: DataFrame, table: str, names: Sequence[str]) -> list[StructField]:
    """Returns the frame's fields of these names, without regard to case. Raises ConfigError for a missing one."""
    known = {field.name.casefold(): field for field in frame.schema.fields}
    if missing := [name for name in names if name.casefold() not in known]:
        raise ConfigError(
            f"looking for columns of table {table}",
            f"there is no {', '.join(missing)}",
            remedy=f"It has {', '.join(field.name for field in known.values())}.",
        )
    return [known[name.casefold()] for name in names]


def _is_one_of(field: StructField, values: Sequence[str]) -> Column:
    literals = [f.lit(value) for value in values]
    if not isinstance(field.dataType, StringType):
        # Cast the values, not the column: only then can Spark skip files by the filter.
        literals = [literal.cast(field.dataType) for literal in literals]
    return f.col(quoted(field.name)).isin(literals)


def _without_untyped_columns(frame: DataFrame, table: TableName) -> DataFrame:
    """Returns the frame without columns of nulls only, which pandas makes of no rows.

    Such a column has no type to create it with. Where the table has the column, the rows get null in it.
    """
    names = [name.casefold() for name in frame.columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"writing table {table}", f"the frame's columns differ by case at most: {', '.join(twice)}")
    typed = [field.name for field in frame.schema.fields if not isinstance(field.dataType, NullType)]
    return frame if len(typed) == len(names) else frame.select(*(f.col(quoted(name)) for name in typed))


def _with_slice_column(frame: DataFrame, load: FrameLoad) -> DataFrame:
    """Returns the frame with the column of its slices. A row of another slice makes the write fail."""
    if load.slices is None:
        return frame
    column, values = load.slices
    found = [field for field in frame.schema.fields if field.name.casefold() == column.casefold()]
    if found:
        stray = f.raise_error(f.lit(f"a row of another partition than those of this run in column {column}"))
        name = f.col(quoted(found[0].name))
        guarded = f.when(_is_one_of(found[0], values), name).otherwise(stray.cast(found[0].dataType))
        return frame.withColumn(found[0].name, guarded)
    if len(values) != 1:
        raise ConfigError(
            f"writing table {load.table}",
            f"the frame is of {len(values)} partitions and has no column {column} to distinguish them",
            remedy="Add the column, or materialize one partition a run.",
        )
    return frame.withColumn(column, f.lit(values[0]))


def _in_columns_of(table: DataFrame, frame: DataFrame) -> DataFrame:
    """Returns the frame in the table's columns, with nulls in those that it lacks."""
    known = {name.casefold(): name for name in frame.columns}
    return frame.select(
        *(
            f.col(quoted(known[field.name.casefold()])).alias(field.name)
            if field.name.casefold() in known
            else f.lit(None).cast(field.dataType).alias(field.name)
            for field in table.schema.fields
        )
    )
