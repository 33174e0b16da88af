"""The rows that certify writes: plain ones, one kind of value at a time, and one that does not fit its schema."""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

PLAIN = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("score", pa.float64()), ("made_at", pa.timestamp("us", "UTC"))]
)
KEY = ("id",)
MISFIT_ID = 3
_MADE_AT = datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)
_TEXT_BYTES = 300
_LONG_BATCHES, _MAX_BATCH_ROWS = 20, 10_000
_LONG_TEXT = 1 << 20

_MOMENT = pa.timestamp("us", "UTC")
_LOCAL = pa.timestamp("us")
_VALUES: Mapping[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "whole numbers past 2^53": (pa.int64(), (9007199254740993, -(2**63), 2**63 - 1)),
    "decimals of 38 digits": (pa.decimal128(38, 9), (Decimal("12345678901234567890123456789.123456789"), Decimal(0))),
    "the greatest and smallest fractions": (pa.float64(), (1.7976931348623157e308, 5e-324, -0.0)),
    "true and false": (pa.bool_(), (True, False)),
    "quotes, line breaks and emoji": (pa.string(), ('Zoë 🦊 "q" \\ \n\r\t,;', "")),
    "text with a zero byte": (pa.string(), ("a\x00b",)),
    "text of a megabyte": (pa.string(), ("x" * _LONG_TEXT,)),
    "dates of the years 1 and 9999": (pa.date32(), (date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31))),
    "times with a zone, before 1970": (_MOMENT, (datetime(1901, 1, 1, 0, 0, 0, 1, UTC), _MADE_AT)),
    "times without a zone": (_LOCAL, (datetime(2024, 3, 31, 2, 30, 0, 999999),)),
    "times of day": (pa.time64("us"), (time(23, 59, 59, 999999), time(0))),
    "bytes": (pa.binary(), (b"\x00\xff", b"")),
    "objects": (pa.struct([("a", pa.int64()), ("b", pa.string())]), ({"a": 1, "b": None}, {"a": None, "b": "é"})),
    "lists": (pa.list_(pa.int64()), ([1, None, 3], [])),
    "lists of objects": (pa.list_(pa.struct([("a", pa.int64())])), ([{"a": 1}, {"a": None}],)),
    "JSON of any form": (pa.json_(pa.string()), ('{"a":[1,"b",null]}', '"text"', "1")),
}
_NAMES: Mapping[str, str] = {
    "a field with a capital, a blank and a dot in its name": "Full name.of",
    "a field that is a word of SQL": "order",
    "a field that begins with a digit": "1st",
    "a field with a name of 100 letters": "n" * 100,
    "a field with letters beyond ASCII": "größe",
}
KINDS = (*_VALUES, *_NAMES)


def plain_rows(start: int, count: int) -> pa.RecordBatch:
    """Rows with the ids from `start` on: always the same for the same ids."""
    numbers = range(start, start + count)
    columns = [list(numbers), [f"row {n}" for n in numbers], [n + 0.5 for n in numbers], [_MADE_AT] * count]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, PLAIN.types, strict=True)], schema=PLAIN
    )


def long_batch_rows(count: int) -> int:
    """The rows of each batch of a long write of so many. They are bounded: a batch lies in memory as a whole."""
    return min(max(1, count // _LONG_BATCHES), _MAX_BATCH_ROWS)


def long_rows(first: int, count: int, step: int) -> Iterator[pa.RecordBatch]:
    """Plain rows with longer texts, batch by batch."""
    text = "x" * _TEXT_BYTES
    for start in range(0, count, step):
        rows = plain_rows(first + start, min(step, count - start))
        yield rows.set_column(1, "name", pa.array([f"{text} {n}" for n in rows.column("id").to_pylist()]))


def typed_rows(kinds: tuple[str, ...]) -> pa.RecordBatch:
    """Rows with a column for each of these kinds of values. Each column ends with a null."""
    values = {_column(kind): _values_of(kind) for kind in kinds}
    rows = 1 + max(len(found) for _, found in values.values())
    arrays = [pa.array(range(1, rows + 1), pa.int64())]
    arrays += [_array(kind, found, rows) for kind, found in values.values()]
    return pa.RecordBatch.from_arrays(arrays, names=["id", *values])


def misfit_rows() -> pa.RecordBatch:
    """Five rows of which that with the id `MISFIT_ID` has a text as its score, where the schema declares a number."""
    scores = ['"no number"' if number == MISFIT_ID else f"{number}.5" for number in range(1, 6)]
    rows = plain_rows(1, len(scores))
    kind = pa.json_(pa.string())
    return rows.set_column(2, pa.field("score", kind), pa.ExtensionArray.from_storage(kind, pa.array(scores)))


def _values_of(kind: str) -> tuple[pa.DataType, tuple[Any, ...]]:
    return _VALUES.get(kind, (pa.string(), ("text",)))


def _column(kind: str) -> str:
    if kind in _NAMES:
        return _NAMES[kind]
    letters = (letter if letter.isalnum() else "_" for letter in kind.lower())
    return "_".join(filter(None, "".join(letters).split("_")))


def _array(kind: pa.DataType, values: tuple[Any, ...], rows: int) -> pa.Array:
    padded = [*values, *[None] * (rows - len(values))]
    if isinstance(kind, pa.JsonType):
        return pa.ExtensionArray.from_storage(kind, pa.array(padded, kind.storage_type))
    return pa.array(padded, kind)
