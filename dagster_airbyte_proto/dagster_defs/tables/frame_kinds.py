"""The kinds of data frame that assets take and return. Each library is imported only if one of its frames is used."""

from enum import StrEnum
from typing import Any

import dagster as dg
import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError


class FrameKind(StrEnum):
    """A kind of data frame, named as in an annotation."""

    SPARK = "pyspark.sql.DataFrame"
    PANDAS = "pandas.DataFrame"
    ARROW = "pyarrow.Table"
    POLARS = "polars.DataFrame"


# By module and class name, so that a value is recognised without importing its library.
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


def annotated_kind(kind: dg.DagsterType, *, of: str) -> FrameKind:
    """The kind that an input is annotated with, Spark's by default. Raises ConfigError for other annotations."""
    annotation = kind.typing_type
    if annotation is Any:
        return FrameKind.SPARK
    if isinstance(annotation, type) and (found := _kind(annotation)):
        return found
    raise _unknown_kind(f"loading {of}", f"the input is annotated as {_type_name(annotation)}")


def kind_of(value: Any, *, of: str) -> FrameKind:
    """The kind of a returned value. Raises ConfigError if it is no data frame."""
    if found := _kind(type(value)):
        return found
    raise _unknown_kind(f"storing {of}", f"its value is a {_type_name(type(value))}")


def from_spark(frame: Any, kind: FrameKind) -> Any:
    """Converts a Spark frame to the kind, with all rows in memory; a Spark frame stays as it is."""
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
    """Converts a frame other than Spark's to Arrow. A pandas index is dropped."""
    if kind is FrameKind.PANDAS:
        return _signed(pa.Table.from_pandas(value, preserve_index=False))
    return _signed(value.to_arrow() if kind is FrameKind.POLARS else value)


def _signed(rows: pa.Table) -> pa.Table:
    """Casts unsigned integers, which Spark lacks, to the next wider signed type, also in lists and structs."""
    fields = [field.with_type(_signed_type(field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _signed_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_signed_type(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        of_list = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return of_list(kind.value_field.with_type(_signed_type(kind.value_type)))
    return _SIGNED.get(kind, kind)


def _kind(kind: type) -> FrameKind | None:
    # The frames of pandas on Spark have the name of Spark's own, and none of their methods.
    bases = [base for base in kind.__mro__ if not base.__module__.startswith("pyspark.pandas")]
    names = ((base.__module__.partition(".")[0], base.__name__) for base in bases)
    return next((_KINDS[name] for name in names if name in _KINDS), None)


def _unknown_kind(doing: str, found: str) -> ConfigError:
    return ConfigError(doing, found, remedy=f"Tables are read and written as {', '.join(FrameKind)}.")


def _type_name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)
