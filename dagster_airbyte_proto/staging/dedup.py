"""Rows of one key inside one cut: the latest stays, by cursor, then by when it was emitted, then by arrival.

Works on a small table of the keys and the order, never on the rows. The losers are named by file and position; the keys
replace what the table held of them before. A cursor that is null, or could not be read, is older than any other. One
that lies inside an object, or is of no single type, is compared as JSON: numbers before text.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import EXTRACTED_AT, Columns, Kind
from dagster_airbyte_proto.staging.raw_json import MISSING, Raw, members

FILE_PATH_ID = 2147483546
POSITION_ID = 2147483545
POSITION_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
    ]
)

_Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
_NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_CURSOR = "cursor"


class Ranking(NamedTuple):
    """What of a batch decides which rows stay: keys (columns `key0`, `key1`, …) and order; and where it lies.

    `deletions` tells of each row whether it deletes its key; None where none does.
    """

    table: pa.Table
    file: str
    first_position: int
    deletions: pa.BooleanArray | None = None


class Resolution(NamedTuple):
    """`losers` as a position delete file has them (sorted), `keys` with the key columns' own names, each key once.

    `deleted` is the number of keys whose latest row is a deletion.
    """

    losers: pa.Table
    keys: pa.Table
    deleted: int


def ranking(
    batch: pa.RecordBatch,
    columns: Columns,
    file: str,
    first_position: int,
    deletions: pa.BooleanArray | None = None,
) -> Ranking:
    """The ranking of a batch that was written to `file`, its first row at `first_position`."""
    named = {f"key{number}": batch.column(key) for number, key in enumerate(columns.keys)}
    named.update(_cursor(batch, columns))
    named["emitted"] = batch.column(EXTRACTED_AT)
    return Ranking(pa.table(named), file, first_position, deletions)


def resolve(rankings: Sequence[Ranking], columns: Columns, *, keeps_deleted: bool = False) -> Resolution:
    """Which rows of a cut lose to a later one of the same key. A deletion that is itself the latest goes with them,
    unless it is kept."""
    table = pa.concat_tables(each.table for each in rankings)
    names = [f"key{number}" for number in range(len(columns.keys))]
    keys = table.select(names).group_by(names, use_threads=False).aggregate([])
    losing = np.empty(0, np.int64) if keys.num_rows == table.num_rows else _losing_rows(table, names)
    deleting = np.setdiff1d(_deletions(rankings), losing, assume_unique=True)
    gone = losing if keeps_deleted else np.union1d(losing, deleting)
    losers = _positions(rankings, gone) if len(gone) else POSITION_DELETES.empty_table()
    return Resolution(losers, keys.select(names).rename_columns(list(columns.keys)), len(deleting))


def _deletions(rankings: Sequence[Ranking]) -> _Rows:
    """Row numbers, in order of arrival, of the deletions."""
    starts = np.cumsum([0, *(each.table.num_rows for each in rankings)])
    found = [
        np.flatnonzero(each.deletions.to_numpy(zero_copy_only=False)) + start
        for each, start in zip(rankings, starts[:-1], strict=True)
        if each.deletions is not None
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _losing_rows(table: pa.Table, keys: Sequence[str]) -> _Rows:
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


def _group_numbers(table: pa.Table, keys: Sequence[str]) -> _Rows:
    """The same number for rows of the same key; null is equal to null."""
    numbers = np.zeros(table.num_rows, dtype=np.int64)
    for key in keys:
        encoded = table.column(key).combine_chunks().dictionary_encode(null_encoding="encode")
        encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
        codes = encoded.indices.to_numpy().astype(np.int64)
        numbers = np.unique(numbers * (len(encoded.dictionary) + 1) + codes, return_inverse=True)[1]
    return numbers.astype(np.int64)


def _positions(rankings: Sequence[Ranking], losing: _Rows) -> pa.Table:
    starts = np.cumsum([0, *(each.table.num_rows for each in rankings)])
    owners = np.searchsorted(starts, losing, side="right") - 1
    firsts = np.array([each.first_position for each in rankings])
    files = pa.array([each.file for each in rankings]).take(pa.array(owners))
    positions = pa.array(losing - starts[owners] + firsts[owners], pa.int64())
    losers = pa.Table.from_arrays([files, positions], schema=POSITION_DELETES)
    return losers.sort_by([("file_path", "ascending"), ("pos", "ascending")])


def _cursor(batch: pa.RecordBatch, columns: Columns) -> dict[str, pa.Array]:
    path = columns.cursor
    if not path:
        return {}
    column = next(column for column in columns.top if column.path[0] == path[0])
    if len(path) == 1 and column.type.kind is not Kind.JSON:
        return {} if column.type.depth else {_CURSOR: batch.column(column.name)}
    raws = [_inside(text, path[1:]) for text in batch.column(column.name).to_pylist()]
    numbers = [float(raw) if _NUMBER.fullmatch(raw) else None for raw in raws]
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
        f"{_CURSOR}_text": pa.array(texts, pa.string()),
    }


def _inside(text: str | None, path: Sequence[str]) -> bytes:
    raw = MISSING if text is None else Raw(text.encode())
    for step in path:
        try:
            raw = members(raw).get(step, MISSING)
        except ValueError:
            return b""
    return bytes(raw)
