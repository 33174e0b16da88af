"""SQL of a connection's row with its counters, and of its leases, inside a transaction that the caller has begun.

The counters only grow, and outlive every lease, run and state.

Only the fence and the token decide whether a lease is lost, never the clock: a run that renews late may go on if nobody
took its lease over. The clock only says from when on another run may take it over.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, delete, exists, insert, select, update

from dagster_airbyte_proto.checkpoints.slot import WHOLE, Slot
from dagster_airbyte_proto.checkpoints.sql.database import insert_of
from dagster_airbyte_proto.checkpoints.sql.schema import connections, leases, loads, open_generations, run_folders
from dagster_airbyte_proto.checkpoints.store import Lease, LoadStatus
from dagster_airbyte_proto.errors import StateConflict

CounterName = Literal["fence", "sync_id", "version"]

_INTERNAL = re.compile(r" \(started [^()]*\)")
_LONG = timedelta(minutes=10)


def lock_new_or_known(tx: Connection, connection: str) -> None:
    """Locks the connection's row, which is inserted first for a new connection."""
    first = {"connection": connection, "fence": 0, "sync_id": 0, "version": 0, "protocol": ""}
    tx.execute(insert_of(tx, connections).values(first).on_conflict_do_nothing())
    lock_connection(tx, connection)


def lock_connection(tx: Connection, connection: str) -> None:
    """Locks the connection's row until this transaction ends."""
    # SQLite has no FOR UPDATE and needs none: BEGIN IMMEDIATE lets in only one writer at a time.
    if tx.dialect.name != "sqlite":
        tx.execute(select(connections).where(connections.c.connection == connection).with_for_update())


def take(tx: Connection, requested: Lease, slot: Slot, now: datetime, is_dead: Callable[[str], bool]) -> Lease:
    """Takes the lease of the slot and returns it with its own fence. Raises StateConflict while others exclude it."""
    if slot.partition and slot.recovers and _is_something_left_of_whole(tx, requested.connection):
        slot = WHOLE
    rows = tx.execute(_leases_of(requested.connection).with_for_update()).all()
    excluded = [row for row in rows if slot.partition in ("", row.partition_key) or not row.partition_key]
    alive = [row for row in rows if row.expires_at > now and not is_dead(row.holder)]
    for row in excluded:
        if row in alive:
            raise _held_by(row, now)
    if len(alive) >= slot.most_runs:
        raise _full(alive, now)
    lease = requested._replace(fence=next_number(tx, requested.connection, "fence"), partition=slot.partition)
    # Expired leases of other partitions stay: their runs may go on until somebody takes those over. Where one run may
    # work at a time, this one takes over all: two would hand on tokens of their own.
    gone = rows if slot.most_runs == 1 else excluded
    taken = leases.c.partition_key.in_([row.partition_key for row in gone])
    tx.execute(delete(leases).where(leases.c.connection == requested.connection, taken))
    tx.execute(insert(leases).values(since=now, partition_key=lease.partition, **_columns(lease)))
    return lease


def _is_something_left_of_whole(tx: Connection, connection: str) -> bool:
    """True if a run of the whole connection has left an announced load, unswept folders, or a dead generation."""
    load = exists().where(
        loads.c.connection == connection, loads.c.partition_key == "", loads.c.status == LoadStatus.ANNOUNCED.value
    )
    folder = exists().where(run_folders.c.connection == connection, run_folders.c.partition_key == "")
    branch = exists().where(open_generations.c.connection == connection, open_generations.c.scope.is_(None))
    return bool(tx.scalar(select(load | folder | branch)))


def renew(tx: Connection, lease: Lease, now: datetime, seconds: float) -> Lease:
    """Extends the lease. Does not lock the connection's row: waiting for a long promote on another thread could cost
    the lease."""
    renewed = lease._replace(expires_at=now + timedelta(seconds=seconds))
    written = tx.execute(update(leases).where(*_is(lease)).values(expires_at=renewed.expires_at))
    if written.rowcount != 1:
        raise _lost(tx, lease)
    return renewed


