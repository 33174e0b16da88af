"""The records that a source rejected: as they may be stored, and their file on the way to a destination.

- What a table or destination must not have is stored nowhere. A rejected record is as the source has it: it has the
  fields that `select` leaves out, `hash` hides or a query drops, perhaps under other names or within other values, and
  no filter or rule has seen it. So of a stream with any of these a record is left out as a whole.
- A destination has no table for them. So they are staged beside the rows of their load, and kept with it.
"""

from collections.abc import Collection, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.load import StagedFile
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.model import PlannedStream, SchemaPolicy
from dagster_airbyte_proto.staging.files.open_part import SourceRejection
from dagster_airbyte_proto.staging.files.stream_files import StreamFiles

_SCHEMA = pa.schema(
    [("reason", pa.string()), ("record", pa.string()), ("kind", pa.string()), ("at_microseconds", pa.int64())]
)
_LEAVING_OUT = frozenset((SchemaPolicy.DISCARD_COLUMN, SchemaPolicy.DISCARD_ROW))
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MOST_NAMES = 20


def storable_rejections(planned: PlannedStream, rejected: Sequence[SourceRejection]) -> list[SourceRejection]:
    """Returns records that the source of a stream rejected as they may be stored: a reason says what is left out."""
    if planned.shaping is None and not planned.transforms and planned.schema_policy not in _LEAVING_OUT:
        return [*rejected]
    declared = planned.stream.json_schema.get("properties") or {}
    return [
        each
        if each.record is None
        else each._replace(
            record=None, reason=f"{each.reason} (its record is left out: {_field_names(each.record, declared)})"
        )
        for each in rejected
    ]


def _field_names(record: str, declared: Collection[str]) -> str:
    """The fields of a record. Others than the stream's may be values themselves, so these are counted."""
    try:
        found = _FIELDS.decode(record)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return "no JSON object"
    names = [name for name in found if name in declared]
    shown = names[:_MOST_NAMES]
    counts = {
        "more of the stream": len(names) - len(shown),
        "that the stream does not declare": len(found) - len(names),
    }
    others = [f"{count} field{'s' * (count > 1)} {what}" for what, count in counts.items() if count]
    return " and ".join([part for part in (", ".join(shown), *others) if part]) or "no fields"


def stage_rejections(files: StreamFiles, rejected: Sequence[SourceRejection]) -> StagedFile:
    """Writes the records that a source rejected into a file of their own."""
    rows = [each._asdict() for each in storable_rejections(files.planned, rejected)]
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
