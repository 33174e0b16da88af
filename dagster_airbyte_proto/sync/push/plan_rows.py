"""Reads the rows of a sealed plan, from any position on, in batches that never mix rows to write with removals."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.push import PlanFile, SealedPlan
from dagster_airbyte_proto.loads.storage import Storage

_READ_ROWS = 10_000


class PlanBatch(NamedTuple):
    """Rows of a plan. The first has the position `start`."""

    start: int
    rows: pa.RecordBatch
    is_removal: bool

    @property
    def end(self) -> int:
        return self.start + int(self.rows.num_rows)


def plan_batches(plan: SealedPlan, storage: Storage, start: int, end: int) -> Iterator[PlanBatch]:
    """Yields the rows of a plan from `start` up to `end`. Raises StagingError where its files are gone."""
    removals_begin = plan.rows_to_write
    for rows in _rows(plan.files, storage, start, min(end, removals_begin)):
        yield PlanBatch(start, _with_json(rows, plan.json_fields), is_removal=False)
        start += rows.num_rows
    first = max(start - removals_begin, 0)
    for rows in _rows(plan.removal_files, storage, first, end - removals_begin):
        yield PlanBatch(removals_begin + first, rows, is_removal=True)
        first += rows.num_rows


def _with_json(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Marks the columns whose text is JSON: Spark has no type for it in Parquet."""
    for name in names:
        place = rows.schema.get_field_index(name)
        texts = pa.ExtensionArray.from_storage(pa.json_(pa.string()), rows.column(place).cast(pa.string()))
        rows = rows.set_column(place, name, texts)
    return rows


def _rows(files: Sequence[PlanFile], storage: Storage, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Joins the rows of small files, of which Spark writes many. Each batch is a transaction here, and often one at the
    destination."""
    waiting: list[pa.RecordBatch] = []
    waiting_rows = 0
    for rows in _rows_of_files(files, storage, start, end):
        if waiting and waiting_rows + rows.num_rows > _READ_ROWS:
            yield from _joined(waiting)
            waiting, waiting_rows = [], 0
        waiting.append(rows)
        waiting_rows += rows.num_rows
    yield from _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    if len(batches) <= 1:
        return batches
    joined: Sequence[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _rows_of_files(files: Sequence[PlanFile], storage: Storage, start: int, end: int) -> Iterator[pa.RecordBatch]:
    before = 0
    for file in files:
        first, last = max(start - before, 0), min(end - before, file.rows)
        before += file.rows
        if first < last:
            yield from _rows_of_file(file, storage, first, last)


def _rows_of_file(file: PlanFile, storage: Storage, first: int, last: int) -> Iterator[pa.RecordBatch]:
    doing, place = "reading the plan of a push", 0
    try:
        filesystem, path = storage.at(file.path)
        with filesystem.open_input_file(path) as opened, pq.ParquetFile(opened) as parquet:
            for rows in parquet.iter_batches(_READ_ROWS):
                kept = rows.slice(
                    max(first - place, 0), max(min(last - place, rows.num_rows) - max(first - place, 0), 0)
                )
                place += rows.num_rows
                if kept.num_rows:
                    yield kept
                if place >= last:
                    return
    except (OSError, pa.ArrowInvalid) as error:
        remedy = "What was acknowledged stays. `airbyte-proto state reset` plans the push anew, from nothing."
        raise StagingError(doing, f"{file.path}: {error}", remedy=remedy) from error
    raise StagingError(doing, f"{file.path} has {place} rows, and had {file.rows}")
