"""Reads the key columns of data files in this process, and finds the rows that have one of some keys.

- Columns are found by their field ids, so a column that was renamed is the same one, and a column that a file lacks is
  null in its rows. A file without ids was made by another program; Spark reads it by the table's name mapping.
- Only key columns are read, row group by row group, so that memory follows the size of a row group.
- Rows that are deleted already are found too.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.column_ids import FIELD_ID
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.tables.deleted_rows import Positions
from dagster_airbyte_proto.tables.iceberg.positions.key_search import KeySearch
from dagster_airbyte_proto.tables.iceberg.positions.planned_files import PARQUET, PlannedFile

KEYS_AT_ONCE = 2_000_000
"""They are in memory while they are sought."""
_BATCH = 65_536
# Object stores answer slowly, and Arrow decodes without holding Python up.
_READERS = 4


class UnreadableFile(Exception):
    """A data file that is not read in this process. Spark can read it."""


class SearchKeys(NamedTuple):
    """The keys to look for, each column with its field id in the table."""

    keys: pa.Table
    ids: tuple[int, ...]

    def ranges(self) -> dict[int, "_Range"]:
        """The least and the greatest value of integer and text columns without nulls."""
        columns = zip(self.ids, self.keys.columns, strict=True)
        ordered = [(each, values) for each, values in columns if len(values) and not values.null_count]
        return {
            each: _Range(**pc.min_max(values).as_py())
            for each, values in ordered
            if pa.types.is_integer(values.type) or pa.types.is_string(values.type)
        }


class _Range(NamedTuple):
    min: Any
    max: Any


def read_keys(storage: Storage, paths: Sequence[str], fields: Sequence[pa.Field], at_once: int) -> Iterator[SearchKeys]:
    """Reads staged files of keys, about so many at once, with the types that the table's key columns have by now."""
    ids = tuple(int(field.metadata[FIELD_ID]) for field in fields)
    batches: list[pa.Table] = []
    for path in paths:
        filesystem, place = storage.at(path)
        with filesystem.open_input_file(place) as opened, pq.ParquetFile(opened) as file:
            places = column_places(file.schema_arrow)
            if lacking := [field.name for each, field in zip(ids, fields, strict=True) if each not in places]:
                found = f"column {', '.join(lacking)} was dropped and added again after its rows were staged"
                raise TableError("looking for the keys of a load", found, remedy="Sync again.")
            for batch in file.iter_batches(min(at_once, _BATCH)):
                columns = [batch.column(places[each]).cast(field.type) for each, field in zip(ids, fields, strict=True)]
                batches.append(pa.table(dict(zip(map(str, ids), columns, strict=True))))
                if sum(map(len, batches)) >= at_once:
                    yield SearchKeys(pa.concat_tables(batches), ids)
                    batches = []
    if batches:
        yield SearchKeys(pa.concat_tables(batches), ids)


def find_rows(storage: Storage, files: Collection[PlannedFile], sought: SearchKeys) -> dict[str, Positions]:
    """Returns the rows that have one of the keys, by data file: sorted positions. Files without such rows are left out.

    Raises UnreadableFile.
    """
    search = KeySearch(sought.keys)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="keys") as threads:
        ranges = sought.ranges()
        found = threads.map(lambda file: (file.file_path, _rows(storage, file, search, sought.ids, ranges)), files)
        return {path: rows for path, rows in found if len(rows)}


class _RowGroup(NamedTuple):
    """The key columns of a row group, None for those that the file lacks, and the position of its first row."""

    start: int
    rows: int
    columns: Sequence[pa.ChunkedArray | None]


def _rows(
    storage: Storage, file: PlannedFile, search: KeySearch, ids: Sequence[int], ranges: Mapping[int, _Range]
) -> Positions:
    with _readable(file):
        groups = _groups(storage, file, ids, ranges)
        found = [search.rows(group.columns, group.rows) + group.start for group in groups]
        return np.concatenate(found) if found else np.empty(0, np.int64)


@contextmanager
def _readable(file: PlannedFile) -> Iterator[None]:
    """Raises UnreadableFile for whatever this process cannot read, unless the file is gone."""
    if file.file_format != PARQUET:
        raise UnreadableFile(f"{file.file_path} is {file.file_format}")
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UnreadableFile(f"{file.file_path}: {error}") from error


def _groups(
    storage: Storage, file: PlannedFile, ids: Sequence[int], ranges: Mapping[int, _Range]
) -> Iterator[_RowGroup]:
    """Yields the row groups whose values may be within the ranges."""
    filesystem, place = storage.at(file.file_path)
    with filesystem.open_input_file(place) as opened, pq.ParquetFile(opened) as parquet:
        schema = parquet.schema_arrow
        places = column_places(schema)
        if not places:
            raise UnreadableFile(f"{file.file_path} has no field ids")
        names = {each: schema.field(places[each]).name for each in ids if each in places}
        bounded = _leaves({names[each]: found for each, found in ranges.items() if each in names}, parquet.schema)
        start = 0
        for number in range(parquet.num_row_groups):
            group = parquet.metadata.row_group(number)
            count = group.num_rows
            if any(_is_beyond(group.column(leaf).statistics, found) for leaf, found in bounded.items()):
                start += count
                continue
            read = parquet.read_row_group(number, columns=list(names.values()), use_threads=False) if names else None
            # By name, because Arrow also reads a field `b` in a struct `a` where the column `a.b` is requested.
            columns = [read.column(names[each]) if read and each in names else None for each in ids]
            yield _RowGroup(start, count, columns)
            start += count


def _leaves(ranges: Mapping[str, _Range], schema: pq.ParquetSchema) -> dict[int, _Range]:
    """The ranges by the place of their column among the leaves of a file, where the name alone tells it."""
    paths = [schema.column(leaf).path for leaf in range(len(schema))]
    return {paths.index(name): found for name, found in ranges.items() if paths.count(name) == 1 and "." not in name}


def _is_beyond(statistics: pq.Statistics | None, found: _Range) -> bool:
    """True if no value of a row group is within a range. Text compares as Parquet does, by its code points."""
    if statistics is None or not statistics.has_min_max or type(statistics.min) is not type(found.min):
        return False
    return bool(statistics.max < found.min or statistics.min > found.max)


def column_places(schema: pa.Schema) -> Mapping[int, int]:
    """Returns the place of each column by its field id."""
    marked = ((at, (field.metadata or {}).get(FIELD_ID)) for at, field in enumerate(schema))
    return {int(mark): at for at, mark in marked if mark is not None}
