"""How a table's rows are parted into files, in Iceberg's words: `day(updated_at)`, `bucket(16, id)`, `country`.

A text names columns as the source does; what is made of it names them as the table does.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import PartitionField, StreamId
from dagster_airbyte_proto.schema.columns import Column, Kind

IDENTITY = "identity"
_OPTION = "partition_by"
_FIELD = re.compile(
    r"\s*(?:(?P<transform>[a-z]+)\s*\(\s*(?:(?P<width>\d{1,9})\s*,)?)?\s*(?P<column>[^(),`]+?|`(?:[^`]|``)+`)\s*(?P<end>\)?)\s*"
)
_WITH_WIDTH = frozenset(("bucket", "truncate"))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


def _is_dated(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind)) or _is_time(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind))


def _is_exact(kind: pa.DataType) -> bool:
    return any(is_such(kind) for is_such in (pa.types.is_integer, pa.types.is_decimal, pa.types.is_binary, _is_text))


_FITTING: Mapping[str, tuple[Callable[[pa.DataType], bool], str]] = {
    IDENTITY: (
        lambda kind: pa.types.is_integer(kind) or _is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind),
        "whole numbers, texts, truths and dates",
    ),
    "year": (_is_dated, "dates and times"),
    "month": (_is_dated, "dates and times"),
    "day": (_is_dated, "dates and times"),
    "hour": (_is_time, "times"),
    "bucket": (lambda kind: _is_exact(kind) or _is_dated(kind), "whole numbers, texts, dates and times"),
    "truncate": (lambda kind: pa.types.is_integer(kind) or _is_text(kind), "whole numbers and texts"),
}

TRANSFORMS = frozenset(_FITTING)
"""Every way to part rows."""


def transform_of(text: str) -> str:
    """What a text makes of its column; of one that is not understood, nothing."""
    match = _FIELD.fullmatch(text)
    return (match["transform"] or IDENTITY) if match else IDENTITY


def partition_fields(
    texts: Sequence[str], fields: Mapping[str, Column], stream: StreamId
) -> tuple[PartitionField, ...]:
    """What the texts say. `fields` are the table's columns by the source's names. Raises ConfigError."""
    found = tuple(_field(text, fields, stream) for text in texts)
    if twice := next((each for each in found if found.count(each) > 1), None):
        raise refusal(_OPTION, str(twice), "it stands there twice", "Name it once.", stream)
    return found


def _field(text: str, fields: Mapping[str, Column], stream: StreamId) -> PartitionField:
    match = _FIELD.fullmatch(text)
    if match is None or bool(match["transform"]) != bool(match["end"]):
        raise refusal(
            _OPTION, text, "it is not understood", "Write day(updated_at), bucket(16, id), or a column.", stream
        )
    transform, width = match["transform"] or IDENTITY, int(match["width"] or 0)
    if transform not in _FITTING:
        remedy = f"There are {', '.join(name for name in _FITTING if name != IDENTITY)}, and a column by itself."
        raise refusal(_OPTION, text, f"there is no {transform!r}", remedy, stream)
    if (transform in _WITH_WIDTH) != bool(width):
        says = "needs a number" if transform in _WITH_WIDTH else "takes no number"
        remedy = f"Write {transform}({'16, ' if transform in _WITH_WIDTH else ''}{match['column']})."
        raise refusal(_OPTION, text, f"{transform} {says}", remedy, stream)
    column = column_of((_OPTION, text), match["column"], fields, stream)
    fits, words = _FITTING[transform]
    if column.type.kind is Kind.JSON or not fits(column.type.in_table):
        found = f"{transform} parts {words}, and {column.name} is none"
        raise refusal(_OPTION, text, found, "Choose another.", stream)
    return PartitionField(transform, column.name, width)


def column_of(asked: tuple[str, str], written: str, fields: Mapping[str, Column], stream: StreamId) -> Column:
    """A table's column by the source's name, in backticks or not. Raises ConfigError with the nearest one; `asked` are
    the option and its text."""
    name = written[1:-1].replace("``", "`") if written.startswith("`") else written
    if name not in fields:
        near = difflib.get_close_matches(name, fields, n=1, cutoff=0.0)
        remedy = f"The nearest column is {near[0]}." if near else "The table has no columns."
        raise refusal(*asked, f"the table has no column {name!r}", remedy, stream)
    return fields[name]


def refusal(option: str, text: str, found: str, remedy: str, stream: StreamId) -> ConfigError:
    """What is wrong with an option's text."""
    return ConfigError(f"plan {option}: {text}", found, remedy=remedy, stream=str(stream))
