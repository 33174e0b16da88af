"""Finds the rows of a batch that no line of JSON can carry, before they are sent.

A destination would drop such a line, or die of it, and often acknowledge what follows. So these rows are refused here,
each with the path of the first value at fault. The look costs little where nothing is wrong: whole columns are tested
by Arrow, and only a column at fault is looked at value by value.
"""

import base64
import json
import math
import re
from collections.abc import Iterator
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_LAST_DAY = date(9999, 12, 31)
_FIRST_DAY = date(1, 1, 1)
_SURROGATE = r"\\u[dD][89a-fA-F]"
_WHOLE_LETTERS = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])....|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)*+", re.DOTALL
)


def unsendable_rows(batch: pa.RecordBatch) -> dict[int, str]:
    """Returns the position of each row that cannot be sent, with the reason."""
    found: dict[int, str] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not _may_be_at_fault(column):
            continue
        for row, value in enumerate(_values(column)):
            fault = next(_faults(value, field.name), None)
            if fault is not None:
                found.setdefault(row, fault)
    return found


def half_letters(texts: pa.Array) -> list[int]:
    """Returns the places of JSON texts with an escape that is half of a surrogate pair, as of an emoji that was cut.

    That is JSON, and stands for no text. Destinations on Airbyte's CDK drop such a line, and acknowledge it.
    """
    texts = texts.cast(pa.large_binary())
    escaped = pc.indices_nonzero(pc.fill_null(pc.match_substring_regex(texts, _SURROGATE), False))
    return [place for place in escaped.to_pylist() if not _WHOLE_LETTERS.fullmatch(texts[place].as_py())]


def readable_row(row: pa.RecordBatch) -> str:
    """Returns the only row of a batch as text for people: JSON, with words in the place of what JSON has not."""
    values = {field.name: next(_values(column)) for field, column in zip(row.schema, row.columns, strict=True)}
    return json.dumps(values, default=_readable, ensure_ascii=False)


def python_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Returns rows as Python has them, with words in the place of a value that it cannot hold."""
    columns = {
        name: [_readable(value) if isinstance(value, Exception) else value for value in _values(column)]
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    return [{name: values[row] for name, values in columns.items()} for row in range(rows.num_rows)]


def _readable(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()  # As a destination gets them.
    return value.object.decode(errors="replace") if isinstance(value, UnicodeDecodeError) else str(value)


def _may_be_at_fault(array: pa.Array) -> bool:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _may_be_at_fault(array.dictionary)
    if pa.types.is_floating(kind):
        return pc.all(pc.is_finite(array)).as_py() is False
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return not _is_valid_text(array)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _has_odd_years(array)
    if pa.types.is_struct(kind):
        return any(_may_be_at_fault(member) for member in array.flatten())
    if pa.types.is_map(kind):
        return _may_be_at_fault(array.keys) or _may_be_at_fault(array.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _may_be_at_fault(array.flatten())
    return False


def _has_odd_years(array: pa.Array) -> bool:
    kind = array.type
    plain = array.view(pa.timestamp(kind.unit)) if pa.types.is_timestamp(kind) and kind.tz else array
    years = pc.min_max(pc.year(plain)).as_py()
    return years["min"] is not None and (years["min"] < _FIRST_DAY.year or years["max"] > _LAST_DAY.year)


def _is_valid_text(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _values(array: pa.Array) -> Iterator[Any]:
    """The values, with an exception in the place of one that Python cannot hold."""
    for scalar in array:
        try:
            yield scalar.as_py()
        except (UnicodeDecodeError, ValueError, OverflowError) as error:
            yield error


def _faults(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, UnicodeDecodeError):
        yield f"{path} holds bytes that are no text (UTF-8)"
    elif isinstance(value, Exception):
        yield f"{path} is a date outside of the years 1 to 9999"
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{path} is {value}, which JSON does not have"
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _faults(inner, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _faults(inner, f"{path}.{number}")
