"""Makes a sealed plan of a part of a load, and cuts it where the form of its records changes."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto.connection.push import RowLimit
from dagster_airbyte_proto.encoding.arrow_frames import stream_columns
from dagster_airbyte_proto.encoding.json_types import translated
from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.load import FileContent, StagedRows
from dagster_airbyte_proto.loads.push import PlanFile, PlannedCounts, SealedPlan
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.model import PushMode
from dagster_airbyte_proto.protocols.destination import (
    DestinationOperation,
    DestinationProtocol,
    PushedStream,
    StreamColumn,
)
from dagster_airbyte_proto.schema.columns import RecordForm
from dagster_airbyte_proto.sync.connector.destination_catalog import row_schema_of
from dagster_airbyte_proto.sync.push.attempts import PlanPart, row_ranges
from dagster_airbyte_proto.sync.push.delivery import RowRange
from dagster_airbyte_proto.sync.push.row_rules import RowRules, sent_field
from dagster_airbyte_proto.sync.relay.deletion_marks import marks_with_values, with_marks

_ALL_ROWS = RowLimit(share=1.0)


class FormedRows(NamedTuple):
    """The rows of a plan up to a position, from the end of those before on, which have one form.

    `columns` are those that they have as batches.
    """

    end: int
    form: RecordForm
    columns: tuple[StreamColumn, ...] = ()


class RelayedTo(NamedTuple):
    """The destination of a relay: its protocol, the rows that one of its processes gets at most, and its catalog.

    `options` are those of the user for the stream that is relayed.
    """

    protocol: DestinationProtocol
    max_rows: int | None
    operations: tuple[DestinationOperation, ...] = ()
    options: Mapping[str, Any] = {}


class RelayPlan(NamedTuple):
    """The plan of a part, and the forms of its rows in their order."""

    plan: SealedPlan
    formed: Sequence[FormedRows]

    def parts(self, start: int, destination: RelayedTo, generation_id: int) -> Iterator[PlanPart]:
        """The parts from a position on, for one process each. Rows of two forms go to two processes."""
        # A replacement has to go to one process as a whole.
        max_rows = None if self.plan.mode is PushMode.OVERWRITE else destination.max_rows
        for rows in row_ranges(self.plan, start, max_rows):
            begin = rows.start
            for formed in self.formed:
                end = min(formed.end, rows.end)
                if end > begin or self.plan.rows == 0:
                    stream = _described(formed, destination)._replace(generation_id=generation_id)
                    yield PlanPart(RowRange(begin, end), stream, _rules(formed.form, destination))
                    begin = end


def plan_of_part(load_id: str, part: StagedRows, form_without_rows: Callable[[], RecordForm]) -> RelayPlan:
    """Returns the plan of a part. Raises StagingError where its files are gone."""
    files = [file for file in part.files if file.content is FileContent.ROWS]
    staged = [_staged_form(file.path) for file in files]
    marks = frozenset[str]().union(*(each.marks for each in staged))
    formed: list[FormedRows] = []
    end = 0
    for file, each in zip(files, staged, strict=True):
        end += file.rows
        found = each.formed(end, marks)
        if formed and formed[-1]._replace(end=end) == found:
            formed.pop()
        formed.append(found)
    formed = formed or [FormedRows(0, form_without_rows())]
    last = formed[-1]
    if last.form.target.mode is PushMode.OVERWRITE and last.form.record_column:
        formed = [last]  # They go to one process. A schema that came between rows has all fields of those before.
    plan = SealedPlan(
        plan_id=load_id,
        connection=part.connection,
        stream=part.stream,
        mode=formed[0].form.target.mode,
        folder="",
        files=tuple(PlanFile(file.path, file.rows) for file in files),
        removal_files=(),
        counts=PlannedCounts(added=end),
        fingerprint="",
        resends=bool(part.resends),
    )
    return RelayPlan(plan, formed)


def _described(formed: FormedRows, destination: RelayedTo) -> PushedStream:
    target = formed.form.target
    return PushedStream(
        target.stream,
        translated(formed.form.json_schema, destination.protocol.dialect),
        target.mode,
        target.keys,
        has_object=bool(destination.operations),
        options=destination.options,
        columns=formed.columns if destination.protocol.takes_batches else (),
        cursor=target.cursor,
    )


def _rules(form: RecordForm, destination: RelayedTo) -> RowRules:
    target = form.target
    stream = PushedStream(target.stream, {}, target.mode, target.keys)
    schema = row_schema_of(destination.protocol, destination.operations, stream)
    return RowRules(destination.protocol.omits_nulls, _ALL_ROWS, form, schema)


class _StagedForm(NamedTuple):
    """The form of the rows of a file, the columns that it has, and the undeclared marks that some of the rows have."""

    form: RecordForm
    schema: pa.Schema
    marks: frozenset[str]

    def formed(self, end: int, marks: Collection[str]) -> FormedRows:
        """The rows up to a position as they are sent, with these marks."""
        form = with_marks(self.form, marks)
        sent = pa.schema([sent_field(form, self.schema.field(name)) for name in form.columns])
        return FormedRows(end, form, stream_columns(sent))


def _staged_form(path: str) -> _StagedForm:
    doing = "reading the staged rows of a relay"
    try:
        filesystem, place = LOCAL.at(path)
        with filesystem.open_input_file(place) as opened, pq.ParquetFile(opened) as parquet:
            schema = parquet.schema_arrow
            form = RecordForm.of_schema(schema)
            marks = frozenset[str]() if form is None else marks_with_values(form, parquet)
    except (OSError, pa.ArrowException) as error:
        raise StagingError(doing, f"{path}: {error}") from error
    if form is None:
        raise StagingError(doing, f"{path} was not staged for a relay")
    return _StagedForm(form, schema, marks)
