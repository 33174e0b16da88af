"""The staged files of a part as DataFrames of a Connect server, and the statements that write them.

- Spark reads the files and writes their rows again, in files of its own.
- Rows with a position delete are left out when the staged files are read.
- The functions are imported where they are used, because they need packages that only a client of Spark Connect has.
  Those of `pyspark.sql.functions` may be the ones of a JVM, where this process has one too.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dagster_airbyte_proto.loads.column_ids import without_column
from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.model import REPLACING
from dagster_airbyte_proto.schema.evolution import IcebergSchema
from dagster_airbyte_proto.tables.spark.columns import spark_schema
from dagster_airbyte_proto.tables.sql_names import quoted, text_literal

_IS_ROW = "airbyte-proto is row"
_FILE, _POSITION = "airbyte-proto file", "airbyte-proto position"


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
        if self.slice_column is None or self.part.slice is None:
            return None
        return f"{quoted(self.slice_column)} = {text_literal(self.part.slice)}"


def insert(session: SparkSession, table: str, staged: StagedPart, base: int | None, labels: Mapping[str, str]) -> None:
    """Adds the part's rows, in the place of all rows or those of its slice if it replaces them.

    It is refused if any rows came in since the snapshot `base`. An append replaces the rows for which `false` is true:
    Spark's append has no such fence.
    """
    from pyspark.sql.connect import functions as f

    rows = _rows(session, staged)
    if staged.slice_column is not None:
        rows = rows.withColumn(staged.slice_column, f.lit(staged.part.slice))
    replaced = (staged.slice_predicate or "true") if staged.part.write in REPLACING else "false"
    writer = rows.writeTo(table).option("isolation-level", "serializable")
    for key, value in labels.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    if base is not None:
        writer = writer.option("validate-from-snapshot-id", str(base))
    writer.overwrite(f.expr(replaced))


def merge(session: SparkSession, table: str, staged: StagedPart) -> None:
    """Deletes the rows of all keys and inserts all rows of the part, in one commit that has no fence of its own.

    A MERGE has one source, so it holds both, with a column that tells keys and rows apart.
    """
    from pyspark.sql.connect import functions as f

    schema = staged.schema
    names = {name.casefold(): name for name in schema.names}
    keys = [quoted(names[key.casefold()]) for key in staged.part.keys]
    deleted = _read(session, staged.paths(FileContent.EQUALITY_DELETES), _only(schema, staged.part.keys)).distinct()
    rows = _rows(session, staged).withColumn(_IS_ROW, f.lit(True))
    source = rows.unionByName(deleted.withColumn(_IS_ROW, f.lit(False)), allowMissingColumns=True)
    is_row = f"s.{quoted(_IS_ROW)}"
    same = [f"t.{key} <=> s.{key}" for key in keys] + (
        [f"t.{staged.slice_predicate}"] if staged.slice_predicate else []
    )
    values = {quoted(name): f"s.{quoted(name)}" for name in schema.names}
    if staged.slice_column is not None:
        values[quoted(staged.slice_column)] = text_literal(str(staged.part.slice))
    view = f"airbyte_staged_{uuid4().hex}"
    source.createOrReplaceTempView(view)
    try:
        session.sql(
            f"merge into {table} t using {view} s on {' and '.join([f'not {is_row}', *same])} "  # noqa: S608 - quoted
            f"when matched then delete when not matched and {is_row} "
            f"then insert ({', '.join(values)}) values ({', '.join(values.values())})"
        )
    finally:
        session.catalog.dropTempView(view)


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


def _only(schema: StructType, names: Sequence[str]) -> StructType:
    wanted = {name.casefold() for name in names}
    return StructType([field for field in schema.fields if field.name.casefold() in wanted])
