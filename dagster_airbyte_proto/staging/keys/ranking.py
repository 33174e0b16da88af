r"""Ranks rows of the same key: the newest row by cursor, then by time of emission, then by arrival.

- The ranking uses a small table of keys and order columns, never whole rows.
- A cursor that is null, or could not be read, is older than any other.
- A cursor inside an object, or of no single type, is compared as JSON: numbers before text. Strings are compared as
  they read, without quotes and escapes: these would put `"a b"` before `"a"`, and `"\u0062"` too.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import EXTRACTED_AT, Columns, ValueKind
from dagster_airbyte_proto.staging.lines.nested_values import member_array, raw_texts_at

EMITTED: Final = "emitted"
RowNumbers = np.ndarray[tuple[int], np.dtype[np.int64]]
"""Row numbers, in order of arrival."""
NO_ROWS: Final[RowNumbers] = np.empty(0, np.int64)

_NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_LONG_INTEGER = re.compile(rb"-?\d{16,38}")
_CURSOR = "cursor"
_OLD_MARK_VALUES = 4
_STRINGS, _STRING = msgspec.json.Decoder(list[str]), msgspec.json.Decoder(str)


class RowsInOneFile(NamedTuple):
    """The location of a batch whose rows lie one after the other in one file."""

    file: str
    first_position: int

    def paths_and_positions(self, rows: RowNumbers) -> tuple[pa.Array, RowNumbers]:
        return pa.repeat(pa.scalar(self.file, pa.string()), len(rows)), rows + self.first_position


class RowsInFiles(NamedTuple):
    """The location of a batch whose rows lie in several files.

    For each row: the number of its file, -1 if it is in none, and its position in the file.
    """

    files: Sequence[str]
    owners: RowNumbers
    positions: RowNumbers

    @classmethod
    def without_removed(cls, removed: pa.BooleanArray, others: "RowsInOneFile | RowsInFiles") -> "RowsInFiles":
        """Returns the locations of a batch of which the `removed` rows are in no file.

        `others` are the locations of the batch without them.
        """
        is_there = ~removed.to_numpy(zero_copy_only=False)
        owners, positions = np.full(len(removed), -1, np.int64), np.zeros(len(removed), np.int64)
        if isinstance(others, RowsInFiles):
            owners[is_there], positions[is_there] = others.owners, others.positions
            return cls(others.files, owners, positions)
        owners[is_there], positions[is_there] = 0, np.arange(np.count_nonzero(is_there)) + others.first_position
        return cls([others.file], owners, positions)

    def paths_and_positions(self, rows: RowNumbers) -> tuple[pa.Array, RowNumbers]:
        rows = rows[self.owners[rows] >= 0]
        return pa.array(self.files, pa.string()).take(pa.array(self.owners[rows])), self.positions[rows]


class Ranking(NamedTuple):
    """The keys (columns `key0`, `key1`, …) and order columns of a batch, and the location of each row.

    A row that is in no file leaves no row of its key if it is the newest. `deletions` is a mask of the rows that
    delete their key; None if there are none.
    """

    table: pa.Table
    locations: RowsInOneFile | RowsInFiles
    deletions: pa.BooleanArray | None = None


def ranking_columns(rows: pa.RecordBatch | pa.Table, columns: Columns) -> pa.Table:
    """Returns the key and order columns of rows. Keys are equal by value: those of 0.0 and -0.0 are 0.0."""
    table_columns = {
        name: _without_negative_zeros(rows.column(key))
        for name, key in zip(key_names(columns), columns.keys, strict=True)
    }
    table_columns.update(_cursor_columns(rows, columns))
    table_columns[EMITTED] = rows.column(EXTRACTED_AT)
    return pa.table(table_columns)


def _without_negative_zeros(keys: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.add(keys, pa.scalar(0.0, keys.type)) if pa.types.is_floating(keys.type) else keys


def key_names(columns: Columns) -> list[str]:
    return [f"key{number}" for number in range(len(columns.keys))]


def order_names(table: pa.Table) -> list[str]:
    """Returns the names of the cursor's columns in a table of ranking columns; none without a cursor."""
    return [name for name in table.column_names if name.startswith(_CURSOR)]


