"""SQL of runs, their folders and the generations of streams.

The caller has begun the transaction and checked the fence. The fence of its lease identifies a run, since a retry may
have the run id of the attempt before it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, insert, select, update

from dagster_airbyte_proto.checkpoints.sql.database import insert_of
from dagster_airbyte_proto.checkpoints.sql.leases import next_number
from dagster_airbyte_proto.checkpoints.sql.schema import generations, run_folders, runs
from dagster_airbyte_proto.checkpoints.sql.states import StateKey, key_columns
from dagster_airbyte_proto.checkpoints.store import Lease, LoggedRun

COMPLETE = "complete"


def sync_id_of(tx: Connection, lease: Lease) -> int | None:
    """The number of the run that this lease has begun; None when it has begun none."""
    return tx.execute(select(runs.c.sync_id).where(_under(runs, lease))).scalar_one_or_none()


def begin(tx: Connection, lease: Lease, now: datetime) -> int:
    sync_id = next_number(tx, lease.connection, "sync_id")
    run = {"connection": lease.connection, "fence": lease.fence, "run_id": lease.run_id, "holder": lease.holder}
    tx.execute(insert(runs).values(sync_id=sync_id, started_at=now, **run))
    return sync_id


def end(tx: Connection, lease: Lease, now: datetime, status: str, report: str) -> None:
    tx.execute(update(runs).where(_under(runs, lease)).values(ended_at=now, status=status, report=report))
    if status == COMPLETE:
        tx.execute(delete(run_folders).where(_under(run_folders, lease)))


def reports(tx: Connection, connection: str, run_id: str) -> Sequence[str]:
    of_run = and_(runs.c.connection == connection, runs.c.run_id == run_id, runs.c.report.is_not(None))
    return list(tx.scalars(select(runs.c.report).where(of_run).order_by(runs.c.sync_id)))


def newest_report(tx: Connection, connection: str) -> str | None:
    ended = and_(runs.c.connection == connection, runs.c.report.is_not(None))
    return tx.scalars(select(runs.c.report).where(ended).order_by(runs.c.sync_id.desc()).limit(1)).one_or_none()


def newest_runs(tx: Connection, connection: str, limit: int) -> Sequence[LoggedRun]:
    """The newest runs, and the newest complete one where it is older than these."""
    newest_first = select(runs).where(runs.c.connection == connection).order_by(runs.c.sync_id.desc())
    rows = list(tx.execute(newest_first.limit(limit)))
    if rows and all(row.status != COMPLETE for row in rows):
        older = newest_first.where(runs.c.sync_id < rows[-1].sync_id, runs.c.status == COMPLETE)
        rows += tx.execute(older.limit(1))
    return [
        LoggedRun(row.run_id, row.started_at, row.ended_at, row.status or "", row.report or "", row.fence)
        for row in rows
    ]


def prune(tx: Connection, connection: str, before: datetime) -> None:
    """Deletes the runs that ended before that time, but not the one that ended last."""
    ended = and_(runs.c.connection == connection, runs.c.report.is_not(None))
    newest = select(func.max(runs.c.sync_id)).where(ended).scalar_subquery()
    tx.execute(delete(runs).where(ended, runs.c.ended_at < before, runs.c.sync_id != newest))


def run_holders(tx: Connection, connection: str, run_id: str) -> Sequence[str]:
    of_run = and_(runs.c.connection == connection, runs.c.run_id == run_id)
    return list(tx.scalars(select(runs.c.holder).where(of_run).order_by(runs.c.sync_id)))


def generation(tx: Connection, connection: str, key: StateKey) -> int:
    """The current generation of a stream; 0 when it was never refreshed."""
    return tx.execute(select(generations.c.generation).where(_is_at(connection, key))).scalar_one_or_none() or 0


def next_generation(tx: Connection, connection: str, key: StateKey) -> int:
    following = generation(tx, connection, key) + 1
    tx.execute(delete(generations).where(_is_at(connection, key)))
    tx.execute(insert(generations).values(connection=connection, generation=following, **key_columns(key)))
    return following


def note_folders(tx: Connection, lease: Lease, folders: Iterable[str]) -> None:
    run = {
        "connection": lease.connection,
        "fence": lease.fence,
        "run_id": lease.run_id,
        "partition_key": lease.partition,
    }
    if noted := [{"folder": folder, **run} for folder in folders]:
        tx.execute(insert_of(tx, run_folders).on_conflict_do_nothing(), noted)


def unfinished_folders(tx: Connection, lease: Lease) -> Sequence[tuple[str, str]]:
    rows = tx.execute(
        select(run_folders.c.run_id, run_folders.c.folder)
        .where(_before(lease))
        .order_by(run_folders.c.fence, run_folders.c.folder)
    )
    return list(dict.fromkeys((row.run_id, row.folder) for row in rows))


def forget_folders(tx: Connection, lease: Lease, run_id: str) -> None:
    tx.execute(delete(run_folders).where(_before(lease), run_folders.c.run_id == run_id))


def _under(table: Table, lease: Lease) -> ColumnElement[bool]:
    return and_(table.c.connection == lease.connection, table.c.fence == lease.fence)


def _before(lease: Lease) -> ColumnElement[bool]:
    earlier = and_(run_folders.c.connection == lease.connection, run_folders.c.fence < lease.fence)
    return and_(earlier, run_folders.c.partition_key == lease.partition) if lease.partition else earlier


def _is_at(connection: str, key: StateKey) -> ColumnElement[bool]:
    named = (generations.c[name] == value for name, value in key_columns(key).items())
    return and_(generations.c.connection == connection, *named)
