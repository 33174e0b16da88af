"""Writes parts into a Delta table by a Spark job: upserts, and any deletes in a table without deletion vectors.

- Delta has neither equality deletes nor files of position deletes.
- Rows with a position delete are left out when the staged files are read.
- One MERGE deletes the rows of the keys and inserts the rows of the part.
- Delta keeps the load id as it does for files by reference, and does nothing for a load that it has already.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from dagster_airbyte_proto.loads.column_ids import without_column
from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.model import REPLACING
from dagster_airbyte_proto.schema.evolution import IcebergSchema
from dagster_airbyte_proto.tables.delta.preparation import WidenedColumns
from dagster_airbyte_proto.tables.spark.columns import spark_schema, spark_type
from dagster_airbyte_proto.tables.sql_names import quoted, text_literal

_IS_ROW = "airbyte-proto is row"
_FILE, _POSITION = "airbyte-proto file", "airbyte-proto position"


class WriteJob(NamedTuple):
    """The write of a part's files into the table at `location`. `slice_column` is the table's."""

    part: StagedRows
    files: Sequence[StagedFile]
    location: str
    columns: IcebergSchema
    slice_column: str | None

    def paths(self, content: FileContent) -> list[str]:
        return [file.path for file in self.files if file.content is content]

    @property
    def file_columns(self) -> IcebergSchema:
        return without_column(self.columns, self.slice_column)

    @property
    def slice_predicate(self) -> str | None:
        """An SQL predicate for the rows of the part's slice."""
        if self.slice_column is None or self.part.slice is None:
            return None
        return f"{quoted(self.slice_column)} = {text_literal(self.part.slice)}"


def run_write_job(
    session: SparkSession, job: WriteJob, load_id: str, version: int, user_metadata: Mapping[str, str]
) -> None:
    """Writes the part, or nothing where the table has the load already. Does not say which."""
    # A session of its own: a MERGE has no options, and takes the load id from the settings of the session.
    own = session.newSession()
    if job.paths(FileContent.EQUALITY_DELETES):
        own.conf.set("spark.databricks.delta.write.txnAppId", load_id)
        own.conf.set("spark.databricks.delta.write.txnVersion", str(version))
        own.conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps(user_metadata))
        _merge(own, job)
        return
    rows = _rows(own, job)
    if job.slice_column is not None:
        rows = rows.withColumn(job.slice_column, f.lit(job.part.slice))
    writer = rows.write.format("delta").mode("overwrite" if job.part.write in REPLACING else "append")
    writer = (
        writer.option("txnAppId", load_id)
        .option("txnVersion", version)
        .option("userMetadata", json.dumps(user_metadata))
    )
    if job.slice_predicate and job.part.write in REPLACING:
        writer = writer.option("replaceWhere", job.slice_predicate)
    writer.save(job.location)


def widen(session: SparkSession, table: str, widened: WidenedColumns) -> None:
    """Widens the types of columns, each in a commit of its own."""
    session.sql(f"alter table {table} set tblproperties ('delta.enableTypeWidening' = 'true')")
    for path, kind in widened:
        column = ".".join(map(quoted, path))
        session.sql(f"alter table {table} alter column {column} type {spark_type(kind, lambda _: {})}")


def _merge(session: SparkSession, job: WriteJob) -> None:
    """Deletes the rows of all keys and inserts all rows of the part, in one commit.

    A MERGE has one source, so it holds both, with a column that tells keys and rows apart.
    """
    schema = StructType.fromJson(spark_schema(job.file_columns))
    names = {name.casefold(): name for name in schema.names}
    keys = [quoted(names[key.casefold()]) for key in job.part.keys]
    deleted = _read(session, job.paths(FileContent.EQUALITY_DELETES), _only(schema, job.part.keys))
    rows = _rows(session, job).withColumn(_IS_ROW, f.lit(True))
    source = rows.unionByName(deleted.withColumn(_IS_ROW, f.lit(False)), allowMissingColumns=True)
    is_row = f"s.{quoted(_IS_ROW)}"
    same = [f"t.{key} <=> s.{key}" for key in keys] + ([f"t.{job.slice_predicate}"] if job.slice_predicate else [])
    values = {quoted(name): f"s.{quoted(name)}" for name in schema.names}
    if job.slice_column is not None:
        values[quoted(job.slice_column)] = text_literal(str(job.part.slice))
    tables: Any = session._jvm.io.delta.tables.DeltaTable  # type: ignore[union-attr]  # a session has a JVM
    table = tables.forPath(session._jsparkSession, job.location).alias("t")
    merge = table.merge(source.alias("s")._jdf, " and ".join([f"not {is_row}", *same]))
    merge.whenMatched().delete().whenNotMatched(is_row).insertExpr(values).execute()


def _rows(session: SparkSession, job: WriteJob) -> DataFrame:
    """Returns the part's rows without those that its position deletes name, by file and position."""
    schema = StructType.fromJson(spark_schema(job.file_columns))
    if not (paths := job.paths(FileContent.ROWS)):
        return session.createDataFrame([], schema)
    rows = _read(session, paths, schema)
    if not (deletes := job.paths(FileContent.POSITION_DELETES)):
        return rows
    metadata = rows.metadataColumn("_metadata")
    placed = rows.select("*", metadata["file_name"].alias(_FILE), metadata["row_index"].alias(_POSITION))
    taken_out = _read(session, deletes).select(
        f.substring_index("file_path", "/", -1).alias(_FILE), f.col("pos").alias(_POSITION)
    )
    return placed.join(taken_out, [_FILE, _POSITION], "left_anti").drop(_FILE, _POSITION)


def _read(session: SparkSession, paths: Sequence[str], schema: StructType | None = None) -> DataFrame:
    # A path may contain `*` or `[`, which must not be read as a pattern.
    reader = session.read.option("__globPaths__", "false")
    return (reader.schema(schema) if schema is not None else reader).parquet(*paths)


def _only(schema: StructType, names: Sequence[str]) -> StructType:
    wanted = {name.casefold() for name in names}
    return StructType([field for field in schema.fields if field.name.casefold() in wanted])
