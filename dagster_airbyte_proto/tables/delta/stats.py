"""What Delta keeps of each file so that readers may pass it over, from the file's own footer.

Only what is surely right: bounds of whole columns, of types that order in one way only (no floats, which have NaN), and
of text that is short enough to stand there whole.
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
    """A file as it is: `stats` in the form of an `add` action."""

    size_bytes: int
    stats: Mapping[str, Any]


def read_footer(file: StagedFile, physical: Mapping[str, str]) -> Footer:
    """Raises TableError for a file that has other rows than were staged. `physical` is what the log calls columns."""
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
        if name not in physical or any(each is None or not each.has_null_count for each in column):
            continue
        nulls[physical[name]] = sum(each.null_count for each in column)
        bounds = [each for each in column if each.has_min_max]
        if not bounds or any(not each.has_min_max and each.num_values for each in column):
            continue
        low, high = min(each.min for each in bounds), max(each.max for each in bounds)
        if (low_text := _told(low)) is not None and (high_text := _told(high)) is not None:
            least[physical[name]], most[physical[name]] = low_text, high_text
    return Footer(size_bytes, {"numRecords": found.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls})


def _columns(footer: Any) -> Iterator[tuple[str, list[Any]]]:
    """The statistics of each column that holds plain values, by row groups."""
    for number, column in enumerate(footer.schema):
        if column.max_repetition_level == 0 and column.path == column.name:
            yield (
                column.name,
                [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)],
            )


def _told(value: object) -> object:
    """None where it cannot be told whole."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT and value.isprintable() else None
    if isinstance(value, datetime):
        # Cut to milliseconds, as Delta itself does: its readers add one to the upper bound.
        whole = value.astimezone(UTC) if value.tzinfo else value
        return whole.isoformat(timespec="milliseconds").replace("+00:00", "") + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, int) else None
