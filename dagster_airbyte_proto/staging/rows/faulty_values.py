"""Reads a column around values that our own code fails on, in a way that nobody foresaw.

A value that does not fit its column is no fault: it is nulled with a reason. A fault is an exception of any other kind:
an error of this package, or of a library, that would take the whole stream down at each sync. Its values are found by
halving and nulled, with an entry that has a reason of its own. So the other values of the stream land.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.schema.columns import Column
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw
from dagster_airbyte_proto.staging.lines.raw_values import wire_array
from dagster_airbyte_proto.staging.rows.coercion import coerce
from dagster_airbyte_proto.staging.values.changes import SERIALIZATION_ERROR, Changes, ValueLocations

ReadColumn = Callable[[Column, Sequence[Raw], Changes], pa.Array]


def wire_array_around_faults(
    column: Column, raws: Sequence[Raw], changes: Changes, read: ReadColumn = wire_array
) -> pa.Array:
    """Returns the array that `read` makes, with null in the place of each value that it, or `coerce`, fails on.

    Raises the exception where it does not come from a value: if a missing one fails too.
    """
    _read_wholly(column, [MISSING], read)
    faulty = _faulty_positions(column, raws, read)
    cleaned = list(raws)
    for position in faulty:
        cleaned[position] = MISSING
    array = read(column, cleaned, changes)
    changes.note_nulled(ValueLocations(column.path), np.array(faulty, np.int64), SERIALIZATION_ERROR)
    return array


def _faulty_positions(column: Column, raws: Sequence[Raw], read: ReadColumn) -> list[int]:
    faulty: list[int] = []
    ranges = [(0, len(raws))]
    while ranges:
        start, end = ranges.pop()
        try:
            _read_wholly(column, raws[start:end], read)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is: its value is found here, and noted by the caller
            middle = (start + end) // 2
            if end - start == 1:
                faulty.append(start)
            else:
                ranges += [(middle, end), (start, middle)]
    return faulty


def _read_wholly(column: Column, raws: Sequence[Raw], read: ReadColumn) -> None:
    """Reads and coerces values for the exceptions alone."""
    changes = Changes()
    coerce(column, read(column, raws, changes), changes)
    changes.entry_lists(len(raws))
