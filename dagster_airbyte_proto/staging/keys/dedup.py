"""Resolves rows of the same key within one cut: the newest row stays, and a deletion leaves none.

The other rows are removed by position deletes. The keys of the rows that stay go into equality deletes, which remove
the older rows of these keys from the table. A key whose newest row is already in the table has no row that stays.

Staging does not read tables. It hands out `StagedKeys`, and takes back `LateRows`: whoever commits compares the keys
with the table (docs/decisions/0031-late-rows-by-value.md).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.loads.column_ids import POSITION_DELETES
from dagster_airbyte_proto.loads.load import HighWaterMark
from dagster_airbyte_proto.model import PlannedStream
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.staging.keys.ranking import (
    EMITTED,
    NO_ROWS,
    Ranking,
    RowNumbers,
    key_names,
    losing_rows,
    remaining_rows,
)


class StagedKeys(NamedTuple):
    """The keys of the rows that the next cut of a stream takes.

    `rows` are their ranking columns, in order of arrival. The rows in `losing` lose to another row of the cut.
    """

    planned: PlannedStream
    columns: Columns
    rows: pa.Table
    losing: RowNumbers


class LateRows(NamedTuple):
    """The numbers of the late rows, and the table's high-water mark once the other rows are in."""

    late: RowNumbers = NO_ROWS
    high_water_mark: HighWaterMark | None = None


NONE_LATE: Final = LateRows()


class KeyResolution(NamedTuple):
    """The rows that must be deleted with a cut.

    `losers` are position deletes, sorted as Iceberg requires. `keys` has the key columns under their own names, each
    key once, and as it may be written otherwise. `deleted` is the number of keys whose newest row is a deletion.
    """

    losers: pa.Table
    keys: pa.Table
    deleted: int
    high_water_mark: HighWaterMark | None


def staged_keys(planned: PlannedStream, columns: Columns, rankings: Sequence[Ranking]) -> StagedKeys:
    """Finds the rows of a cut that lose to a newer row of the same key in it."""
    # A cursor may come with a later schema of the same cut: rows of before have none, so they are the older ones.
    rows = pa.concat_tables((each.table for each in rankings), promote_options="default")
    rows = rows.select([name for name in rows.column_names if name != EMITTED] + [EMITTED])
    names = key_names(columns)
    keys = rows.select(names).group_by(names, use_threads=False).aggregate([])
    losing = NO_ROWS if keys.num_rows == rows.num_rows else losing_rows(rows, names)
    return StagedKeys(planned, columns, rows, losing)


def resolve_keys(rankings: Sequence[Ranking], keys: StagedKeys, late_rows: LateRows) -> KeyResolution:
    """Decides which rows of a cut leave its table: those that lose in the cut, and those that are late.

    A deletion that is the newest row of its key is removed too, unless deletions are kept.
    """
    losing = np.union1d(keys.losing, late_rows.late)
    names = key_names(keys.columns)
    remaining = keys.rows.select(names)
    if len(losing):
        remaining = remaining.take(pa.array(remaining_rows(losing, remaining.num_rows)))
    deleting = np.setdiff1d(_deletion_rows(rankings), losing, assume_unique=True)
    leaving = losing if keys.planned.keeps_deleted else np.union1d(losing, deleting)
    losers = _position_deletes(rankings, leaving) if len(leaving) else POSITION_DELETES.empty_table()
    remaining = _with_negative_zeros(remaining.rename_columns(list(keys.columns.keys)))
    return KeyResolution(losers, remaining, len(deleting), late_rows.high_water_mark)


def _with_negative_zeros(keys: pa.Table) -> pa.Table:
    """Adds each key of 0.0 as -0.0 too: rows may have either, and Iceberg's equality deletes tell them apart."""
    for place, name in enumerate(keys.column_names):
        if pa.types.is_floating(keys.schema.field(name).type):
            zeros = keys.filter(pc.equal(keys.column(name), 0.0))
            negative = zeros.set_column(place, keys.schema.field(name), pc.negate(zeros.column(name)))
            keys = pa.concat_tables([keys, negative]) if zeros.num_rows else keys
    return keys


def _deletion_rows(rankings: Sequence[Ranking]) -> RowNumbers:
    """Returns the row numbers, in order of arrival, of the deletions."""
    starts = np.cumsum([0, *(each.table.num_rows for each in rankings)])
    found = [
        np.flatnonzero(each.deletions.to_numpy(zero_copy_only=False)) + start
        for each, start in zip(rankings, starts[:-1], strict=True)
        if each.deletions is not None
    ]
    return np.concatenate(found) if found else NO_ROWS


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
