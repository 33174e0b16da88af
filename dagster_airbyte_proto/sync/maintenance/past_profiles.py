"""The profiles of streams whose tables go back: they say again which form the texts in the table have.

A key that was plain text and is JSON text by now has quotes. After a rollback past that change a sync would merge no
new row with an old one, if the profile still said that the table has JSON text.

- The store records each change of a form with its run and time. The oldest one after the load to which the table goes
  back says which form it had then.
- While the table moves, the profile names both forms: a sync after a crash in between is refused. Repeating the
  rollback ends that.
- The rollback itself is recorded as a change, so that a later one can go forward again.
- A table that becomes empty has no form: a source whose key is that of before again is synced into it.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.checkpoints.store import NO_LIMIT, Lease, LoggedLoad, StateStore, StreamChange
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.schema.evolution import ChangeKind, SchemaChange
from dagster_airbyte_proto.schema.stream_profile import (
    StreamProfile,
    form_changes,
    has_text_form,
    joined_forms,
    retyped_columns,
    with_form,
    without_rows,
)


class Emptied(Enum):
    """The place of a load in a table that goes back to no rows."""

    EMPTIED = "no rows"


RowsOf = LoggedLoad | Emptied | None
"""The rows that a table goes back to: those of a load, none, or None where the load is not known."""


class _Profile(NamedTuple):
    now: StreamProfile
    then: StreamProfile


class PastProfiles:
    """The profiles of the streams of one connection whose tables go back. Those of tables whose load is not known
    stay."""

    def __init__(self, store: StateStore, lease: Lease, tables: Mapping[TableName, RowsOf]) -> None:
        self._store, self._lease = store, lease
        self._profiles = dict(_changed_profiles(store, lease.connection, tables))

    def begin(self) -> None:
        """Notes that the texts in each table may have the form of today or of the load."""
        either = {stream: joined_forms(each.now, each.then) for stream, each in self._profiles.items()}
        if either:
            self._store.save_stream_profiles(self._lease, either)

    def end(self, moved: Collection[TableName]) -> None:
        """Notes the form of the load for the tables that have moved."""
        there = {stream: each for stream, each in self._profiles.items() if each.now.table in moved}
        changes = [(stream, change) for stream, each in there.items() for change in _changes(each)]
        if there:
            self._store.save_stream_profiles(
                self._lease, {stream: each.then for stream, each in there.items()}, changes
            )


def _changed_profiles(
    store: StateStore, connection: str, tables: Mapping[TableName, RowsOf]
) -> Iterator[tuple[StreamId, _Profile]]:
    profiles = {
        stream: profile
        for stream, profile in store.stream_profiles(connection).items()
        if tables.get(profile.table) is not None
    }
    recorded = store.stream_changes(connection, limit=NO_LIMIT) if profiles else ()
    for stream, now in profiles.items():
        rows, then = tables[now.table], now
        if isinstance(rows, Emptied):
            then = without_rows(now)
        for change in recorded:  # Newest first, so that the oldest one decides.
            if change.stream == stream and isinstance(rows, LoggedLoad) and _is_after(change, rows):
                then = _before(change.change, then)
        if then != now:
            yield stream, _Profile(now, then)


def _is_after(change: StreamChange, load: LoggedLoad) -> bool:
    """True for a change of the rows that came after the load. What its own run has changed is in its rows."""
    return load.ended_at is not None and change.changed_at > load.ended_at and change.run_id != load.load.run_id


def _before(change: SchemaChange, profile: StreamProfile) -> StreamProfile:
    """The profile without a change of a form."""
    if change.kind is ChangeKind.COLUMN_FORM_CHANGED:
        return with_form(profile, change.column, change.before)
    is_form = change.kind is ChangeKind.COLUMN_RETYPED and has_text_form(change.before) and has_text_form(change.after)
    if is_form and change.column in profile.text_forms:
        return msgspec.structs.replace(profile, text_forms={**profile.text_forms, change.column: change.before})
    return profile


def _changes(profile: _Profile) -> Iterator[SchemaChange]:
    for each in retyped_columns(profile.now.text_forms, profile.then.text_forms):
        yield SchemaChange(ChangeKind.COLUMN_RETYPED, each.column, each.in_table, each.in_stream)
    yield from form_changes(profile.now, profile.then)
