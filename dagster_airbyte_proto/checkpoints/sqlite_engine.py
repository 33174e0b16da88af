"""Connections to a SQLite file: in WAL mode with full syncs, so that committed data survives a kill and a power cut.

Writers begin with BEGIN IMMEDIATE: otherwise a transaction that reads first and writes later would fail where it could
have waited. They wait in our own way (`_begin_writing`), because SQLite's lets newcomers overtake. No connection stays
open between transactions, so that a forked child never inherits one.
"""

import random
import sqlite3
import time
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, create_engine, event

_TIMEOUT_SECONDS = 10
_LONGEST_PAUSE, _SHORTEST_PAUSE, _SHRINK_RATE = 0.03, 0.003, 10
"""Between two attempts of a writer to begin, in SQLite: the seconds at first and at last, and how fast they shrink."""


def sqlite_engine(path: Path, lock_timeout_seconds: float) -> Engine:
    """An engine of such connections."""
    # An absolute path, so that a change of the working directory does no harm. `mode=rw` never creates the file: if
    # somebody removes it under a running process, an empty one in its place would have no state and no lease.
    uri = f"{path.absolute().as_uri()}?mode=rw"
    engine = create_engine(
        "sqlite+pysqlite://",
        creator=lambda: sqlite3.connect(uri, uri=True, timeout=lock_timeout_seconds),
        hide_parameters=True,
        poolclass=NullPool,
    )

    @event.listens_for(engine, "connect")
    def _set_up(dbapi_connection: sqlite3.Connection, _record: object) -> None:
        # Turns off the driver's own transactions: it would begin them only at the first write, and never around DDL.
        dbapi_connection.isolation_level = None
        _use_wal(dbapi_connection)
        dbapi_connection.execute("PRAGMA synchronous=FULL")
        dbapi_connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _begin(tx: Connection) -> None:
        if tx.get_execution_options().get("writes"):
            _begin_writing(tx, lock_timeout_seconds)
        else:
            tx.exec_driver_sql("BEGIN")

    return engine


def _begin_writing(tx: Connection, timeout_seconds: float) -> None:
    """Begins a transaction that writes, once no other does.

    SQLite's own wait sleeps longer the longer it has waited: of 20 writers without a pause, some had one turn while
    others had a hundred, and of 50 a third gave up. Here the one that has waited longest asks most often.
    """
    tx.exec_driver_sql("PRAGMA busy_timeout=0")
    if not _has_begun(tx, timeout_seconds):
        tx.exec_driver_sql("BEGIN IMMEDIATE")  # Again, so that its error is one of SQLAlchemy's.
    tx.exec_driver_sql(f"PRAGMA busy_timeout={int(timeout_seconds * 1000)}")


def _has_begun(tx: Connection, timeout_seconds: float) -> bool:
    began = time.monotonic()
    while (waited := time.monotonic() - began) < timeout_seconds:
        try:
            tx.connection.cursor().execute("BEGIN IMMEDIATE")
            return True
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                return False
        longest = max(_SHORTEST_PAUSE, _LONGEST_PAUSE / (1 + _SHRINK_RATE * waited))
        time.sleep(random.uniform(0, longest))  # noqa: S311 - no secret
    return False


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switches the file to WAL mode, which it then keeps.

    Two processes that switch at the same time do not wait for each other, as they would for any other lock: one of them
    fails at once because the file is locked. So this tries again.
    """
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
