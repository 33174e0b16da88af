"""Reads the rows of a sealed plan, from any position on, in batches that never mix rows to write with removals."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.push import PlanColumn, PlanFile, SealedPlan
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.sync.push.plan.plain_types import plain_type

_READ_ROWS = 10_000


class ReadSize(NamedTuple):
    """The most rows that are read at once, if they have no more bytes: 10,000 are read in any case."""

    rows: int = _READ_ROWS
    bytes: int = 0

    def has_room(self, rows: int, size_bytes: int) -> bool:
        return rows <= _READ_ROWS or (rows <= self.rows and size_bytes <= self.bytes)

    def rows_of(self, parquet: pq.ParquetFile) -> int:
        """The rows to read at once of this file, by their mean size."""
        about = parquet.metadata
        size_bytes: int = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
        mean_bytes = max(1, size_bytes // max(1, int(about.num_rows)))
        return max(_READ_ROWS, min(self.rows, self.bytes // mean_bytes))


class PlanBatch(NamedTuple):
    """Rows of a plan. The first has the position `start`."""

    start: int
    rows: pa.RecordBatch
    is_removal: bool

    @property
    def end(self) -> int:
        return self.start + int(self.rows.num_rows)


def plan_batches(
    plan: SealedPlan,
    storage: Storage,
    start: int,
    end: int,
    size: ReadSize = ReadSize(),  # noqa: B008 - it is frozen
) -> Iterator[PlanBatch]:
    """Yields the rows of a plan from `start` up to `end`. Raises StagingError where its files are gone."""
    removals_begin = plan.rows_to_write
    for rows in _rows(plan.files, storage, range(start, min(end, removals_begin)), size, plan.columns):
        yield PlanBatch(start, _with_json(rows, plan.json_fields), is_removal=False)
        start += rows.num_rows
    first = max(start - removals_begin, 0)
    for rows in _rows(plan.removal_files, storage, range(first, end - removals_begin), size):
        yield PlanBatch(removals_begin + first, rows, is_removal=True)
        first += rows.num_rows


def _with_json(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Marks the columns whose text is JSON: Spark has no type for it in Parquet."""
    for name in names:
        place = rows.schema.get_field_index(name)
        texts = pa.ExtensionArray.from_storage(pa.json_(pa.string()), rows.column(place).cast(pa.string()))
        rows = rows.set_column(place, name, texts)
    return rows


def _rows(
    files: Sequence[PlanFile], storage: Storage, positions: range, size: ReadSize, columns: Sequence[PlanColumn] = ()
) -> Iterator[pa.RecordBatch]:
    """Joins the rows of small files, of which Spark writes many. Each batch is a transaction here, and often one at the
    destination."""
    waiting: list[pa.RecordBatch] = []
    waiting_rows = waiting_bytes = 0
    for rows in _rows_of_files(files, storage, positions, size, columns):
        if waiting and not size.has_room(waiting_rows + rows.num_rows, waiting_bytes + rows.nbytes):
            yield from _joined(waiting)
            waiting, waiting_rows, waiting_bytes = [], 0, 0
        waiting.append(rows)
        waiting_rows += rows.num_rows
        waiting_bytes += rows.nbytes
    yield from _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    if len(batches) <= 1:
        return batches
    joined: Sequence[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _rows_of_files(
    files: Sequence[PlanFile], storage: Storage, positions: range, size: ReadSize, columns: Sequence[PlanColumn]
) -> Iterator[pa.RecordBatch]:
    before = 0
    for file in files:
        own = range(max(positions.start - before, 0), min(positions.stop - before, file.rows))
        before += file.rows
        if own:
            yield from _rows_of_file(file, storage, own, size, columns)


def _rows_of_file(
    file: PlanFile, storage: Storage, positions: range, size: ReadSize, columns: Sequence[PlanColumn]
) -> Iterator[pa.RecordBatch]:
    doing, place = "reading the plan of a push", 0
    first, last = positions.start, positions.stop
    names = [each.column for each in columns] or None
    try:
        filesystem, path = storage.at(file.path)
        with filesystem.open_input_file(path) as opened, pq.ParquetFile(opened) as parquet:
            groups, place = _row_groups_from(parquet, first)
            for rows in parquet.iter_batches(size.rows_of(parquet), row_groups=groups, columns=names):
                kept = rows.slice(
                    max(first - place, 0), max(min(last - place, rows.num_rows) - max(first - place, 0), 0)
                )
                place += rows.num_rows
                if kept.num_rows:
                    yield _as_fields(kept, columns) if columns else kept
                if place >= last:
                    return
    except (OSError, pa.ArrowException) as error:
        remedy = "What was acknowledged stays. `airbyte-proto state reset` plans the push anew, from nothing."
        raise StagingError(doing, f"{file.path}: {error}", remedy=remedy) from error
    raise StagingError(doing, f"{file.path} has {place} rows, and had {file.rows}")


def _row_groups_from(parquet: pq.ParquetFile, first: int) -> tuple[list[int], int]:
    """The row groups of a file from that with a row on, and the number of the rows before them."""
    before = 0
    for number in range(parquet.num_row_groups):
        rows = parquet.metadata.row_group(number).num_rows
        if first < before + rows:
            return list(range(number, parquet.num_row_groups)), before
        before += rows
    return [], before


def _as_fields(rows: pa.RecordBatch, columns: Sequence[PlanColumn]) -> pa.RecordBatch:
    # By name, because Arrow also reads a field `b` in a struct `a` where the column `a.b` is requested.
    found = [rows.column(each.column) for each in columns]
    # Batches of several files are joined.
    plain = [each if each.type == (kind := plain_type(each.type)) else each.cast(kind) for each in found]
    return pa.RecordBatch.from_arrays(plain, [each.field for each in columns])