def release(tx: Connection, lease: Lease) -> None:
    tx.execute(delete(leases).where(*_is(lease)))


def current_leases(tx: Connection, connection: str, alive_at: datetime | None = None) -> Sequence[Lease]:
    """The stored leases of the connection, whoever holds them: all, or those that have not expired at that time."""
    rows = tx.execute(_leases_of(connection).order_by(leases.c.fence))
    return [
        Lease(row.connection, row.run_id, row.holder, row.fence, row.expires_at, row.token, row.partition_key)
        for row in rows
        if alive_at is None or row.expires_at > alive_at
    ]


def check_held(tx: Connection, lease: Lease) -> None:
    """Raises StateConflict when another run has the lease, or nobody."""
    if tx.execute(select(leases.c.fence).where(*_is(lease))).one_or_none() is None:
        raise _lost(tx, lease)


def _is(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return leases.c.connection == lease.connection, leases.c.fence == lease.fence, leases.c.token == lease.token


def _columns(lease: Lease) -> dict[str, Any]:
    return {name: value for name, value in lease._asdict().items() if name != "partition"}


def _leases_of(connection: str) -> Any:
    return select(leases).where(leases.c.connection == connection)


def _full(alive: Sequence[Row[Any]], now: datetime) -> StateConflict:
    first = min(alive, key=lambda row: row.fence)
    return StateConflict(
        f"starting to work on connection {first.connection}",
        f"{len(alive)} of its runs work now, and no more may; the oldest is of partition {first.partition_key}, by"
        f" {process_text(first.holder)} (run {first.run_id}) since {_readable(first.since)}",
        remedy="Wait until one has ended. `parallel` in the connection says how many may work at once; of a connector"
        f" that rewrites its config it is one.{_way_to_end(first, now)}",
    )


def _held_by(row: Row[Any], now: datetime) -> StateConflict:
    return StateConflict(
        f"starting to work on connection {row.connection}",
        f"{process_text(row.holder)} has held {_part(row)} since {_readable(row.since)} (run {row.run_id})",
        remedy=f"Wait until that run has ended, or stop it. If it is dead, its lease ends by itself, at"
        f" {_readable(row.expires_at)} or before.{_way_to_end(row, now)}",
    )


def _part(row: Row[Any]) -> str:
    """The part of the connection that a lease is of."""
    return f"its partition {row.partition_key}" if row.partition_key else "it"


def _way_to_end(row: Row[Any], now: datetime) -> str:
    """A lease that ends in years was taken while a clock was wrong: nobody waits for that."""
    if row.expires_at - now < _LONG:
        return ""
    return (
        f" If that run is dead and its lease ends too late for you, end it:"
        f" airbyte-proto recover {row.connection} --dead-run {row.run_id}"
    )


def _lost(tx: Connection, lease: Lease) -> StateConflict:
    others = tx.execute(_leases_of(lease.connection)).all()
    # Only a run of the same partition, or of the whole, can have taken it.
    row = next((each for each in others if not lease.partition or each.partition_key in ("", lease.partition)), None)
    return StateConflict(
        f"working on connection {lease.connection} (run {lease.run_id}, fence {lease.fence})",
        f"{process_text(row.holder)} took it over (run {row.run_id}) at {_readable(row.since)}"
        if row is not None
        else "this run no longer holds the lease: it was given back, or another run took it over",
        remedy="This run must stop. The run that took over finishes the loads that this one announced.",
    )


def process_text(name: str) -> str:
    """The name of a process for people: without its start in ticks, by which machines tell it from a later one."""
    return _INTERNAL.sub("", name)


def _readable(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def last_number(tx: Connection, connection: str, counter: CounterName) -> int:
    """The last number that was given out; 0 before the first."""
    return int(tx.execute(select(connections.c[counter]).where(connections.c.connection == connection)).scalar_one())


def next_number(tx: Connection, connection: str, counter: CounterName) -> int:
    """Increments the counter and returns its new value. A number is never given out twice."""
    here = connections.c.connection == connection
    tx.execute(update(connections).where(here).values({counter: connections.c[counter] + 1}))
    return last_number(tx, connection, counter)
