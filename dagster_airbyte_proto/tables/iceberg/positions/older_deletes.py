"""Joins the rows that an upsert deletes from a data file to those that older deletes have deleted there.

- A data file has one deletion vector at most. Readers ignore position deletes in other files beside it. So a new vector
  has all older rows, and the older vector goes in the same commit. A vector without the older rows would bring them
  back, and with two vectors for one file readers refuse the table.
- In format 2 any number of files may delete rows of a data file. So only new rows are written there.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.tables.deleted_rows import Positions, vector_rows
from dagster_airbyte_proto.tables.iceberg.positions.planned_files import (
    PARQUET,
    AppliedDeletes,
    PlannedDeletes,
    PlannedTask,
)


class JoinedDeletes(NamedTuple):
    """The rows of new position deletes for a data file, and the older deletes whose rows are all among them."""

    rows: Positions
    replaced: tuple[AppliedDeletes, ...] = ()


class OlderDeletes:
    """Reads older position deletes. Each file of them is read once, however many data files it refers to."""

    def __init__(self, storage: Storage, *, writes_vectors: bool = False) -> None:
        self._storage = storage
        self._writes_vectors = writes_vectors
        self._read: dict[str, pa.Table] = {}

    def joined(self, task: PlannedTask, found: Positions) -> JoinedDeletes | None:
        """Returns the deletes to write for a data file in which rows were `found`. None if all of them are deleted."""
        gone = self.deleted(task)
        fresh = np.setdiff1d(found, gone, assume_unique=True)
        if not len(fresh):
            return None
        if not self._writes_vectors:
            return JoinedDeletes(fresh)
        # A file that other data files need too stays. It has no effect beside the vector.
        replaced = tuple(each for each in task.position_deletes() if each.deletes.referenced_data_file is not None)
        return JoinedDeletes(np.union1d(fresh, gone), replaced)

    def deleted(self, task: PlannedTask) -> Positions:
        """Returns the rows of a data file that position deletes have deleted."""
        rows = [self._rows(each.deletes, task.data_file.file_path) for each in task.position_deletes()]
        return np.unique(np.concatenate(rows)) if rows else np.empty(0, np.int64)

    def _rows(self, deletes: PlannedDeletes, data_file: str) -> Positions:
        doing = "reading the deletes that a table has"
        filesystem, place = self._storage.at(deletes.file_path)
        if deletes.content_offset is not None and deletes.content_size_in_bytes is not None:
            with filesystem.open_input_file(place) as file:
                data = file.read_at(deletes.content_size_in_bytes, deletes.content_offset)
            try:
                rows = vector_rows(data)
            except ValueError as error:
                raise TableError(doing, f"{deletes.file_path}: {error}") from error
            if len(rows) != deletes.record_count:
                found = (
                    f"a vector in {deletes.file_path} has {len(rows)} rows, and the table says {deletes.record_count}"
                )
                raise TableError(doing, found)
            return rows
        if deletes.file_format != PARQUET:
            remedy = "Compact the table, and sync again."
            raise TableError(doing, f"{deletes.file_path} is {deletes.file_format}", remedy=remedy)
        if deletes.file_path not in self._read:
            with filesystem.open_input_file(place) as file:
                self._read[deletes.file_path] = pq.read_table(file, columns=["file_path", "pos"])
        read = self._read[deletes.file_path]
        return np.unique(read.filter(pc.equal(read["file_path"], data_file))["pos"].to_numpy())


def position_delete_table(schema: pa.Schema, rows_by_file: Sequence[tuple[str, Positions]]) -> pa.Table:
    """Returns a file of position deletes, sorted as Iceberg requires."""
    ordered = sorted(rows_by_file, key=itemgetter(0))
    counts = [len(rows) for _, rows in ordered]
    paths = pa.array([path for path, _ in ordered]).take(pa.array(np.repeat(np.arange(len(ordered)), counts)))
    return pa.table([paths, np.concatenate([rows for _, rows in ordered])], schema=schema)
