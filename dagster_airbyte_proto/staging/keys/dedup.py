"""Rows of one key inside one cut: the latest stays, and a deletion leaves none.

The losers are named by file and position; the keys replace what the table held of them before.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.loads.load import Newest
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.staging.keys.late_rows import LateRowLookup
from dagster_airbyte_proto.staging.keys.ranking import Ranking, Rows, key_names, losing_rows, others

FILE_PATH_ID = 2147483546
POSITION_ID = 2147483545
POSITION_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
    ]
)


class Resolution(NamedTuple):
    """`losers` as a position delete file has them (sorted), `keys` with the key columns' own names, each key once.

    `deleted` is the number of keys whose latest row is a deletion.
    """

    losers: pa.Table
    keys: pa.Table
    deleted: int
    newest: Newest | None


def resolve(
    rankings: Sequence[Ranking], columns: Columns, rivals: LateRowLookup, *, keeps_deleted: bool = False
) -> Resolution:
    """Which rows of a cut lose to a newer one of the same key, here or in the table. A deletion that is itself the
    newest goes with them, unless it is kept."""
    table = pa.concat_tables(each.table for each in rankings)
    names = key_names(columns)
    keys = table.select(names).group_by(names, use_threads=False).aggregate([]).select(names)
    losing = np.empty(0, np.int64) if keys.num_rows == table.num_rows else losing_rows(table, names)
    late, newest = rivals.find(table, losing)
    if len(late):
        losing = np.union1d(losing, late)
        keys = table.select(names).take(pa.array(others(losing, table.num_rows)))
    deleting = np.setdiff1d(_deletions(rankings), losing, assume_unique=True)
    leaving = losing if keeps_deleted else np.union1d(losing, deleting)
    losers = _positions(rankings, leaving) if len(leaving) else POSITION_DELETES.empty_table()
    return Resolution(losers, keys.rename_columns(list(columns.keys)), len(deleting), newest)


def _deletions(rankings: Sequence[Ranking]) -> Rows:
    """Row numbers, in order of arrival, of the deletions."""
    starts = np.cumsum([0, *(each.table.num_rows for each in rankings)])
    found = [
        np.flatnonzero(each.deletions.to_numpy(zero_copy_only=False)) + start
        for each, start in zip(rankings, starts[:-1], strict=True)
        if each.deletions is not None
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _positions(rankings: Sequence[Ranking], losing: Rows) -> pa.Table:
    starts = np.cumsum([0, *(each.table.num_rows for each in rankings)])
    cuts = np.searchsorted(losing, starts)
    found = [
        each.places.of(losing[begin:end] - start)
        for each, start, begin, end in zip(rankings, starts[:-1], cuts[:-1], cuts[1:], strict=True)
    ]
    files = pa.concat_arrays([names for names, _ in found])
    positions = np.concatenate([places for _, places in found])
    losers = pa.Table.from_arrays([files, pa.array(positions, pa.int64())], schema=POSITION_DELETES)
    return losers.sort_by([("file_path", "ascending"), ("pos", "ascending")])
