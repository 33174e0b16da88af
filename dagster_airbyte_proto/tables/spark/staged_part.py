"""The staged files of a part as DataFrames, for tables into which Spark writes the rows again.

- Rows with a position delete are left out when the staged files are read.
- A MERGE has one source, so that holds both the rows of a part and the keys whose rows it deletes, with a column that
  tells them apart.
- No function of `pyspark.sql` is called: those of a session with a JVM and of one of Spark Connect are not the same.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dagster_airbyte_proto.loads.column_ids import without_column
from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.schema.evolution import IcebergSchema
from dagster_airbyte_proto.tables.spark.columns import spark_schema
from dagster_airbyte_proto.tables.sql_names import quoted, text_literal

_IS_ROW = quoted("airbyte-proto is row")
_FILE, _POSITION = "airbyte-proto file", "airbyte-proto position"

TARGET, SOURCE = "t", "s"
"""The names of a MERGE's table and of its source in the texts of `MergeSource`."""


class StagedPart(NamedTuple):
    """The files of a part, and the table's columns. `slice_column` is the table's."""

    part: StagedRows
    files: Sequence[StagedFile]
    columns: IcebergSchema
    slice_column: str | None

    def paths(self, content: FileContent) -> list[str]:
        return [file.path for file in self.files if file.content is content]

    @property
    def schema(self) -> StructType:
        """That of the files: the slice column is not in them."""
        return StructType.fromJson(spark_schema(without_column(self.columns, self.slice_column)))

    @property
    def slice_predicate(self) -> str | None:
        """An SQL predicate for the rows of the part's slice."""
        if self.slice_column is None or self.part.slice is None:
            return None
        return f"{quoted(self.slice_column)} = {text_literal(self.part.slice)}"


class MergeSource(NamedTuple):
    """A MERGE joins the frame with its table, deletes each row that `matches`, and inserts the `values` of those of the
    frame's rows that are `inserted`.
    """

    frame: DataFrame
    matches: str
    inserted: str
    values: dict[str, str]


def rows_to_write(session: SparkSession, staged: StagedPart) -> DataFrame:
    """Returns the part's rows, with the slice column where the table has one."""
    rows = _rows(session, staged)
    if staged.slice_column is None:
        return rows
    return rows.selectExpr("*", f"{text_literal(str(staged.part.slice))} as {quoted(staged.slice_column)}")


def merge_source(session: SparkSession, staged: StagedPart) -> MergeSource:
    schema = staged.schema
    names = {name.casefold(): name for name in schema.names}
    keys = [quoted(names[key.casefold()]) for key in staged.part.keys]
    key_schema = StructType([schema[names[key.casefold()]] for key in staged.part.keys])
    # Iceberg refuses to delete a row twice.
    deleted = _read(session, staged.paths(FileContent.EQUALITY_DELETES), key_schema).distinct()
    rows = _rows(session, staged).selectExpr("*", f"true as {_IS_ROW}")
    values = {quoted(name): f"{SOURCE}.{quoted(name)}" for name in schema.names}
    if staged.slice_column is not None:
        values[quoted(staged.slice_column)] = text_literal(str(staged.part.slice))
    same = [f"{TARGET}.{key} <=> {SOURCE}.{key}" for key in keys]
    if staged.slice_predicate:
        same.append(f"{TARGET}.{staged.slice_predicate}")
    is_row = f"{SOURCE}.{_IS_ROW}"
    return MergeSource(
        rows.unionByName(deleted.selectExpr("*", f"false as {_IS_ROW}"), allowMissingColumns=True),
        " and ".join([f"not {is_row}", *same]),
        is_row,
        values,
    )


def merge_by_sql(session: SparkSession, table: str, staged: StagedPart) -> None:
    """Deletes the rows of all keys and inserts all rows of the part, in one commit that has no fence of its own."""
    source = merge_source(session, staged)
    view = f"airbyte_staged_{uuid4().hex}"
    source.frame.createOrReplaceTempView(view)
    try:
        session.sql(
            f"merge into {table} {TARGET} using {view} {SOURCE} on {source.matches} "  # noqa: S608 - quoted
            f"when matched then delete when not matched and {source.inserted} "
            f"then insert ({', '.join(source.values)}) values ({', '.join(source.values.values())})"
        )
    finally:
        session.catalog.dropTempView(view)


def discard_files(part: StagedRows, storage: Storage) -> None:
    """Deletes the files of a part that has landed: the table has its rows in files of its own."""
    for file in part.files:
        filesystem, path = storage.at(file.path)
        with suppress(OSError):  # It is swept later with other orphans.
            filesystem.delete_file(path)


def _rows(session: SparkSession, staged: StagedPart) -> DataFrame:
    """Returns the part's rows without those that its position deletes name, by file and position."""
    schema = staged.schema
    if not (paths := staged.paths(FileContent.ROWS)):
        return session.createDataFrame([], schema)
    rows = _read(session, paths, schema)
    if not (deletes := staged.paths(FileContent.POSITION_DELETES)):
        return rows
    metadata = rows.metadataColumn("_metadata")
    placed = rows.select("*", metadata["file_name"].alias(_FILE), metadata["row_index"].alias(_POSITION))
    taken_out = _read(session, deletes).selectExpr(
        f"substring_index(file_path, '/', -1) as {quoted(_FILE)}", f"pos as {quoted(_POSITION)}"
    )
    return placed.join(taken_out, [_FILE, _POSITION], "left_anti").drop(_FILE, _POSITION)


def _read(session: SparkSession, paths: Sequence[str], schema: StructType | None = None) -> DataFrame:
    # A path may contain `*` or `[`, which must not be read as a pattern.
    reader = session.read.option("__globPaths__", "false")
    return (reader.schema(schema) if schema is not None else reader).parquet(*paths)
