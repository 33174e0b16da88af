"""Stages kept records as rows of a part again: as the text that they are, or as columns for a destination of Arrow."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto.loads.load import FileContent, StagedFile
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.schema.columns import WHOLE_RECORD, Column, Columns, Member, RecordForm, ValueType
from dagster_airbyte_proto.staging.files.staging_folder import (
    StagingFolder,
    create_folder,
    file_name,
    raising_staging_error,
    sync_to_disk,
)
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw, members
from dagster_airbyte_proto.staging.lines.raw_values import wire_array
from dagster_airbyte_proto.staging.rows.coercion import coerce
from dagster_airbyte_proto.staging.values.changes import Changes
from dagster_airbyte_proto.sync.relay.deletion_marks import with_marks


class KeptRecords(NamedTuple):
    """Kept records as rows, each in its place. Those at `misfits` have values that are none of the columns today."""

    rows: pa.Table
    misfits: frozenset[int] = frozenset()


def as_texts(records: Sequence[str], form: RecordForm) -> KeptRecords:
    """Returns records for a destination that takes lines. They are sent as they are, in the schema of today."""
    marks = [mark for mark in form.marks if any(f'"{mark}"' in record for record in records)]
    whole = RecordForm(form.target, with_marks(form, marks).json_schema, record_column=WHOLE_RECORD)
    schema = whole.in_schema(pa.schema([pa.field(WHOLE_RECORD, pa.string())]))
    return KeptRecords(pa.table([pa.array(records, pa.string())], schema=schema))


def as_columns(records: Sequence[str], form: RecordForm, columns: Columns) -> KeptRecords:
    """Returns records for a destination that takes Arrow, in the columns of today."""
    found = [_members(record) for record in records]
    known = {*form.columns, *form.marks}
    misfits = {place for place, each in enumerate(found) if each is None or not each.keys() <= known}
    sent = [_as_kept(column) for column in (*columns.all, *columns.sent_marks) if column.name in known]
    arrays = []
    for column in sent:
        changes = Changes()
        raws = [(each or {}).get(column.name, MISSING) for each in found]
        arrays.append(coerce(column, wire_array(column, raws, changes), changes))
        if changes:
            misfits.update(place for place, each in enumerate(changes.entry_lists(len(raws)).to_pylist()) if each)
    schema = form.in_schema(pa.schema([column.field for column in sent]))
    return KeptRecords(pa.table(arrays, schema=schema), frozenset(misfits))


def staged(rows: pa.Table, folder: str, load_id: str, stream: str) -> StagedFile:
    """Writes rows into a folder. Raises StagingError where they cannot be written."""
    place = StagingFolder.at(folder, LOCAL)
    create_folder(place)
    path, uri = place.file(file_name("resend", stream, load_id, 0))
    with raising_staging_error("stage records to send again", uri):
        pq.write_table(rows, path)
        sync_to_disk(place, path)
        size = place.filesystem.get_file_info(path).size
    return StagedFile(uri, FileContent.ROWS, rows.num_rows, size)


def _members(record: str) -> Mapping[str, Raw] | None:
    try:
        return members(record.encode())
    except ValueError:
        return None


def _as_kept(column: Column) -> Column:
    """The column as kept records have it: by the names that its destination gets."""
    return Column(column.name, (column.name,), _by_own_names(column.type), column.comment)


def _by_own_names(kind: ValueType) -> ValueType:
    inner = tuple(Member(each.name, each.name, _by_own_names(each.type)) for each in kind.members)
    return kind._replace(members=inner, skipped_members=frozenset())
