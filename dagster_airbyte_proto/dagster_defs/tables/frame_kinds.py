"""The kinds of frame that assets take and return. A library is imported only where one of its frames is in use."""

from enum import StrEnum
from typing import Any

import dagster as dg
import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError


class FrameKind(StrEnum):
    """In the words of an annotation."""

    SPARK = "pyspark.sql.DataFrame"
    PANDAS = "pandas.DataFrame"
    ARROW = "pyarrow.Table"
    POLARS = "polars.DataFrame"


_KINDS = {
    ("pyspark", "DataFrame"): FrameKind.SPARK,
    ("pandas", "DataFrame"): FrameKind.PANDAS,
    ("pyarrow", "Table"): FrameKind.ARROW,
    ("polars", "DataFrame"): FrameKind.POLARS,
}


_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def annotated(kind: dg.DagsterType, *, of: str) -> FrameKind:
    """What an input is loaded as: Spark's frame where nothing is said. Raises ConfigError for what is no frame."""
    annotation = kind.typing_type
    if annotation is Any:
        return FrameKind.SPARK
    if isinstance(annotation, type) and (found := _kind(annotation)):
        return found
    raise _unknown(f"loading {of}", f"the input is annotated as {_said(annotation)}")


def of_value(value: Any, *, of: str) -> FrameKind:
    """What an asset has returned. Raises ConfigError for what is no frame."""
    if found := _kind(type(value)):
        return found
    raise _unknown(f"storing {of}", f"it is of the type {_said(type(value))}")


def from_spark(frame: Any, kind: FrameKind) -> Any:
    """All rows of Spark's frame in memory, as the kind that is wanted; Spark's own as it is."""
    if kind is FrameKind.SPARK:
        return frame
    rows: pa.Table = frame.toArrow()
    if kind is FrameKind.ARROW:
        return rows
    if kind is FrameKind.PANDAS:
        return rows.to_pandas()
    import polars

    return polars.from_arrow(rows)


def to_arrow(value: Any, kind: FrameKind) -> pa.Table:
    """The rows of a frame that is not Spark's. The index of pandas is left behind."""
    if kind is FrameKind.PANDAS:
        return _signed(pa.Table.from_pandas(value, preserve_index=False))
    return _signed(value.to_arrow() if kind is FrameKind.POLARS else value)


def _signed(rows: pa.Table) -> pa.Table:
    """Numbers without a sign, which Spark has not, as the next wider ones that have."""
    fields = [field.with_type(_SIGNED.get(field.type, field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _kind(kind: type) -> FrameKind | None:
    homes = ((base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__)
    return next((_KINDS[home] for home in homes if home in _KINDS), None)


def _unknown(doing: str, found: str) -> ConfigError:
    return ConfigError(doing, found, remedy=f"Tables are read and written as {', '.join(FrameKind)}.")


def _said(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)
