"""Taking a Delta table back to a version, so that nobody who slept meanwhile brings back what was undone.

It is a commit on top: the files of the version come back, all others go. The log goes on, and still knows each load
that is undone: whoever looks finds it landed, and who looked before is refused for what came in since. So is this, by
Delta's own check and because it begins at the very version that the caller saw.

The columns stay as they are where they have only become more: rows of an older version have nulls in newer ones.
Where the table has lost some since, or has others under their names, it has those of the version again.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import Rewinding, TablePast
from dagster_airbyte_proto.tables.delta.history import REWOUND_TO, ROWS, VERSION, Commit, File, commits, file_of, kept
from dagster_airbyte_proto.tables.delta.jvm import JavaDelta, Look, tell, telling
from dagster_airbyte_proto.tables.delta.log import changed_table, holds, read_metadata
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.spark.jvm_errors import CALL_ERRORS, Failure, failure_of

_NOTHING = "nothing"


class DeltaRewinder:
    """The tables of one warehouse."""

    def __init__(self, tables: DeltaTables) -> None:
        self._tables = tables

    def past(self, name: TableName) -> TablePast:
        found = self._commits(name, f"reading the log of table {name}")
        rewindings = {int(each.told[VERSION]): str(each.version) for each in found if VERSION in each.told}
        ids = tuple(str(each.version) for each in found)
        return TablePast(ids[-1], ids, tuple(Rewinding(version, at) for version, at in sorted(rewindings.items())))

    def rewind(self, name: TableName, snapshot_id: str | None, *, seen: TablePast, version: int) -> bool:
        doing = f"taking table {name} back to {f'snapshot {snapshot_id}' if snapshot_id else 'nothing'}"
        found = self._commits(name, doing)
        if _stands_at(found, snapshot_id):
            return False
        with self._tables.refusals(doing):
            session = telling(self._tables.open_session(), {})
            java = JavaDelta(session)
            look = java.look(self._tables.location(name))
            if str(look.version) == seen.current:
                change = _difference(java, look, snapshot_id)
                self._check_files(doing, name, change.back)
                tell(session, {REWOUND_TO: snapshot_id or _NOTHING, VERSION: str(version), **_rows(change)})
                try:
                    java.restore(_with_columns_of(java, look, snapshot_id), snapshot_id, change.gone, change.back)
                except CALL_ERRORS as error:
                    if failure_of(error) is not Failure.CONFLICT:
                        raise
                else:
                    return True
        raise TableError(doing, "the table has changed since it was looked at", remedy="Ask for it again.")

    def _commits(self, name: TableName, doing: str) -> Sequence[Commit]:
        storage, folder = self._tables.storage.at(self._tables.location(name))
        with self._tables.refusals(doing):
            found = kept(list(commits(storage, f"{folder}/_delta_log")))
        if not found:
            raise TableError(doing, "there is no such table")
        return found

    def _check_files(self, doing: str, name: TableName, back: Sequence[str]) -> None:
        """Delta takes files that are not there."""
        storage, folder = self._tables.storage.at(self._tables.location(name))
        paths = [path for action in back for path in file_of(action).paths]
        gone = [info for info in storage.get_file_info([f"{folder}/{path}" for path in paths]) if not info.is_file]
        if gone:
            raise TableError(
                doing, f"{len(gone)} of its files are gone", remedy="Was the table vacuumed? Refresh the stream."
            )


class _Difference(NamedTuple):
    """What a table is rid of to be as it was, and what comes back, as `add` actions; and all that it then has."""

    gone: Sequence[str]
    back: Sequence[str]
    then: Sequence[File]


def _difference(java: JavaDelta, look: Look, snapshot_id: str | None) -> _Difference:
    now = _by_identity(java.files(look))
    then = _by_identity([] if snapshot_id is None else java.files_at(look, int(snapshot_id)))
    gone = [now[each] for each in now.keys() - then.keys()]
    back = [then[each] for each in then.keys() - now.keys()]
    return _Difference(gone, back, [file_of(action) for action in then.values()])


def _with_columns_of(java: JavaDelta, look: Look, snapshot_id: str | None) -> Look:
    if snapshot_id is None:
        return look
    then = read_metadata(java.action_at(look, int(snapshot_id))).columns
    if holds(look.metadata.columns, then):
        return look
    return look.turned(changed_table(look.action, then, look.metadata.last_column_id))


def _by_identity(actions: Sequence[str]) -> dict[tuple[str, str, int | None], str]:
    return {file_of(action).identity: action for action in actions}


def _rows(change: _Difference) -> dict[str, str]:
    counts = [file.rows for file in change.then]
    return {} if None in counts else {ROWS: str(sum(count or 0 for count in counts))}


def _stands_at(found: Sequence[Commit], snapshot_id: str | None) -> bool:
    """Whether it shows the rows of that version already: compactions on top of it change none. With nothing before it,
    no row has ever come."""
    for commit in reversed(found):
        if str(commit.version) == snapshot_id or commit.told.get(REWOUND_TO) == (snapshot_id or _NOTHING):
            return True
        if commit.changes_rows:
            return False
    return snapshot_id is None and found[0].version == 0
