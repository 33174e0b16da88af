"""Parses the partitioning of a table, in Iceberg's terms: `day(updated_at)`, `bucket(16, id)`, `country`.

The user's text has the source's names of columns. The result has the table's names.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import IDENTITY, PartitionField, StreamId
from dagster_airbyte_proto.schema.columns import Column, ValueKind

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


_TRANSFORMS: Mapping[str, tuple[Callable[[pa.DataType], bool], str]] = {
    IDENTITY: (
        lambda kind: pa.types.is_integer(kind) or _is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind),
        "whole numbers, texts, booleans and dates",
    ),
    "year": (_is_dated, "dates and times"),
    "month": (_is_dated, "dates and times"),
    "day": (_is_dated, "dates and times"),
    "hour": (_is_time, "times"),
    "bucket": (lambda kind: _is_exact(kind) or _is_dated(kind), "whole numbers, texts, dates and times"),
    "truncate": (lambda kind: pa.types.is_integer(kind) or _is_text(kind), "whole numbers and texts"),
}


def transform_of(text: str) -> str:
    """Returns the transform that a text names. A text that is not understood counts as a bare column."""
    match = _FIELD.fullmatch(text)
    return (match["transform"] or IDENTITY) if match else IDENTITY


def partition_fields(
    texts: Sequence[str], fields: Mapping[str, Column], stream: StreamId
) -> tuple[PartitionField, ...]:
    """Parses the texts. `fields` are the table's columns by the source's names. Raises ConfigError."""
    found = tuple(_field(text, fields, stream) for text in texts)
    if twice := next((each for each in found if found.count(each) > 1), None):
        raise option_error(_OPTION, str(twice), "it is named twice", "Name it once.", stream)
    return found


def _field(text: str, fields: Mapping[str, Column], stream: StreamId) -> PartitionField:
    match = _FIELD.fullmatch(text)
    if match is None or bool(match["transform"]) != bool(match["end"]):
        raise option_error(
            _OPTION, text, "it is not understood", "Write day(updated_at), bucket(16, id), or a column.", stream
        )
    transform, width = match["transform"] or IDENTITY, int(match["width"] or 0)
    if transform not in _TRANSFORMS:
        remedy = f"Write {', '.join(name for name in _TRANSFORMS if name != IDENTITY)}, or a column alone."
        raise option_error(_OPTION, text, f"there is no transform {transform!r}", remedy, stream)
    if (transform in _WITH_WIDTH) != bool(width):
        says = "needs a number" if transform in _WITH_WIDTH else "takes no number"
        remedy = f"Write {transform}({'16, ' if transform in _WITH_WIDTH else ''}{match['column']})."
        raise option_error(_OPTION, text, f"{transform} {says}", remedy, stream)
    column = named_column((_OPTION, text), match["column"], fields, stream)
    fits, words = _TRANSFORMS[transform]
    if column.type.kind is ValueKind.JSON or not fits(column.type.table_type):
        found = f"{transform} takes {words}, and {column.name} is none of these"
        raise option_error(_OPTION, text, found, "Choose another.", stream)
    return PartitionField(transform, column.name, width)


def named_column(option: tuple[str, str], written: str, fields: Mapping[str, Column], stream: StreamId) -> Column:
    """Returns a table's column by the source's name, in backticks or not. Raises ConfigError with the nearest name.

    `option` is the option and its text.
    """
    name = written[1:-1].replace("``", "`") if written.startswith("`") else written
    if name not in fields:
        near = difflib.get_close_matches(name, fields, n=1, cutoff=0.0)
        remedy = f"The nearest column is {near[0]}." if near else "The table has no columns."
        raise option_error(*option, f"the table has no column {name!r}", remedy, stream)
    return fields[name]


def option_error(option: str, text: str, found: str, remedy: str, stream: StreamId) -> ConfigError:
    """Returns the error for a mistake in an option's text."""
    return ConfigError(f"planning {option}: {text}", found, remedy=remedy, stream=str(stream))