def remaining_rows(rows: RowNumbers, of: int) -> RowNumbers:
    """Returns the numbers of all rows except these."""
    is_other = np.ones(of, dtype=bool)
    is_other[rows] = False
    return np.flatnonzero(is_other)


def losing_rows(table: pa.Table, keys: Sequence[str]) -> RowNumbers:
    """Returns the numbers, in order of arrival, of all rows except the newest of each key."""
    group = _group_numbers(table, keys)
    ordered: dict[str, Any] = {"group": group}
    for name in table.column_names:
        if name not in keys:
            # Null is older than any value, but Arrow sorts nulls last. So a column that says whether there is a value
            # comes before the value.
            ordered[f"has_{name}"] = table.column(name).is_valid().cast(pa.int8())
            ordered[name] = table.column(name)
    ordered["arrival"] = np.arange(table.num_rows)
    order = pc.sort_indices(pa.table(ordered), sort_keys=[(name, "ascending") for name in ordered]).to_numpy()
    in_order = group[order]
    is_last = np.append(in_order[1:] != in_order[:-1], True)
    return np.sort(order[~is_last]).astype(np.int64)


def _group_numbers(table: pa.Table, keys: Sequence[str]) -> RowNumbers:
    """Returns a number for each row, the same for rows of the same key. Null is equal to null."""
    numbers = np.zeros(table.num_rows, dtype=np.int64)
    for key in keys:
        encoded = table.column(key).combine_chunks().dictionary_encode(null_encoding="encode")
        encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
        key_codes = encoded.indices.to_numpy().astype(np.int64)
        numbers = np.unique(numbers * (len(encoded.dictionary) + 1) + key_codes, return_inverse=True)[1]
    return numbers.astype(np.int64)


def _cursor_columns(batch: pa.RecordBatch, columns: Columns) -> dict[str, pa.Array]:
    path, column = columns.cursor, columns.cursor_column
    if column is None:
        return {}
    array, kind, beyond = member_array(batch.column(column.name), column.type, path[1:])
    if not beyond and kind.kind is not ValueKind.JSON:
        return {} if kind.depth or kind.kind is ValueKind.STRUCT else {_CURSOR: array}
    raws = [bytes(raw) for raw in raw_texts_at(array, kind, beyond)]
    numbers = [float(raw) if _NUMBER.fullmatch(raw) else None for raw in raws]
    # Positions in a database's log may be too large for floats, which cannot tell whole numbers from 2**53 on apart.
    whole = [
        int(raw) if number is not None and abs(number) >= 2**53 and _LONG_INTEGER.fullmatch(raw) else None
        for raw, number in zip(raws, numbers, strict=True)
    ]
    texts = _texts(
        [b"" if number is not None or raw == b"null" else raw for raw, number in zip(raws, numbers, strict=True)]
    )
    # Text first: a row without any is older, as null is older than any value.
    return {
        f"{_CURSOR}_text": pa.array(texts, pa.string()),
        f"{_CURSOR}_number": pa.array(numbers, pa.float64()),
        f"{_CURSOR}_whole": pa.array(whole, pa.decimal128(38, 0)),
    }


def mark_of_json(values: Sequence[str | None]) -> tuple[str | None, ...] | None:
    """Returns the values of a high-water mark of a JSON cursor from before strings were compared as they read: a rank,
    a number, a whole number, and JSON text.

    Of a string it is a value above all that were not above the mark, as `"a b"` was not above `"a"`. None if there is
    none.
    """
    if len(values) != _OLD_MARK_VALUES:
        return None
    _, number, whole, text = values
    if text is None:
        return None, number, whole
    [read] = _texts([text.encode()])
    return None if read is None or not text.startswith('"') else (f'{read}"', number, whole)


def _texts(raws: Sequence[bytes]) -> list[str | None]:
    """Returns JSON texts, those of strings without quotes and escapes. A missing one is null."""
    strings = [raw for raw in raws if raw.startswith(b'"')]
    try:
        decoded: Iterator[str] = iter(_STRINGS.decode(b"[%b]" % b",".join(strings)))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        decoded = map(_text, strings)
    return [next(decoded) if raw.startswith(b'"') else raw.decode() or None for raw in raws]


def _text(raw: bytes) -> str:
    try:
        return _STRING.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # Half a surrogate pair, which is no text.
        return raw.decode()
