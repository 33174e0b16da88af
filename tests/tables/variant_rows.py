"""Rows with VARIANTs, alone and in lists, in the bytes of Spark's own encoder."""

import uuid
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import VariantVal

from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.schema.columns import VARIANT
from dagster_airbyte_proto.staging.files.parquet_file import OpenFile
from dagster_airbyte_proto.staging.files.staging_folder import StagingFolder, create_folder
from dagster_airbyte_proto.tables.spark.session import query
from tests.conformance.table_rows import part_of, position_deletes, put

THINGS = pa.schema([("id", pa.int64()), ("thing", VARIANT), ("things", pa.list_(VARIANT))])


def encoded(texts: Sequence[str]) -> pa.Array:
    values = [VariantVal.parseJson(text) for text in texts]
    return pa.array([{"metadata": value.metadata, "value": value.value} for value in values], VARIANT)


def written(target: TableTarget, rows: pa.Table) -> StagedFile:
    """A file of rows, by the hand of staging."""
    folder = StagingFolder.at(f"{target.location}/data/{uuid.uuid4()}", target.storage)
    create_folder(folder)
    file = OpenFile(folder, "rows.parquet", target.schema)
    file.write(rows)
    return file.close()


def upsert(target: TableTarget, write: WriteMode, things: Sequence[tuple[int, str]]) -> StagedRows:
    """Rows as staging would hand them over, of which the first is taken out again."""
    ids = pa.array([number for number, _ in things])
    inside = encoded([text for _, text in things])
    lists = pa.ListArray.from_arrays(pa.array(range(len(ids) + 1), pa.int32()), inside)
    rows = written(target, pa.table([ids, inside, lists], schema=target.schema))
    keys = pa.table([ids.unique()], schema=pa.schema([target.schema.field("id")]))
    deletes = [position_deletes(target, rows, 0), put(target, keys, FileContent.EQUALITY_DELETES)]
    return part_of(target, write, rows, *deletes)


def shown(spark: SparkSession, target: TableTarget) -> list[list[object]]:
    texts = "to_json(thing), transform(things, thing -> to_json(thing))"
    return query(spark, f"select id, {texts} from {target.qualified} order by id").rows
