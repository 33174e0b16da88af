"""DataFrames whose rows a function of ours makes, in the processes in which Spark computes their partitions."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, cast

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

Frame = DataFrame
FrameSchema = StructType | str
"""A schema of Spark, or its text: "id bigint, city string"."""


class MakeRows(Protocol):
    """Makes the rows of a partition, in a schema, of those that it is given. It is pickled, and called by Spark."""

    def __call__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]: ...


class _Partition(NamedTuple):
    make_rows: MakeRows
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return self.make_rows(batches, self.schema)


def mapped_frame(frame: Frame, make_rows: MakeRows, schema: FrameSchema | None) -> Frame:
    """Returns the frame that a function makes of another, a call for each partition; without a schema, in its own."""
    made = cast(StructType, StructType.fromDDL(schema)) if isinstance(schema, str) else schema or frame.schema
    return frame.mapInArrow(_Partition(make_rows, to_arrow_schema(made)).__call__, made)
