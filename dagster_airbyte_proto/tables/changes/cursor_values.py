"""The values of a cursor: the column by which a push finds the rows that came after those of the last one.

- NaN is no value: Spark takes it for greater than any number, and no row would come after it.
- A value is kept as text. A point in time has its offset there: without it, it would be another one in another time
  zone, and of the hour that comes twice when summer time ends it would be the first.
- Bytes are kept as hexadecimal digits: as text, those that are no UTF-8 would be others.
"""

from typing import Final

import pyspark
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, DataType, DoubleType, FloatType, TimestampType

from dagster_airbyte_proto.tables.sql_names import quoted

_WITH_OFFSET = "yyyy-MM-dd HH:mm:ss.SSSSSSXXX"
_HEXADECIMAL: Final = "0x"


def cursor_values(frame: DataFrame, column: str) -> Column:
    """Returns the values of a column, null for those that are none."""
    values = f.col(quoted(column))
    kind = frame.select(values).schema[0].dataType
    return f.when(~f.isnan(values), values) if isinstance(kind, DoubleType | FloatType) else values


def greatest_cursor(frame: DataFrame, column: str) -> Column:
    """Returns the greatest of these values as text."""
    greatest = f.max(column)
    kind = frame.schema[column].dataType
    if isinstance(kind, TimestampType):
        return f.date_format(greatest, _WITH_OFFSET)
    if isinstance(kind, BinaryType):
        return f.concat(f.lit(_HEXADECIMAL), f.hex(greatest))
    return greatest.cast("string")


def reached_cursor(text: str, kind: DataType) -> Column:
    """Returns the value of a column of this type that `greatest_cursor` gave as text."""
    # Earlier releases kept bytes as text.
    if isinstance(kind, BinaryType) and text.startswith(_HEXADECIMAL):
        return f.unhex(f.lit(text.removeprefix(_HEXADECIMAL)))
    return f.lit(text).cast(kind)
