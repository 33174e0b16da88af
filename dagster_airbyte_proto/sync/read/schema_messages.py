"""What a connector tells of its streams' columns while it reads, brought into a sync that is under way.

- Before a stream's first row anything may change: its columns, their types, its key. Its table is made ready only now.
- Between its rows columns may come, and nothing else may change. The rows so far go into files of their own with the
  columns they had; those that follow have the new ones too. What else a stream told of could not lie in one load with
  what is there of it: it fails then, and what no state covers is read again.
- A column that is not told of stays a column: a connector may leave out what was not selected.
- Rows of a stream of which nothing was told have landed whole; those that follow what is told have columns.
- What was told last is what the next sync begins with: a stream of which nothing is told then keeps its columns.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.protocols.events import SchemaEvent
from dagster_airbyte_proto.schema.columns import WHOLE_RECORD, Columns
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.stage import Stage, StreamInput
from dagster_airbyte_proto.sync.commit.loader import Loader
from dagster_airbyte_proto.sync.commit.targets import Targets
from dagster_airbyte_proto.sync.plan.shapes import Shapes
from dagster_airbyte_proto.sync.plan.stream_plan import lands_aside
from dagster_airbyte_proto.sync.read.verdict import READING
from dagster_airbyte_proto.sync.stream_run import StreamRun


class Redone(NamedTuple):
    """What a stream is staged with, and its table made ready by, once its columns are others."""

    given: StreamInput
    table: TableSpec


class Described:
    """Belongs to the reading thread. `redo` makes a stream's input and table anew."""

    def __init__(
        self,
        columns: Mapping[StreamId, Columns],
        staging: tuple[Stage, Loader, Targets],
        shapes: Shapes,
        redo: Callable[[StreamRun, Columns], Redone],
    ) -> None:
        self._columns = dict(columns)
        self._stage, self._loader, self._targets = staging
        self._shapes = shapes
        self._redo = redo
        self._told: dict[StreamId, SchemaEvent] = {}

    @property
    def told(self) -> Mapping[StreamId, SchemaEvent]:
        """What was told last of each stream, by its planned name."""
        return self._told

    def take(self, run: StreamRun, event: SchemaEvent) -> None:
        """Raises ConfigError or ConnectorError where the stream cannot go on with it."""
        stream = run.planned.id
        event = event._replace(stream=stream)
        if self._told.get(stream) == event:
            return
        [planned] = self._shapes.named([_described(self._with_what_landed(run.planned, event), event)])
        columns = table_columns(planned)
        has_rows = self._stage.emitted(stream) > 0
        is_other = _essence(columns) != _essence(self._columns[stream])
        if is_other and has_rows:
            self._told[stream] = event  # Where it cannot go on with that now, the next sync begins with it.
            self._close(run, columns)
        if is_other:
            self._shapes.begin([planned], {stream: columns})
            run.planned, self._columns[stream] = planned, columns
        if is_other or not (has_rows or stream in self._told):
            redone = self._redo(run, self._columns[stream])
            self._targets.prepare(stream, redone.table)
            self._stage.restate(redone.given)
        self._told[stream] = event

    def _with_what_landed(self, planned: PlannedStream, event: SchemaEvent) -> PlannedStream:
        """Where rows have landed whole, their column stays one beside those that are told of now."""
        has_landed_whole = self._columns[planned.id].is_whole and self._stage.emitted(planned.id)
        if not has_landed_whole or not _properties(event.json_schema):
            return planned
        schema = {**planned.stream.json_schema, "properties": {WHOLE_RECORD: {}}}
        return msgspec.structs.replace(planned, stream=msgspec.structs.replace(planned.stream, json_schema=schema))

    def _close(self, run: StreamRun, columns: Columns) -> None:
        """Brings the rows so far to their files, and tells what their table was changed for them."""
        before = self._columns[run.planned.id]
        _refuse(run, _misfits(before, columns))
        self._stage.flush(run.planned.id)
        # What is put aside may have columns that readers do not have yet. Made ready once more, the table would know
        # them by other ids.
        if lands_aside(run.planned) and (run.schema_id is not None or run.newest_aside is not None):
            _refuse(run, [f"column {name} is new" for name in sorted(_names(columns) - _names(before))])
        self._loader.settle()
        self._shapes.note_again(run)


def as_told(streams: Sequence[PlannedStream], told: Mapping[StreamId, SchemaEvent]) -> tuple[PlannedStream, ...]:
    """The streams as the connector told them the last time."""
    return tuple(_described(planned, told[planned.id]) if planned.id in told else planned for planned in streams)


def _described(planned: PlannedStream, event: SchemaEvent) -> PlannedStream:
    """The stream with what is told of it put over what the catalog said. A key that the user named stays."""
    offered, told = planned.stream.json_schema, event.json_schema
    known, unsent = _properties(offered), planned.stream.unsent
    news = {
        name: rule for name, rule in _properties(told).items() if (rule or name not in known) and name not in unsent
    }
    properties = {**known, **news}
    stream = msgspec.structs.replace(planned.stream, json_schema={**offered, **told, "properties": properties})
    is_named_by_user = planned.primary_key != planned.stream.primary_key
    if is_named_by_user or not event.primary_key or any(path[0] not in properties for path in event.primary_key):
        return msgspec.structs.replace(planned, stream=stream)
    stream = msgspec.structs.replace(stream, primary_key=event.primary_key)
    return msgspec.structs.replace(planned, stream=stream, primary_key=event.primary_key)


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def _essence(columns: Columns) -> object:
    """What two ways to tell a stream have to share: not the words about a column."""
    every = tuple(column._replace(comment="") for column in columns.all)
    read = tuple(column._replace(comment="") for column in columns.top)
    return every, read, columns.keys, columns.cursor, columns.passed_over


def _misfits(before: Columns, now: Columns) -> list[str]:
    """What has changed beside columns that came."""
    types = {column.path: str(column.type.in_table) for column in now.all}
    found = [
        f"column {column.name} was {column.type.in_table}, is {types.get(column.path, 'gone')}"
        for column in before.all
        if types.get(column.path) != str(column.type.in_table)
    ]
    if before.keys and before.keys != now.keys:
        found.append(f"its key was {', '.join(before.keys)}, is {', '.join(now.keys) or 'none'}")
    return found


def _names(columns: Columns) -> set[str]:
    return {column.name for column in columns.all}


def _refuse(run: StreamRun, misfits: Iterable[str]) -> None:
    if found := "; ".join(misfits):
        raise ConnectorError(
            READING,
            f"the connector told other columns in the midst of its rows: {found}",
            remedy="Sync again: between syncs columns may change in any way. If it tells them so each time, leave the"
            " column out (exclude), and tell the connector's author.",
            stream=str(run.planned.id),
            retryable=True,
        )
