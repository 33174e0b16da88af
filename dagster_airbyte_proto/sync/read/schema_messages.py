"""Applies schemas that a connector sends while it is read (Singer SCHEMA messages) to the sync under way.

- Before the first row of a stream anything may change: its columns, their types, its key. Its table is prepared only
  then.
- After its first row only new columns may come. The rows so far go to files of their own with the columns they had;
  later rows have the new columns too. Any other change fails the stream, because rows of both kinds cannot lie in one
  load. Rows that no state covers are read again.
- A column that a later schema leaves out stays a column: a connector may leave out what was not selected.
- Rows that come before any schema land whole, as one column. Rows after the schema have columns.
- The source stores the last schema of each stream. The next sync begins with it, so a stream without a schema message
  keeps its columns.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.model import DEDUPLICATING, PlannedStream, ReadMode, StreamId
from dagster_airbyte_proto.protocols.events import SchemaEvent
from dagster_airbyte_proto.schema.columns import WHOLE_RECORD, Columns
from dagster_airbyte_proto.schema.stream_profile import retyped_columns
from dagster_airbyte_proto.staging.inputs import StreamInput
from dagster_airbyte_proto.staging.stage import Stage
from dagster_airbyte_proto.sync.commit.target_tables import TargetTables
from dagster_airbyte_proto.sync.landing.completeness import READING
from dagster_airbyte_proto.sync.landing.loader import Loader
from dagster_airbyte_proto.sync.plan.stream_profiles import text_forms
from dagster_airbyte_proto.sync.plan.stream_schemas import schema_properties, table_spec, with_schema
from dagster_airbyte_proto.sync.plan.sync_plan import SyncPlan, evolution_rules
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.sync.sync_context import SyncContext
from dagster_airbyte_proto.transforms.landed_columns import landed_columns


class RowLander(NamedTuple):
    """The parts that hold, land and prepare for the rows of a stream, all of which a new schema concerns."""

    stage: Stage
    loader: Loader
    targets: TargetTables


class SchemaUpdates:
    """Applies schema messages to the streams of one sync. Belongs to the reading thread."""

    def __init__(self, context: SyncContext, plan: SyncPlan, lander: RowLander) -> None:
        self._context, self._plan = context, plan
        self._columns = dict(plan.columns)
        self._stage, self._loader, self._targets = lander
        self._profiles = context.profiles
        self._latest: dict[StreamId, SchemaEvent] = {}

    @property
    def latest(self) -> Mapping[StreamId, SchemaEvent]:
        """The last schema message of each stream, by its planned name."""
        return self._latest

    def apply(self, run: StreamRun, event: SchemaEvent) -> None:
        """Applies a schema message. Raises ConfigError or ConnectorError where the stream cannot go on with it."""
        stream = run.planned.id
        event = event._replace(stream=stream)
        if self._latest.get(stream) == event:
            return
        planned = with_schema(self._with_whole_record_column(run.planned, event), event)
        [planned] = self._profiles.with_column_names([planned])
        columns = landed_columns(planned)
        has_rows = self._stage.emitted(stream) > 0
        has_changed = _comparable(columns) != _comparable(self._columns[stream])
        if has_changed and has_rows:
            self._latest[stream] = event  # Before it may fail: the next sync begins with this schema.
            self._land_rows_so_far(run, columns)
        if has_changed:
            self._profiles.save_column_names([planned], {stream: columns})
            run.planned, self._columns[stream] = planned, columns
        if has_changed or not (has_rows or stream in self._latest):
            self._use_columns(run, self._columns[stream])
        self._latest[stream] = event
        self._note_bookmark(run.planned, event)

    def _note_bookmark(self, planned: PlannedStream, event: SchemaEvent) -> None:
        """Notes, once, that a stream is read whole although its source has a cursor that the catalog does not name.

        It is not taken by itself: the table was filled by reading the stream whole, and another mode needs a refresh.
        """
        before = self._plan.stored_schemas.get(planned.id)
        if len(event.bookmarks) != 1 or (before is not None and before.bookmarks == event.bookmarks):
            return
        could_have_cursor = ReadMode.INCREMENTAL in planned.stream.read_modes and not planned.stream.is_cursor_fixed
        if planned.read is ReadMode.FULL_REFRESH and not planned.cursor and could_have_cursor:
            [name] = event.bookmarks
            self._context.log.write(
                "NOTE",
                f"{planned.id}: the tap bookmarks {name}, and its catalog names no replication key, so the stream is"
                f" read whole. With cursor: {name} under its name in `streams`, a sync reads what is new",
            )

    def _use_columns(self, run: StreamRun, columns: Columns) -> None:
        """Has the table prepared for the columns, and the next rows staged with them."""
        planned = run.planned
        rules = evolution_rules(self._context, planned, columns)
        spec = table_spec(planned, columns, rules, self._plan.continued.get(planned.id))
        # The rows so far may have columns that readers do not have yet. Those must keep their ids.
        begun_with = run.table.schema_id if self._stage.emitted(planned.id) else None
        self._targets.prepare(planned.id, spec._replace(resumed_schema_id=begun_with))
        self._stage.change_columns(StreamInput(planned, columns, hash_key=self._plan.hash_key))

    def _with_whole_record_column(self, planned: PlannedStream, event: SchemaEvent) -> PlannedStream:
        """The stream with the column of whole records, where rows have been staged without a schema."""
        relay = planned.relay
        if relay is not None and not (relay.by_columns or planned.shaping or planned.transforms):
            return planned  # Its records go as they came, in one column that their destination never sees.
        has_landed_whole = self._columns[planned.id].as_parsed.is_schemaless and self._stage.emitted(planned.id)
        if not has_landed_whole or not schema_properties(event.json_schema):
            return planned
        schema = {**planned.stream.json_schema, "properties": {WHOLE_RECORD: {}}}
        return msgspec.structs.replace(planned, stream=msgspec.structs.replace(planned.stream, json_schema=schema))

    def _land_rows_so_far(self, run: StreamRun, columns: Columns) -> None:
        """Writes the rows so far to their files, and records the changes that their table needed."""
        before = self._columns[run.planned.id]
        is_keyed = run.planned.write in DEDUPLICATING
        _check_compatible(run, _incompatibilities(before, columns, is_keyed=is_keyed))
        if self._stage.needs_target(run.planned.id):
            self._stage.set_target(run.planned.id, self._targets.target(run))
        self._stage.flush(run.planned.id)
        self._loader.wait_for_commit()
        self._profiles.record_interim_changes(run)


def _comparable(columns: Columns) -> object:
    """The parts of the columns that must be equal for nothing to have changed: all but the comments."""
    every = tuple(column._replace(comment="") for column in columns.all)
    read = tuple(column._replace(comment="") for column in columns.parsed_columns)
    before = columns.before_transforms and _comparable(columns.before_transforms)
    return every, read, columns.keys, columns.cursor, columns.skipped_fields, columns.record_form, before


def _incompatibilities(before: Columns, now: Columns, *, is_keyed: bool) -> list[str]:
    """The changes other than new columns. Where rows are merged by key, their key and cursor keep their form."""
    # By name: a field that changes in case alone keeps its column.
    types = {column.name: str(column.type.table_type) for column in now.all}
    found = [
        f"column {column.name} was {column.type.table_type}, is {types.get(column.name, 'gone')}"
        for column in before.all
        if types.get(column.name) != str(column.type.table_type)
    ]
    if before.keys and before.keys != now.keys:
        found.append(f"its key was {', '.join(before.keys)}, is {', '.join(now.keys) or 'none'}")
    if is_keyed:
        retyped = retyped_columns(text_forms(before), text_forms(now))
        found += [f"column {each.column} was {each.in_table}, is {each.in_stream}" for each in retyped]
    return found


def _check_compatible(run: StreamRun, incompatibilities: Iterable[str]) -> None:
    if found := "; ".join(incompatibilities):
        raise ConnectorError(
            READING,
            f"the connector changed columns in the midst of its rows: {found}",
            remedy="Sync again: between syncs columns may change in any way. If it changes them each time, leave the"
            " column out (exclude), and report it to the connector's author.",
            stream=str(run.planned.id),
            retryable=True,
        )
