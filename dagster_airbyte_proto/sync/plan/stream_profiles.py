"""The profiles of a connection's streams during one sync: read from the state store, compared, saved again.

- Column names are saved before any table is touched: a field keeps the name that it was given first, even if the run
  dies in between.
- The rest of a profile is saved, with the changes against the one before, once the stream's table is ready or has
  refused. A run that dies before that leaves the changes to the next run, so none is lost and none is recorded twice.
- A generation on a branch changes its table's columns when it is published, and is recorded only then.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.checkpoints.store import NO_LIMIT, Lease, StateStore, StreamChange
from dagster_airbyte_proto.errors import ConfigError, SchemaRefused
from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from dagster_airbyte_proto.model import (
    DEDUPLICATING,
    Catalog,
    ColumnName,
    FieldPath,
    PlannedStream,
    StreamId,
    TableName,
)
from dagster_airbyte_proto.schema.columns import Columns, ValueKind, member_at
from dagster_airbyte_proto.schema.evolution import ChangeKind, ColumnMismatch, EvolutionRules, SchemaChange
from dagster_airbyte_proto.schema.members import member_names
from dagster_airbyte_proto.schema.names import column_name
from dagster_airbyte_proto.schema.stream_profile import (
    StreamProfile,
    change_text,
    either_form,
    form_changes,
    missing_columns,
    profile_changes,
    retyped_columns,
)
from dagster_airbyte_proto.sync.plan.stream_plan import KnownTable, replaces_table
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.stream_run import StreamRun


class RecordedChange(NamedTuple):
    """A change that some sync found, with the current table of its stream."""

    connection: str
    table: TableName
    stream_change: StreamChange


def recorded_changes(store: StateStore, names: Sequence[str], limit: int) -> list[RecordedChange]:
    """The changes of these connections and tables (`namespace.table`), newest first. Raises ConfigError for a name that
    the state store does not know."""
    found: list[RecordedChange] = []
    unknown = set(names)
    for connection in store.connections():
        tables = {stream: profile.table for stream, profile in store.stream_profiles(connection).items()}
        known = {connection, *map(str, tables.values())}
        if not known & set(names):
            continue
        unknown -= known
        changes = store.stream_changes(connection, limit=NO_LIMIT)
        found += [RecordedChange(connection, tables[each.stream], each) for each in changes if each.stream in tables]
    if unknown:
        raise ConfigError(
            f"looking up the changes of {sorted(unknown)[0]}",
            "the state store knows no connection and no table of that name",
            remedy="Write NAMESPACE.TABLE, or a connection. Is --home right?",
        )
    named = [each for each in found if each.connection in names or str(each.table) in names]
    return sorted(named, key=lambda each: each.stream_change.changed_at, reverse=True)[:limit]


class StreamProfiles:
    """The profiles of one connection's streams. Used by the reading thread only."""

    def __init__(self, store: StateStore, lease: Lease, log: RunLog) -> None:
        self._store, self._lease, self._log = store, lease, log
        self._profiles = dict(store.stream_profiles(lease.connection))
        self._recorded: set[StreamId] = set()
        self._text_forms: dict[StreamId, Mapping[str, str]] = {}
        self._json_columns: dict[StreamId, tuple[str, ...]] = {}
        self._replacing: set[StreamId] = set()
        self.warnings: list[str] = []

    def for_another_thread(self) -> "StreamProfiles":
        """Profiles for another reading thread of the same sync."""
        profiles = StreamProfiles(self._store, self._lease, self._log)
        profiles._text_forms = dict(self._text_forms)
        profiles._json_columns = dict(self._json_columns)
        return profiles

    @property
    def known_tables(self) -> Mapping[StreamId, KnownTable]:
        """The table of each stream that the connection has ever had."""
        return {
            stream: KnownTable(profile.preferred_table, profile.table) for stream, profile in self._profiles.items()
        }

    @property
    def cursors(self) -> Mapping[StreamId, FieldPath]:
        """The cursor of each stream in the last sync that recorded it."""
        return {stream: profile.cursor for stream, profile in self._profiles.items()}

    def with_prepared_tables(self, digests: Mapping[StreamId, str]) -> Mapping[StreamId, StreamProfile]:
        """The streams whose tables an earlier sync prepared by a table spec of the same digest."""
        profiles = {stream: self._profiles[stream] for stream in digests if stream in self._profiles}
        return {
            stream: profile
            for stream, profile in profiles.items()
            if profile.is_known and not profile.is_gone and profile.table_spec == digests[stream]
        }

    def with_column_names(self, streams: Sequence[PlannedStream]) -> tuple[PlannedStream, ...]:
        """Returns the streams with the column names that their fields were given before."""
        return tuple(
            msgspec.structs.replace(planned, column_names=profile.column_names, member_names=profile.member_names)
            if (profile := self._profiles.get(planned.id))
            else planned
            for planned in streams
        )

    def save_column_names(self, streams: Sequence[PlannedStream], columns: Mapping[StreamId, Columns]) -> None:
        """Saves the current column names. Call it before any table is prepared with them."""
        changed = {}
        for planned in streams:
            self._text_forms[planned.id] = _merged_forms(planned, columns[planned.id])
            self._json_columns[planned.id] = _json_columns(columns[planned.id])
            names = dict(self._profiles[planned.id].column_names) if planned.id in self._profiles else {}
            # A name that the user chose is not saved: the user may take it back.
            renamed = {(source,) for source, _ in planned.shaping.renames} if planned.shaping else set()
            names |= {
                column.path: column.name for column in columns[planned.id].as_parsed.all if column.path not in renamed
            }
            profile = self._profiles.get(planned.id) or StreamProfile(
                planned.preferred_table or planned.table, planned.table
            )
            members = dict(profile.member_names)
            for column in columns[planned.id].parsed_columns:
                members |= member_names(column.type, column.path)
            profile = msgspec.structs.replace(
                profile, column_names=_sorted_names(names), member_names=_sorted_names(members)
            )
            if profile != self._profiles.get(planned.id):
                changed[planned.id] = profile
        self._save(changed, [])

    def record_missing_streams(self, catalog: Catalog) -> None:
        """Records, with a warning, each stream that the source offered at the last sync and does not offer any more."""
        offered = {stream.id for stream in catalog.streams}
        gone = {
            stream: msgspec.structs.replace(profile, is_gone=True)
            for stream, profile in self._profiles.items()
            if stream not in offered and profile.is_known and not profile.is_gone
        }
        self.warnings += [f"stream {stream}: {change_text(SchemaChange(ChangeKind.STREAM_GONE))}" for stream in gone]
        self._save(gone, [(stream, SchemaChange(ChangeKind.STREAM_GONE)) for stream in gone])

    def evolution_rules(
        self, planned: PlannedStream, columns: Columns, *, refresh_helps: bool = False
    ) -> EvolutionRules:
        """The rules by which the stream's table is evolved. Raises ConfigError for a `formerly` hint that cannot be
        followed."""
        ordering = [column.name for column in columns.all if column.path == planned.cursor[:1]]
        if planned.keeps_deleted:
            ordering += [column.name for column in columns.deletion_columns]
        return EvolutionRules(
            policy=planned.schema_policy,
            own_columns=(*columns.metadata.names, SLICE_COLUMN, *(column.name for column in columns.nested)),
            required_columns=(*columns.keys, *ordering, *_layout_columns(columns)),
            formerly=self._pending_renames(planned, columns),
            refresh_helps=refresh_helps,
            retyped_columns=self._retyped_columns(planned, columns),
        )

    def _retyped_columns(self, planned: PlannedStream, columns: Columns) -> tuple[ColumnMismatch, ...]:
        """The columns of the key and the cursor whose values have another form than those in the stream's table. None
        if no row of before stays beside those of this sync."""
        profile = self._profiles.get(planned.id)
        if profile is None or profile.table != planned.table or replaces_table(planned):
            return ()
        return retyped_columns(profile.text_forms, _merged_forms(planned, columns))

    def record_changes(self, runs: Iterable[StreamRun]) -> None:
        """Records the changes of the streams whose tables are ready now or have refused, each stream once.

        Call it again after the last load: a generation that changes its table's columns does so when it is published.
        """
        profiles: dict[StreamId, StreamProfile] = {}
        changes: list[tuple[StreamId, SchemaChange]] = []
        for run in runs:
            stream = run.planned.id
            profile = None if stream in self._recorded else self._current_profile(run)
            if profile is None:
                continue
            self._recorded.add(stream)
            before = self._profiles[stream]
            found = profile_changes(before, profile, run.table.fit.changes if run.table.fit else ())
            run.schema_changes = (*run.schema_changes, *found)
            changes += [(stream, change) for change in found]
            if profile != before:
                profiles[stream] = profile
        self._save(profiles, changes)

    def begin_replacing(self, runs: Iterable[StreamRun]) -> None:
        """Notes that the key of a stream may have the form of before or of now: its new rows are about to replace the
        old ones, and this run may die behind that. `record_changes` notes which one it is."""
        saved = {}
        for run in runs:
            stream = run.planned.id
            before = self._profiles.get(stream)
            if before is None or before.table != run.planned.table or not replaces_table(run.planned):
                continue
            retyped = retyped_columns(before.text_forms, self._text_forms[stream])
            if retyped:
                either = {each.column: either_form(each.in_table, each.in_stream) for each in retyped}
                saved[stream] = msgspec.structs.replace(before, text_forms={**before.text_forms, **either})
        if saved:
            self._store.save_stream_profiles(self._lease, saved, [])
            self._replacing |= saved.keys()

    def end_replacing(self, runs: Iterable[StreamRun]) -> None:
        """Notes the form of before where no row was replaced after all."""
        kept = {
            run.planned.id: self._profiles[run.planned.id]
            for run in runs
            if run.planned.id in self._replacing and run.outcome.last_commit is None
        }
        if kept:
            self._store.save_stream_profiles(self._lease, kept, [])

    def record_interim_changes(self, run: StreamRun) -> None:
        """Records the changes of a stream whose table is about to change once more. The next `record_changes` records
        those that follow."""
        self.record_changes([run])
        self._recorded.discard(run.planned.id)

    def _current_profile(self, run: StreamRun) -> StreamProfile | None:
        """The stream's profile after this sync, or None while it is not known yet."""
        planned, before = run.planned, self._profiles[run.planned.id]
        if isinstance(run.error, SchemaRefused):
            refused = {column: (in_table, in_stream) for column, in_table, in_stream in run.error.mismatches}
            return msgspec.structs.replace(before, refused=refused, table_spec="")
        if run.table.fit is None or not run.has_matching_table:
            return None
        forms = self._text_forms[planned.id]
        done = {**before.formerly, **planned.formerly}
        old = {(name,) for name in planned.formerly.values()} - {(name,) for name in planned.formerly}
        now = msgspec.structs.replace(
            before,
            preferred_table=planned.preferred_table or planned.table,
            table=planned.table,
            column_names=tuple(kept for kept in before.column_names if kept.path not in old),
            columns=run.table.fit.landed,
            missing=missing_columns(before, planned.table, run.table.fit.unfilled_columns, done),
            excluded={misfit.column: (misfit.in_table, misfit.in_stream) for misfit in run.table.fit.excluded},
            refused={},
            primary_key=planned.primary_key,
            cursor=planned.cursor,
            formerly=done,
            is_known=True,
            is_gone=False,
            table_spec=run.table.spec,
            sql_name=run.table.name,
            location=run.table.location,
            text_forms=forms,
            json_columns=self._json_columns[planned.id],
        )
        is_replaced = run.is_complete and run.outcome.last_commit is not None
        is_retyped = retyped_columns(before.text_forms, forms) or form_changes(before, now)
        if replaces_table(planned) and not is_replaced and is_retyped:
            return None  # Until then its rows are those of before. The run may die.
        return now

    def _pending_renames(self, planned: PlannedStream, columns: Columns) -> dict[str, str]:
        """The `formerly` hints that no sync has followed yet: the old column name by the new one."""
        profile, by_path = self._profiles.get(planned.id), {column.path: column.name for column in columns.all}
        names = dict(profile.column_names) if profile else {}
        done = profile.formerly if profile else {}
        found = {}
        for new, old in planned.formerly.items():
            if done.get(new) == old:
                continue
            if (new,) not in by_path:
                near = get_close_matches(new, [path[0] for path in by_path], n=1)
                raise _hint_error(planned, f"the stream has no field {new}", f"Do you mean {near[0]}?" if near else "")
            if (old,) in by_path:
                raise _hint_error(planned, f"the source still sends {old} beside {new}", "Take the hint out.")
            found[by_path[(new,)]] = names.get((old,), column_name(old, planned.naming))
        return found

    def _save(
        self, profiles: Mapping[StreamId, StreamProfile], changes: Sequence[tuple[StreamId, SchemaChange]]
    ) -> None:
        if not profiles and not changes:
            return
        self._store.save_stream_profiles(self._lease, profiles, changes)
        self._profiles |= profiles
        for stream, change in changes:
            # A refused column is in the error of its stream, which people see.
            level = "INFO" if change.kind is ChangeKind.COLUMN_REFUSED else "NOTE"
            self._log.write(level, f"stream {stream}: {change_text(change)}")


