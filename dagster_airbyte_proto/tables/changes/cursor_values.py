"""The values of a cursor: the column by which a push finds the rows that came after those of the last one.

- NaN is no value: Spark takes it for greater than any number, and no row would come after it.
- A value is kept as text. A point in time has its offset there: without it, it would be another one in another time
  zone, and of the hour that comes twice when summer time ends it would be the first.
"""

import pyspark
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, FloatType, TimestampType

from dagster_airbyte_proto.tables.sql_names import quoted

_WITH_OFFSET = "yyyy-MM-dd HH:mm:ss.SSSSSSXXX"


def cursor_values(frame: DataFrame, column: str) -> Column:
    """Returns the values of a column, null for those that are none."""
    values = f.col(quoted(column))
    kind = frame.select(values).schema[0].dataType
    return f.when(~f.isnan(values), values) if isinstance(kind, DoubleType | FloatType) else values


def greatest_cursor(frame: DataFrame, column: str) -> Column:
    """Returns the greatest of these values as text."""
    greatest = f.max(column)
    if isinstance(frame.schema[column].dataType, TimestampType):
        return f.date_format(greatest, _WITH_OFFSET)
    return greatest.cast("string")
