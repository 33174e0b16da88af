"""The loads that landed in the tables of a connection, and the versions of its states to which they belong."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.checkpoints.load_ending import LoadEnding
from dagster_airbyte_proto.checkpoints.logs import loads_newest_first
from dagster_airbyte_proto.checkpoints.store import NO_LIMIT, LandedTable, LoadStatus, LoggedLoad, StateStore
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.tables.care import TableHistory

_BY_HAND = frozenset(("set", "reset"))


class PastLoad(NamedTuple):
    """A load in one table. `snapshot_id` is None where only a person said that it landed.

    `changes_table` is false for a load that had nothing to add: its snapshot is that of the change before it. `memory`
    is the load as the store remembers the last one of a stream. `entry` has neither parts nor states: all the loads of
    a connection are in memory at once.
    """

    version: int
    snapshot_id: str | None
    entry: LoggedLoad
    stream: StreamId
    changes_table: bool
    memory: LandedTable


class VersionTimes:
    """The times at which the versions of a connection's states were made, and the runs that made them.

    A load that moves states ends at the very time of its version: of several that were made then, the first. Among the
    other times, a version counts as made no earlier than those before it: the clock may have been set back between two.

    A load that moves no state belongs to the version before it. But what a run lands before its first version, such as
    a full refresh by a process of its own, belongs to that one: so a rollback to the version before a run undoes all
    of the run.
    """

    def __init__(self, store: StateStore, connection: str) -> None:
        self._history = store.history(connection, limit=NO_LIMIT, with_states=False)
        changes = sorted({(change.version, change.changed_at, change.run_id) for change in self._history})
        self._made_at = {made_at: version for version, made_at, _ in reversed(changes)}
        self._versions = [(version, run_id) for version, _, run_id in changes]
        self._times = list(accumulate((made_at for _, made_at, _ in changes), max))
        numbered = [(run_id, number) for number, (_, run_id) in enumerate(self._versions)]
        self._first_of_run = dict(reversed(numbered))

    @property
    def numbers(self) -> Sequence[int]:
        return [version for version, _ in self._versions]

    def of(self, entry: LoggedLoad) -> int:
        """The version of the states to which a load belongs; 0 before the first."""
        if entry.ended_at is None:
            return 0
        if entry.ended_at in self._made_at:
            return self._made_at[entry.ended_at]
        number, run_id = bisect_right(self._times, entry.ended_at), entry.load.run_id
        before, before_by = self._versions[number - 1] if number else (0, "")
        after, after_by = self._versions[number] if number < len(self._versions) else (0, "")
        if after_by == run_id != before_by:
            return after
        first = self._first_of_run.get(run_id, -1)
        # Runs of other partitions move states in between, and people do in other partitions, but nobody else.
        return self._versions[first][0] if entry.partition and first >= number else before

    def were_changed_by_hand(self, stream: StreamId, since: int, until: int) -> bool:
        """True if a person set or reset the stream's state after one version, and up to another. The states of
        partitions are others."""
        return any(
            since < change.version <= until and change.why in _BY_HAND and change.stream in (stream, None)
            for change in self._history
            if not change.partition
        )


def landed_loads(store: StateStore, connection: str, versions: VersionTimes) -> Mapping[TableName, list[PastLoad]]:
    """The loads that landed in each table of the connection, oldest first."""
    found: dict[TableName, list[PastLoad]] = {}
    for name, landed in reversed([*_newest_first(store, connection, versions)]):
        found.setdefault(name, []).append(landed)
    return found


def _newest_first(store: StateStore, connection: str, versions: VersionTimes) -> Iterator[tuple[TableName, PastLoad]]:
    for entry in loads_newest_first(store, connection):
        if entry.status is not LoadStatus.DONE:
            continue
        said = entry.load.parts if entry.ending is LoadEnding.RESOLVED_AS_LANDED else ()
        snapshots: dict[StreamId, str | None] = dict.fromkeys(part.stream for part in said)
        snapshots |= {each.stream: each.snapshot_id for each in entry.committed}
        version, without_rows = versions.of(entry), _without_rows(entry)
        covered = {state.stream for state in entry.load.states}
        for part in reversed(entry.load.parts):
            # Readers never saw a load that stayed on a branch. The rows of a relay are in no table of ours.
            if part.is_shown and not part.is_relayed and snapshots.get(part.stream, "") != "":
                is_covered = part.stream in covered or (None in covered and not part.read_whole)
                memory = LandedTable(part.table_id, entry.load.load_id, part.write, is_covered)
                landed = PastLoad(
                    version, snapshots[part.stream], without_rows, part.stream, part.changes_table, memory
                )
                yield part.table, landed


def known_loads(store: StateStore, history: TableHistory) -> dict[str, LoggedLoad]:
    """The loads that the table's log names and the store knows, without their parts and states. Others come from other
    stores."""
    named = {change.load_id for change in history.changes if change.load_id is not None}
    return {load_id: _without_rows(entry) for load_id in named if (entry := store.load(load_id)) is not None}


def _without_rows(entry: LoggedLoad) -> LoggedLoad:
    load = msgspec.structs.replace(entry.load, parts=(), states=(), resume_points=(), transformed=())
    return entry._replace(load=load, committed=())
