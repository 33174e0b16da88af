"""Finds the rows of keys by a Spark job: in tables that are too large for this process, and in files that it cannot
read."""

from collections.abc import Mapping
from functools import reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from dagster_airbyte_proto.tables.deleted_rows import Positions

_KEY = "_airbyte_wanted_{}"
_OWN = "_airbyte_own_{}"


def find_rows_by_spark(table: DataFrame, keys: pa.Table, names: Mapping[str, str]) -> dict[str, Positions]:
    """Returns the rows of an Iceberg table that have one of the keys, by data file: sorted positions.

    `names` has the table's name of each column of the keys. One that the table lacks is null in its rows. Rows that are
    deleted already are not found.
    """
    own = [_column(table, names.get(name)).alias(_OWN.format(name)) for name in keys.column_names]
    rows = table.select("_file", "_pos", *own)
    wanted = table.sparkSession.createDataFrame(keys.rename_columns([_KEY.format(name) for name in keys.column_names]))
    same = [rows[_OWN.format(name)].eqNullSafe(wanted[_KEY.format(name)]) for name in keys.column_names]
    found = rows.join(wanted, reduce(and_, same), "left_semi")
    # A path for each file and not for each row: those of ten million rows would fill more than a gigabyte.
    grouped = found.groupBy("_file").agg(f.collect_list("_pos").alias("_pos")).toArrow()
    positions = zip(grouped["_file"].to_pylist(), grouped["_pos"], strict=True)
    return {path: np.unique(np.asarray(each.values.to_numpy(), dtype=np.int64)) for path, each in positions}


def _column(table: DataFrame, name: str | None) -> Column:
    return f.lit(None) if name is None else table["`" + name.replace("`", "``") + "`"]
