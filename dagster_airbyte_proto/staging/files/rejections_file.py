"""The file of the records that a source rejected on their way to a destination.

A destination has no table for them. So they are staged beside the rows of their load, and kept with it.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.load import StagedFile
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.staging.files.open_part import SourceRejection
from dagster_airbyte_proto.staging.files.stream_files import StreamFiles

_SCHEMA = pa.schema(
    [("reason", pa.string()), ("record", pa.string()), ("kind", pa.string()), ("at_microseconds", pa.int64())]
)


def stage_rejections(files: StreamFiles, rejected: Sequence[SourceRejection]) -> StagedFile:
    """Writes the records that a source rejected into a file of their own."""
    # A record has all fields, also those that the destination must not get, or only as hashes or transformed.
    is_shown = files.planned.shaping is None and not files.planned.transforms
    rows = [each._replace(record=each.record if is_shown else None)._asdict() for each in rejected]
    file = files.new_rejections(_SCHEMA)
    file.write(pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))
    return file.close()


def read_rejections(file: StagedFile) -> list[SourceRejection]:
    """Returns the records of such a file. Raises StagingError where it is gone."""
    try:
        filesystem, place = LOCAL.at(file.path)
        with filesystem.open_input_file(place) as opened:
            return [SourceRejection(**row) for row in pq.read_table(opened).to_pylist()]
    except (OSError, pa.ArrowInvalid) as error:
        raise StagingError("reading the records that a source rejected", f"{file.path}: {error}") from error
