"""Commits the change that lands a load in an Iceberg table, and finds out what became of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown
from dagster_airbyte_proto.tables.iceberg.commit.leftovers import CommitLeftovers
from dagster_airbyte_proto.tables.iceberg.jvm import JavaTable
from dagster_airbyte_proto.tables.iceberg.log import History, Snapshot, snapshots_since
from dagster_airbyte_proto.tables.outcome_unknown import outcome_unknown
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, NO_OUTCOME, Failure, failure_of, first_line


class CommitAttempt(NamedTuple):
    """A change (Java's) that lands a load on top of a history, not yet committed, and what Iceberg leaves to delete."""

    doing: str
    stream: str
    load_id: str
    change: Any
    history: History
    leftovers: CommitLeftovers


class AttemptOutcome(NamedTuple):
    """The outcome of a change: the snapshot that has its load, if there is one.

    Of a change that `was_refused` it is another writer's, or its own if the error came after the effect. Without one
    the load may have landed all the same, and have been undone or have expired before we looked. So files that a
    refused change wrote are deleted only if none of the `holders` has them: the snapshots with the load that the table
    got since, also those that readers do not see. They are None where nobody can tell.
    """

    snapshot: Snapshot | None
    was_refused: bool
    holders: Sequence[Snapshot] | None


def commit_attempt(table: JavaTable, attempt: CommitAttempt) -> AttemptOutcome:
    """Commits a change once. It is refused where the table changed since it was read.

    Raises CommitUnknown where nobody can tell, and the error of any other refusal.
    """
    doing, stream, load_id, history = attempt.doing, attempt.stream, attempt.load_id, attempt.history
    before, holders = table.log, None
    points.reach("table.committing")
    refusal: BaseException | None = None
    with outcome_unknown(doing, stream):
        try:
            with table.alone():
                attempt.change.commit()
        except CALL_ERRORS as error:
            if failure_of(error) in NO_OUTCOME:
                raise CommitUnknown(doing, first_line(error), stream=stream) from error
            # Some errors come after the effect: what the log says counts, at the next attempt too.
            refusal, now = error, table.refresh()
            # A row delta whose first snapshot was rolled back reports no conflict, but a wrong argument.
            is_conflict = failure_of(error) is Failure.CONFLICT or now.current != history.current
            snapshot = now.snapshot_of(load_id)
            holders = snapshots_since(table.log, load_id, before=before)
        else:
            points.reach("table.committed")
            if (snapshot := table.committed(load_id, history)) is None:
                raise CommitUnknown(doing, "the table's log does not show it", stream=stream)
    if refusal is None or holders == []:
        attempt.leftovers.delete(table.java)
    if snapshot is None and refusal is not None and not is_conflict:
        raise refusal
    return AttemptOutcome(snapshot, refusal is not None, holders)