_TEXT_FORMS = {ValueKind.STRING: "string", ValueKind.TIME: "string", ValueKind.JSON: "JSON text"}


def text_forms(columns: Columns) -> dict[str, str]:
    """Returns the forms of the columns of the key and the cursor that are text, before any is hashed."""
    parsed = {column.path: column.type for column in columns.parsed_columns}
    kinds = {
        column.name: parsed.get(column.path, column.type).kind for column in columns.all if column.name in columns.keys
    }
    if (cursor := columns.cursor_column) is not None:
        kinds[cursor.name] = member_at(cursor.type, columns.cursor[1:])[0].kind
    return {name: _TEXT_FORMS[kind] for name, kind in kinds.items() if kind in _TEXT_FORMS}


def _json_columns(columns: Columns) -> tuple[str, ...]:
    parsed = {column.path: column.type for column in columns.parsed_columns}
    kinds = {column.name: parsed.get(column.path, column.type).kind for column in columns.all}
    return tuple(sorted(name for name, kind in kinds.items() if kind is ValueKind.JSON))


def _merged_forms(planned: PlannedStream, columns: Columns) -> Mapping[str, str]:
    """The forms of text by which rows are merged, if they are."""
    return text_forms(columns) if planned.write in DEDUPLICATING else {}


def _sorted_names(names: Mapping[FieldPath, str]) -> tuple[ColumnName, ...]:
    return tuple(ColumnName(path, names[path]) for path in sorted(names))


def _hint_error(planned: PlannedStream, found: str, remedy: str) -> ConfigError:
    return ConfigError("reading the stream's option formerly", found, remedy=remedy, stream=str(planned.id))


def _layout_columns(columns: Columns) -> Iterator[str]:
    """The columns by which rows are partitioned, sorted or clustered in the table."""
    yield from (field.column for field in columns.partitioning)
    yield from (field.column for field in columns.ordering.sorted)
    yield from columns.ordering.clustered
