"""Sorts rows in the order of their table's files, whole columns at a time, and maps positions to the sorted ones."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.model import SortField

SortedPositions = np.ndarray[tuple[int], np.dtype[np.int64]]
"""The position in the file of each row, in order of arrival."""


def sort_rows(rows: pa.Table, fields: Sequence[SortField]) -> tuple[pa.Table, SortedPositions]:
    """Sorts rows. Rows that are equal in all fields stay in order of arrival."""
    rows = rows.combine_chunks()
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    keys: list[tuple[str, str]] = []
    for number, field in enumerate(fields):
        way, column = "descending" if field.is_descending else "ascending", rows.column(field.column)
        if column.null_count:
            # Null is less than any value. Arrow puts nulls to one end, whatever the direction.
            columns[f"has {number}"] = column.is_valid().cast(pa.int8())
            keys.append((f"has {number}", way))
        columns[str(number)] = column
        keys.append((str(number), way))
    order = pc.sort_indices(pa.table(columns), sort_keys=keys)
    sorted_positions = np.empty(len(order), np.int64)
    sorted_positions[order.to_numpy()] = np.arange(len(order))
    return rows.take(order), sorted_positions


def move_positions(positions: pa.Table, sorted_positions: Mapping[str, SortedPositions]) -> pa.Table:
    """Turns position deletes by order of arrival into position deletes by the sorted positions in the files."""
    files = positions.column("file_path").combine_chunks().dictionary_encode()
    owners, moved_positions = files.indices.to_numpy(), positions.column("pos").to_numpy().copy()
    for number, file in enumerate(files.dictionary.to_pylist()):
        is_in_file = owners == number
        moved_positions[is_in_file] = sorted_positions[file][moved_positions[is_in_file]]
    in_files = positions.set_column(1, positions.schema.field(1), pa.array(moved_positions, pa.int64()))
    return in_files.sort_by([("file_path", "ascending"), ("pos", "ascending")])
