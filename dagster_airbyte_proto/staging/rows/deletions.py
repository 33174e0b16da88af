"""Finds the rows by which a source deletes their keys."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import DELETION_FIELDS, WHOLE_RECORD, Columns
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, members
from dagster_airbyte_proto.staging.values.changes import Changes, true_positions

# The name of a mark, or a letter in it that is escaped: only such records are searched one by one.
_MAY_BE_MARKED: Final = rf'(?:{"|".join(DELETION_FIELDS)})"|\\u00[567]'


def deletion_mask(columns: Columns, arrays: Mapping[str, pa.Array], changes: Changes) -> pa.BooleanArray | None:
    """Returns a mask of the rows that have a mark with any value but null, also one that did not fit its column.

    `arrays` are the parsed fields, by the names of `columns.parsed_fields`. None if no row has a mark.
    """
    found: list[Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    for column in columns.parsed_fields:
        array = arrays[column.name]
        if column.path[0] in DELETION_FIELDS:
            found.append(true_positions(array.is_valid()) if array.null_count < len(array) else ())
            found.append(changes.rows_nulled(column.path[0]))
        elif columns.is_schemaless and columns.keys and column.path == (WHOLE_RECORD,):
            found.append(_marked_records(array))
    if not any(map(len, found)):
        return None
    is_deletion = np.zeros(len(next(iter(arrays.values()))), dtype=bool)
    for rows in found:
        is_deletion[np.asarray(rows, np.int64)] = True
    return pa.array(is_deletion)


def marks_of_records(texts: pa.Array) -> Iterator[frozenset[str]]:
    """Yields the marks of each whole record that has one with any value but null."""
    for row in _candidates(texts):
        if marks := _marks(texts[int(row)].as_py()):
            yield marks


def _marked_records(texts: pa.Array) -> list[int]:
    return [int(row) for row in _candidates(texts) if _marks(texts[int(row)].as_py())]


def _candidates(texts: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return true_positions(pc.match_substring_regex(texts, _MAY_BE_MARKED))


def _marks(text: str) -> frozenset[str]:
    try:
        fields = members(text.encode())
    except ValueError:
        return frozenset()
    return frozenset(name for name in DELETION_FIELDS if bytes(fields.get(name, MISSING)) not in (b"", b"null"))
