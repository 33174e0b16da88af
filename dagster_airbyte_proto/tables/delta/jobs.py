"""Parts that go into a Delta table by a job of Spark: those that a reader would have to apply deletes to.

Delta knows neither deletes by key nor position deletes in files of their own. Rows that position deletes take out are
left out when the staged files are read; keys are deleted, and the rows of the part inserted, by one MERGE. Delta keeps
the load id as it does for files by reference, and lands nothing for one that it has.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from dagster_airbyte_proto.loads.column_ids import without
from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.loads.table import REPLACING
from dagster_airbyte_proto.schema.evolution import Columns
from dagster_airbyte_proto.tables.spark.columns import spark_schema
from dagster_airbyte_proto.tables.sql_names import quoted, text_literal

_IS_ROW = "airbyte-proto is row"
_FILE, _POSITION = "airbyte-proto file", "airbyte-proto position"


class Job(NamedTuple):
    """A part with its files, for the table at a place. `slice_column` is that of the table."""

    part: StagedRows
    files: Sequence[StagedFile]
    location: str
    columns: Columns
    slice_column: str | None

    def paths(self, content: FileContent) -> list[str]:
        return [file.path for file in self.files if file.content is content]

    @property
    def file_columns(self) -> Columns:
        return without(self.columns, self.slice_column)

    @property
    def slice_is(self) -> str | None:
        """The rows of its slice, as SQL has it."""
        if self.slice_column is None or self.part.slice is None:
            return None
        return f"{quoted(self.slice_column)} = {text_literal(self.part.slice)}"


def run(session: SparkSession, job: Job, load_id: str, version: int, told: Mapping[str, str]) -> None:
    """Lands the part, or nothing where its load is in."""
    # In a session of its own, for a MERGE takes the load's id from the session's settings.
    own = session.newSession()
    if job.paths(FileContent.EQUALITY_DELETES):
        own.conf.set("spark.databricks.delta.write.txnAppId", load_id)
        own.conf.set("spark.databricks.delta.write.txnVersion", str(version))
        own.conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps(told))
        _merge(own, job)
        return
    rows = _rows(own, job)
    if job.slice_column is not None:
        rows = rows.withColumn(job.slice_column, f.lit(job.part.slice))
    writer = rows.write.format("delta").mode("overwrite" if job.part.write in REPLACING else "append")
    writer = writer.option("txnAppId", load_id).option("txnVersion", version).option("userMetadata", json.dumps(told))
    if job.slice_is and job.part.write in REPLACING:
        writer = writer.option("replaceWhere", job.slice_is)
    writer.save(job.location)


def _merge(session: SparkSession, job: Job) -> None:
    """Every row of a key goes and every row of the part comes, so the two are told apart in one source."""
    schema = StructType.fromJson(spark_schema(job.file_columns))
    names = {name.casefold(): name for name in schema.names}
    keys = [quoted(names[key.casefold()]) for key in job.part.keys]
    deleted = _read(session, job.paths(FileContent.EQUALITY_DELETES), _only(schema, job.part.keys))
    rows = _rows(session, job).withColumn(_IS_ROW, f.lit(True))
    source = rows.unionByName(deleted.withColumn(_IS_ROW, f.lit(False)), allowMissingColumns=True)
    is_row = f"s.{quoted(_IS_ROW)}"
    same = [f"t.{key} <=> s.{key}" for key in keys] + ([f"t.{job.slice_is}"] if job.slice_is else [])
    values = {quoted(name): f"s.{quoted(name)}" for name in schema.names}
    if job.slice_column is not None:
        values[quoted(job.slice_column)] = text_literal(str(job.part.slice))
    tables: Any = session._jvm.io.delta.tables.DeltaTable  # type: ignore[union-attr]  # a session has a JVM
    table = tables.forPath(session._jsparkSession, job.location).alias("t")
    merge = table.merge(source.alias("s")._jdf, " and ".join([f"not {is_row}", *same]))
    merge.whenMatched().delete().whenNotMatched(is_row).insertExpr(values).execute()


def _rows(session: SparkSession, job: Job) -> DataFrame:
    """The part's rows without those that its position deletes take out, each named by its file and place in it."""
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
    # A path may have what is a pattern elsewhere.
    reader = session.read.option("__globPaths__", "false")
    return (reader.schema(schema) if schema is not None else reader).parquet(*paths)


def _only(schema: StructType, names: Sequence[str]) -> StructType:
    wanted = {name.casefold() for name in names}
    return StructType([field for field in schema.fields if field.name.casefold() in wanted])
