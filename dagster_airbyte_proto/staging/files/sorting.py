"""Rows in the order that their table's files have, whole columns at a time; and where each of them went."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.model import SortField

Places = np.ndarray[tuple[int], np.dtype[np.int64]]
"""For each row, in the order in which they came, its place in the file."""


def in_order(rows: pa.Table, fields: Sequence[SortField]) -> tuple[pa.Table, Places]:
    """The rows in their order; those that are equal in it stay in the order in which they came."""
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
    places = np.empty(len(order), np.int64)
    places[order.to_numpy()] = np.arange(len(order))
    return rows.take(order), places


def moved(positions: pa.Table, places: Mapping[str, Places]) -> pa.Table:
    """Position deletes of rows by the order in which they came, as those of their places in the files."""
    files = positions.column("file_path").combine_chunks().dictionary_encode()
    owners, found = files.indices.to_numpy(), positions.column("pos").to_numpy().copy()
    for number, file in enumerate(files.dictionary.to_pylist()):
        its = owners == number
        found[its] = places[file][found[its]]
    told = positions.set_column(1, positions.schema.field(1), pa.array(found, pa.int64()))
    return told.sort_by([("file_path", "ascending"), ("pos", "ascending")])
