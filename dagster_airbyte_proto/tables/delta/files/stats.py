"""The statistics in Delta's log by which readers skip files, taken from the footer of each file.

Only bounds that are surely right go in: of columns that all row groups have bounds for, of types with one order only
(no floats, because of NaN), and of text that is short enough to be written whole.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import StagedFile
from dagster_airbyte_proto.loads.storage import LOCAL

_LONGEST_TEXT = 32


class Footer(NamedTuple):
    """The size of a file, and its `stats` in the form of an `add` action."""

    size_bytes: int
    stats: Mapping[str, Any]


def read_footer(file: StagedFile, physical_names: Mapping[str, str]) -> Footer:
    """Reads a file's footer. `physical_names` are the names of columns in the log.

    Raises TableError where the file is missing or has another number of rows than were staged.
    """
    try:
        filesystem, path = LOCAL.at(file.path)
        with filesystem.open_input_file(path) as opened:
            found, size_bytes = pq.read_metadata(opened), opened.size()
    except (OSError, pa.ArrowInvalid) as error:
        raise TableError("committing a load", f"{file.path}: {str(error).partition(chr(10))[0]}") from error
    if found.num_rows != file.rows:
        raise TableError("committing a load", f"{file.path} holds {found.num_rows} rows where {file.rows} were staged")
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, column in _columns(found):
        if name not in physical_names or any(each is None or not each.has_null_count for each in column):
            continue
        nulls[physical_names[name]] = sum(each.null_count for each in column)
        bounds = [each for each in column if each.has_min_max]
        if not bounds or any(not each.has_min_max and each.num_values for each in column):
            continue
        low, high = min(each.min for each in bounds), max(each.max for each in bounds)
        if (low_text := _bound(low)) is not None and (high_text := _bound(high)) is not None:
            least[physical_names[name]], most[physical_names[name]] = low_text, high_text
    return Footer(size_bytes, {"numRecords": found.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls})


def _columns(footer: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yields each column that is not nested, with its statistics in each row group."""
    for number, column in enumerate(footer.schema):
        if column.max_repetition_level == 0 and column.path == column.name:
            yield (
                column.name,
                [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)],
            )


def _bound(value: object) -> object:
    """Returns a bound as the log writes it. None for a value that cannot be a bound."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT and value.isprintable() else None
    if isinstance(value, datetime):
        # Cut to milliseconds as Delta itself does: its readers add one millisecond to the upper bound.
        whole = value.astimezone(UTC) if value.tzinfo else value
        return whole.isoformat(timespec="milliseconds").replace("+00:00", "") + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, int) else None
