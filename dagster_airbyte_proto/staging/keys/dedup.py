"""Resolves rows of the same key within one cut: the newest row stays, and a deletion leaves none.

The other rows are removed by position deletes. The keys of the rows that stay go into equality deletes, which remove
the older rows of these keys from the table. A key whose newest row is already in the table has no row that stays.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.loads.load import HighWaterMark
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.staging.keys.late_rows import LateRowLookup
from dagster_airbyte_proto.staging.keys.ranking import Ranking, RowNumbers, key_names, losing_rows, remaining_rows

# The field ids that Iceberg's specification reserves for the columns of position deletes.
FILE_PATH_ID = 2147483546
POSITION_ID = 2147483545
POSITION_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
    ]
)


class KeyResolution(NamedTuple):
    """The rows that must be deleted with a cut.

    `losers` are position deletes, sorted as Iceberg requires. `keys` has the key columns under their own names, each
    key once. `deleted` is the number of keys whose newest row is a deletion.
    """

    losers: pa.Table
    keys: pa.Table
    deleted: int
    high_water_mark: HighWaterMark | None


def resolve_keys(
    rankings: Sequence[Ranking], columns: Columns, late_rows: LateRowLookup, *, keeps_deleted: bool = False
) -> KeyResolution:
    """Finds the rows of a cut that lose to a newer row of the same key, in the cut or in the table.

    A deletion that is the newest row of its key is removed too, unless deletions are kept.
    """
    table = pa.concat_tables(each.table for each in rankings)
    names = key_names(columns)
    keys = table.select(names).group_by(names, use_threads=False).aggregate([]).select(names)
    losing = np.empty(0, np.int64) if keys.num_rows == table.num_rows else losing_rows(table, names)
    late, high_water_mark = late_rows.find(table, losing)
    if len(late):
        losing = np.union1d(losing, late)
        keys = table.select(names).take(pa.array(remaining_rows(losing, table.num_rows)))
    deleting = np.setdiff1d(_deletion_rows(rankings), losing, assume_unique=True)
    leaving = losing if keeps_deleted else np.union1d(losing, deleting)
    losers = _position_deletes(rankings, leaving) if len(leaving) else POSITION_DELETES.empty_table()
    return KeyResolution(losers, keys.rename_columns(list(columns.keys)), len(deleting), high_water_mark)


def _deletion_rows(rankings: Sequence[Ranking]) -> RowNumbers:
    """Returns the row numbers, in order of arrival, of the deletions."""
    starts = np.cumsum([0, *(each.table.num_rows for each in rankings)])
    found = [
        np.flatnonzero(each.deletions.to_numpy(zero_copy_only=False)) + start
        for each, start in zip(rankings, starts[:-1], strict=True)
        if each.deletions is not None
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _position_deletes(rankings: Sequence[Ranking], losing: RowNumbers) -> pa.Table:
    starts = np.cumsum([0, *(each.table.num_rows for each in rankings)])
    cuts = np.searchsorted(losing, starts)
    found = [
        each.locations.paths_and_positions(losing[begin:end] - start)
        for each, start, begin, end in zip(rankings, starts[:-1], cuts[:-1], cuts[1:], strict=True)
    ]
    files = pa.concat_arrays([names for names, _ in found])
    positions = np.concatenate([places for _, places in found])
    losers = pa.Table.from_arrays([files, pa.array(positions, pa.int64())], schema=POSITION_DELETES)
    return losers.sort_by([("file_path", "ascending"), ("pos", "ascending")])
