"""Takes a Delta table back to an older version (docs/decisions/0018).

- It is a commit on top: the files of the version come back, all others go. The log goes on.
- A writer that was paused meanwhile cannot bring back what was undone. The log still knows each load that is undone, so
  a writer that takes a new snapshot finds its load landed. A writer with an older snapshot is refused by Delta.
- The rewind itself is refused if the table has changed: it begins at the very version that the caller saw, and Delta
  refuses it for any commit since.
- The columns stay as they are where the table has only got more since: rows of the older version have nulls in the new
  ones. Where the table has lost columns, or has others under their names, the columns of the version come back.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import PastRewind, ShownSnapshot, TablePast
from dagster_airbyte_proto.tables.delta.actions import contains_columns, metadata_with_columns, read_metadata
from dagster_airbyte_proto.tables.delta.history import (
    CONNECTION,
    NOTHING,
    REWOUND_AT,
    REWOUND_TO,
    TABLE_ROWS,
    Commit,
    LoggedFile,
    kept_commits,
    parse_add_action,
    read_commits,
)
from dagster_airbyte_proto.tables.delta.jvm import (
    DeltaSnapshot,
    JavaDelta,
    session_with_user_metadata,
    set_user_metadata,
)
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.formats import LOAD_ID
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, Failure, failure_of


class DeltaRewinder:
    """Takes the Delta tables of one warehouse back."""

    def __init__(self, tables: DeltaTables) -> None:
        self._tables = tables

    def past(self, name: TableName) -> TablePast:
        found = self._commits(name, f"reading the log of table {name}")
        rewinds = [_past_rewind(each) for each in found if REWOUND_AT in each.user_metadata]
        ids = tuple(str(each.version) for each in found)
        return TablePast(ids[-1], ids, tuple(sorted(rewinds, key=lambda each: each.version)), _shown(found))

    def rewind(self, name: TableName, snapshot_id: str | None, *, seen: TablePast, version: int) -> bool:
        doing = f"taking table {name} back to {f'snapshot {snapshot_id}' if snapshot_id else 'nothing'}"
        found = self._commits(name, doing)
        if _shows(found, snapshot_id):
            return False
        with self._tables.translated_errors(doing, commits=True):
            session = session_with_user_metadata(self._tables.open_session(), {})
            java = JavaDelta(session)
            snapshot = java.snapshot(self._tables.location(name))
            if str(snapshot.version) == seen.current:
                difference = _difference(java, snapshot, snapshot_id)
                self._check_files(doing, name, difference.restored)
                set_user_metadata(
                    session, {REWOUND_TO: snapshot_id or NOTHING, REWOUND_AT: str(version), **_table_rows(difference)}
                )
                try:
                    java.restore(
                        _with_columns_of(java, snapshot, snapshot_id),
                        snapshot_id,
                        difference.removed,
                        difference.restored,
                    )
                except CALL_ERRORS as error:
                    if failure_of(error) is not Failure.CONFLICT:
                        raise
                else:
                    return True
        raise TableError(doing, "the table has changed since it was looked at", remedy="Run the rollback again.")

    def _commits(self, name: TableName, doing: str) -> Sequence[Commit]:
        storage, folder = self._tables.storage.at(self._tables.location(name))
        with self._tables.translated_errors(doing):
            found = kept_commits(list(read_commits(storage, f"{folder}/_delta_log")))
        if not found:
            raise TableError(doing, "there is no such table")
        return found

    def _check_files(self, doing: str, name: TableName, restored: Sequence[str]) -> None:
        """Raises TableError where files of the version are gone: Delta itself would take files that are not there."""
        storage, folder = self._tables.storage.at(self._tables.location(name))
        paths = [path for action in restored for path in parse_add_action(action).paths]
        missing = [info for info in storage.get_file_info([f"{folder}/{path}" for path in paths]) if not info.is_file]
        if missing:
            raise TableError(
                doing, f"{len(missing)} of its files are gone", remedy="Was the table vacuumed? Refresh the stream."
            )


class _Difference(NamedTuple):
    """The files to remove and to restore, as `add` actions, and all files that the table has afterwards."""

    removed: Sequence[str]
    restored: Sequence[str]
    resulting: Sequence[LoggedFile]


def _difference(java: JavaDelta, snapshot: DeltaSnapshot, snapshot_id: str | None) -> _Difference:
    now = _by_identity(java.add_actions(snapshot))
    then = _by_identity([] if snapshot_id is None else java.add_actions_at(snapshot, int(snapshot_id)))
    removed = [now[each] for each in now.keys() - then.keys()]
    restored = [then[each] for each in then.keys() - now.keys()]
    return _Difference(removed, restored, [parse_add_action(action) for action in then.values()])


def _with_columns_of(java: JavaDelta, snapshot: DeltaSnapshot, snapshot_id: str | None) -> DeltaSnapshot:
    if snapshot_id is None:
        return snapshot
    then = read_metadata(java.metadata_action_at(snapshot, int(snapshot_id))).columns
    if contains_columns(snapshot.metadata.columns, then):
        return snapshot
    return snapshot.with_metadata(
        metadata_with_columns(snapshot.metadata_action, then, snapshot.metadata.last_column_id)
    )


def _by_identity(actions: Sequence[str]) -> dict[tuple[str, str, int | None], str]:
    return {parse_add_action(action).identity: action for action in actions}


def _table_rows(difference: _Difference) -> dict[str, str]:
    """Returns the property for the number of rows; nothing where the statistics of a file do not have it."""
    counts = [file.rows for file in difference.resulting]
    return {} if None in counts else {TABLE_ROWS: str(sum(count or 0 for count in counts))}


def _shown(found: Sequence[Commit]) -> tuple[ShownSnapshot, ...]:
    shown = [each for each in found if each.changes_rows]
    # Loads of older releases do not say whose they are.
    if found[0].version or any(
        LOAD_ID in each.user_metadata and CONNECTION not in each.user_metadata for each in shown
    ):
        return ()
    return tuple(ShownSnapshot(str(each.version), each.user_metadata.get(CONNECTION)) for each in shown)


def _past_rewind(commit: Commit) -> PastRewind:
    target = commit.user_metadata.get(REWOUND_TO, NOTHING)
    return PastRewind(int(commit.user_metadata[REWOUND_AT]), str(commit.version), None if target == NOTHING else target)


def _shows(found: Sequence[Commit], snapshot_id: str | None) -> bool:
    """Returns whether readers see the rows of that version already.

    Compactions on top of it change no row. Where no commit back to the first has changed rows, the table never had any.
    """
    for commit in reversed(found):
        if str(commit.version) == snapshot_id or commit.user_metadata.get(REWOUND_TO) == (snapshot_id or NOTHING):
            return True
        if commit.changes_rows:
            return False
    return snapshot_id is None and found[0].version == 0
