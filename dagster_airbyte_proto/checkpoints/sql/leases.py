"""Leases and fences, inside a transaction that someone else began.

Whether a lease is lost is decided by its fence alone, never by the clock: a run that was late to renew, and that
nobody took over from, may go on. The clock only says from when on another may take over.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update
from sqlalchemy.dialects import sqlite

from dagster_airbyte_proto.checkpoints.sql.counters import count_up
from dagster_airbyte_proto.checkpoints.sql.schema import connections, leases
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import StateConflict


def enlist(tx: Connection, connection: str) -> None:
    """Makes the connection's row if it has none, and lines up."""
    first = {"connection": connection, "fence": 0, "sync_id": 0, "version": 0}
    if tx.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # Some 50 ms, which who has SQLite need not wait.

        tx.execute(postgresql.insert(connections).values(first).on_conflict_do_nothing())
    else:
        tx.execute(sqlite.insert(connections).values(first).on_conflict_do_nothing())
    line_up(tx, connection)


def line_up(tx: Connection, connection: str) -> None:
    """Whoever lines up next on this connection waits until this transaction has ended."""
    # SQLite knows no FOR UPDATE and needs none: its writers are one at a time from the start.
    tx.execute(select(connections).where(connections.c.connection == connection).with_for_update())


def take(tx: Connection, wanted: Lease, now: datetime, is_dead: Callable[[str], bool]) -> Lease:
    """`wanted` with a fence of its own, or StateConflict while another that is not known to be dead holds it."""
    standing = tx.execute(_of(wanted.connection).with_for_update()).one_or_none()
    if standing is not None and standing.expires_at > now and not is_dead(standing.holder):
        raise _held_by(standing)
    lease = wanted._replace(fence=count_up(tx, wanted.connection, "fence"))
    tx.execute(delete(leases).where(leases.c.connection == wanted.connection))
    tx.execute(insert(leases).values(since=now, **lease._asdict()))
    return lease


def renew(tx: Connection, lease: Lease, now: datetime, seconds: float) -> Lease:
    """Does not line up: a long promote on another thread must not cost the lease."""
    renewed = lease._replace(expires_at=now + timedelta(seconds=seconds))
    written = tx.execute(update(leases).where(*_is(lease)).values(expires_at=renewed.expires_at))
    if written.rowcount != 1:
        raise _lost(tx, lease)
    return renewed


def release(tx: Connection, lease: Lease) -> None:
    tx.execute(delete(leases).where(*_is(lease)))


def standing(tx: Connection, connection: str) -> Lease | None:
    """The lease as it is written down, by whoever."""
    row = tx.execute(_of(connection)).one_or_none()
    return None if row is None else Lease(row.connection, row.run_id, row.holder, row.fence, row.expires_at)


def check_fence(tx: Connection, lease: Lease) -> None:
    """Raises StateConflict when the lease is another's, or nobody's."""
    if tx.execute(select(leases.c.fence).where(*_is(lease))).one_or_none() is None:
        raise _lost(tx, lease)


def _is(lease: Lease) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return leases.c.connection == lease.connection, leases.c.fence == lease.fence


def _of(connection: str) -> Any:
    return select(leases).where(leases.c.connection == connection)


def _held_by(standing: Row[Any]) -> StateConflict:
    return StateConflict(
        f"starting to work on connection {standing.connection}",
        f"{standing.holder} holds it (run {standing.run_id}) since {_readable(standing.since)},"
        f" and until {_readable(standing.expires_at)} unless it renews",
        remedy="Wait until that run has ended, or stop it. Of a run that is dead the lease runs out by itself.",
    )


def _lost(tx: Connection, lease: Lease) -> StateConflict:
    taker = tx.execute(_of(lease.connection)).one_or_none()
    return StateConflict(
        f"working on connection {lease.connection} (run {lease.run_id}, fence {lease.fence})",
        f"{taker.holder} took it over (run {taker.run_id}) at {_readable(taker.since)}"
        if taker is not None
        else "this run's lease is not held any more: it was given back, or taken over by a run that has ended since",
        remedy="This run must stop. What it had announced, the run that took over brings to its end.",
    )


def _readable(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
