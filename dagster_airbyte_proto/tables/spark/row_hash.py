"""The hash by which a row of a push is held against the one that was delivered.

A row whose hash differs is sent again: so what goes into it must stay as it is.
"""

import pyspark
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from dagster_airbyte_proto.tables.sql_names import quoted

_JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def row_hash(fingerprint: str, fields: list[tuple[str, DataType]]) -> Column:
    """Returns a hash of all fields. Null counts: Spark's hash passes over it, and ("a", null) would be (null, "a")."""
    parts: list[Column] = [f.lit(fingerprint)]
    for name, kind in fields:
        column = f.col(quoted(name))
        if isinstance(kind, StructType | ArrayType | MapType):
            column = f.to_json(f.struct(column), _JSON_OPTIONS)
        parts += [column, column.isNull()]
    return f.xxhash64(*parts)
