"""Looks up keys in a table by a Spark job, for every format that Spark reads."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from dagster_airbyte_proto.loads.table import KeyQuery

_KEY = "_airbyte_wanted_{}"


def greatest_values(table: DataFrame, columns: Sequence[str]) -> pa.Table:
    """Returns one row with the greatest value of each column, or null."""
    found = table.agg(*(sql.max(_column(table, name)).alias(str(at)) for at, name in enumerate(columns)))
    return found.toArrow().rename_columns(list(columns))


def rows_with_keys(table: DataFrame, sought: KeyQuery) -> pa.Table:
    """As `TableWriter.rows_of`."""
    if sought.since is not None:
        table = table.where(_at_least(table, *sought.since))
    names = [_KEY.format(at) for at in range(sought.keys.num_columns)]
    wanted = table.sparkSession.createDataFrame(sought.keys.rename_columns(names))
    keys = zip(sought.keys.column_names, names, strict=True)
    same = reduce(and_, (_column(table, key).eqNullSafe(wanted[name]) for key, name in keys))
    columns = [_column(table, name).alias(str(at)) for at, name in enumerate(sought.columns)]
    return table.join(wanted, same, "left_semi").select(*columns).toArrow().rename_columns(list(sought.columns))


def _at_least(table: DataFrame, name: str, value: pa.Scalar) -> Column:
    """Compares with text that Spark casts to the column's type.

    So the time zone of this process plays no part, and Spark can skip files by the filter.
    """
    column = _column(table, name)
    if pa.types.is_binary(value.type):
        return column >= sql.lit(value.as_py())
    text = value.cast(pa.string()).as_py()
    # The table may have the name in another case, which only Spark's own look-up ignores.
    return column >= sql.lit(text).cast(table.select(column).schema.fields[0].dataType)


def _column(table: DataFrame, name: str) -> Column:
    return table["`" + name.replace("`", "``") + "`"]
