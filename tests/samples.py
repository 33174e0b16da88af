"""A value of any type, made from its annotations, with every field filled."""

import dataclasses
import inspect
import re
import types
import typing
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.loads.storage import LOCAL, Storage
from dagster_airbyte_proto.staging.keys.ranking import RowNumbers

_SCHEMA = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
PLAIN_SAMPLES: dict[Any, Any] = {
    bool: True,
    int: 7,
    float: 0.5,
    str: "text",
    bytes: b"{}",
    Any: {"key": [1, None]},
    object: "text",
    datetime: datetime(2026, 1, 2, tzinfo=UTC),
    Path: Path("/lake"),
    pa.Schema: _SCHEMA,
    pa.DataType: pa.list_(pa.int64()),
    pa.Table: _SCHEMA.empty_table(),
    pa.RecordBatch: pa.RecordBatch.from_pydict({"id": [1]}, _SCHEMA),
    pa.Scalar: pa.scalar(3),
    pa.Array: pa.array([1, None]),
    RowNumbers: np.array([3]),
    re.Pattern: re.compile(b"a+"),
    Storage: LOCAL,
}
"""Of types that are not made of others."""


def is_value(found: type) -> bool:
    """True if the class looks like a value: a struct, a frozen dataclass, or a named tuple."""
    is_frozen = dataclasses.is_dataclass(found) and found.__dataclass_params__.frozen  # type: ignore[attr-defined]  # of dataclasses alone
    return issubclass(found, msgspec.Struct) or is_frozen or hasattr(found, "_fields")


def sample(kind: Any, inside: tuple[type, ...] = ()) -> Any:
    """A value of a type, with every field filled. A type within itself gets an empty collection."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    plain = origin if origin is re.Pattern else kind
    if plain in PLAIN_SAMPLES:
        return PLAIN_SAMPLES[plain]
    if origin is typing.Literal:
        return arguments[0]
    if origin is typing.Annotated:
        return sample(arguments[0], inside)
    if origin in (typing.Union, types.UnionType):
        wanted = [each for each in arguments if each is not types.NoneType and each not in inside]
        return sample(wanted[0], inside) if wanted else None
    if inspect.isclass(kind) and issubclass(kind, Enum):
        return next(iter(kind))
    if inspect.isclass(kind) and issubclass(kind, ProtoError):
        return kind("committing a load", "the table is locked")
    if inspect.isclass(kind) and is_value(kind):
        return made(kind, inside)
    if inspect.isclass(origin) and issubclass(origin, tuple) and arguments[1:] != (...,):
        return tuple(sample(each, inside) for each in arguments)
    if inspect.isclass(origin) and issubclass(origin, typing.Mapping):
        return {sample(arguments[0], inside): sample(arguments[1], inside)}
    if inspect.isclass(origin) and issubclass(origin, typing.Collection):
        collection: Any = tuple if inspect.isabstract(origin) else origin
        return collection(() if arguments[0] in inside else (sample(arguments[0], inside),))
    raise AssertionError(f"no sample of {kind}: is this a service?")


def made(value: type, inside: tuple[type, ...] = ()) -> Any:
    hints = typing.get_type_hints(value)
    names = inspect.signature(value).parameters
    return value(**{name: sample(hints[name], (*inside, value)) for name in names})
