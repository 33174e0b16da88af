"""What decides which row of a key stays: the latest, by cursor, then by when it was emitted, then by arrival.

Works on a small table of the keys and the order, never on the rows. A cursor that is null, or could not be read, is
older than any other. One that lies inside an object, or is of no single type, is compared as JSON: numbers before text.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import EXTRACTED_AT, Columns, Kind
from dagster_airbyte_proto.staging.rows.members import reached, texts_at

EMITTED: Final = "emitted"
Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
"""Numbers of rows, in order of arrival."""

_NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_LONG = re.compile(rb"-?\d{16,38}")
_CURSOR = "cursor"


class InOneFile(NamedTuple):
    """A batch's rows one after the other."""

    file: str
    first_position: int

    def of(self, rows: Rows) -> tuple[pa.Array, Rows]:
        return pa.repeat(pa.scalar(self.file, pa.string()), len(rows)), rows + self.first_position


class InFiles(NamedTuple):
    """A batch's rows here and there: for each the number of its file, -1 where it is in none, and its place in it."""

    files: Sequence[str]
    owners: Rows
    positions: Rows

    @classmethod
    def without(cls, gone: pa.BooleanArray, others: "InOneFile | InFiles") -> "InFiles":
        """The rows that are `gone` in none, and the others, which are told of without them, where they lie."""
        is_there = ~gone.to_numpy(zero_copy_only=False)
        owners, positions = np.full(len(gone), -1, np.int64), np.zeros(len(gone), np.int64)
        if isinstance(others, InFiles):
            owners[is_there], positions[is_there] = others.owners, others.positions
            return cls(others.files, owners, positions)
        owners[is_there], positions[is_there] = 0, np.arange(np.count_nonzero(is_there)) + others.first_position
        return cls([others.file], owners, positions)

    def of(self, rows: Rows) -> tuple[pa.Array, Rows]:
        rows = rows[self.owners[rows] >= 0]
        return pa.array(self.files, pa.string()).take(pa.array(self.owners[rows])), self.positions[rows]


class Ranking(NamedTuple):
    """What of a batch decides which rows stay: keys (columns `key0`, `key1`, …) and order; and where each row lies.

    A row that is in no file leaves none of its key. `deletions` tells of each row whether it deletes its key; None
    where none does.
    """

    table: pa.Table
    places: InOneFile | InFiles
    deletions: pa.BooleanArray | None = None


def ranked(rows: pa.RecordBatch | pa.Table, columns: Columns) -> pa.Table:
    """The keys and the order of rows."""
    named = {name: rows.column(key) for name, key in zip(key_names(columns), columns.keys, strict=True)}
    named.update(_cursor(rows, columns))
    named[EMITTED] = rows.column(EXTRACTED_AT)
    return pa.table(named)


def key_names(columns: Columns) -> list[str]:
    return [f"key{number}" for number in range(len(columns.keys))]


def order_names(table: pa.Table) -> list[str]:
    """What the cursor is made of, in a ranked table: nothing where there is none."""
    return [name for name in table.column_names if name.startswith(_CURSOR)]


def others(rows: Rows, of: int) -> Rows:
    """The numbers of all rows but these."""
    is_other = np.ones(of, dtype=bool)
    is_other[rows] = False
    return np.flatnonzero(is_other)


def losing_rows(table: pa.Table, keys: Sequence[str]) -> Rows:
    """Row numbers, in order of arrival, of all but the latest row of each key."""
    group = _group_numbers(table, keys)
    ordered: dict[str, Any] = {"group": group}
    for name in table.column_names:
        if name not in keys:
            # Arrow sorts nulls last; what says whether there is a value comes before the value, so that they are first.
            ordered[f"has_{name}"] = table.column(name).is_valid().cast(pa.int8())
            ordered[name] = table.column(name)
    ordered["arrival"] = np.arange(table.num_rows)
    order = pc.sort_indices(pa.table(ordered), sort_keys=[(name, "ascending") for name in ordered]).to_numpy()
    in_order = group[order]
    is_last = np.append(in_order[1:] != in_order[:-1], True)
    return np.sort(order[~is_last]).astype(np.int64)


def _group_numbers(table: pa.Table, keys: Sequence[str]) -> Rows:
    """The same number for rows of the same key; null is equal to null."""
    numbers = np.zeros(table.num_rows, dtype=np.int64)
    for key in keys:
        encoded = table.column(key).combine_chunks().dictionary_encode(null_encoding="encode")
        encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
        codes = encoded.indices.to_numpy().astype(np.int64)
        numbers = np.unique(numbers * (len(encoded.dictionary) + 1) + codes, return_inverse=True)[1]
    return numbers.astype(np.int64)


def _cursor(batch: pa.RecordBatch, columns: Columns) -> dict[str, pa.Array]:
    path, column = columns.cursor, columns.order_column
    if column is None:
        return {}
    array, kind, beyond = reached(batch.column(column.name), column.type, path[1:])
    if not beyond and kind.kind is not Kind.JSON:
        return {} if kind.depth or kind.kind is Kind.STRUCT else {_CURSOR: array}
    raws = [bytes(raw) for raw in texts_at(array, kind, beyond)]
    numbers = [float(raw) if _NUMBER.fullmatch(raw) else None for raw in raws]
    # Positions in a database's log are greater than what a float can tell apart.
    whole = [
        int(raw) if number is not None and abs(number) >= 2**53 and _LONG.fullmatch(raw) else None
        for raw, number in zip(raws, numbers, strict=True)
    ]
    texts = [
        raw.decode() if number is None and raw != b"null" and raw else None
        for raw, number in zip(raws, numbers, strict=True)
    ]
    rank = [
        0 if text is None and number is None else 1 if text is None else 2
        for text, number in zip(texts, numbers, strict=True)
    ]
    return {
        f"{_CURSOR}_rank": pa.array(rank, pa.int8()),
        f"{_CURSOR}_number": pa.array(numbers, pa.float64()),
        f"{_CURSOR}_whole": pa.array(whole, pa.decimal128(38, 0)),
        f"{_CURSOR}_text": pa.array(texts, pa.string()),
    }
