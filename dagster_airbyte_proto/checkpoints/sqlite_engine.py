"""Connections to a SQLite file: in WAL mode with full syncs, so that committed data survives a kill and a power cut.

Writers begin with BEGIN IMMEDIATE: otherwise a transaction that reads first and writes later would fail where it could
have waited. They wait in our own way (`_begin_writing`), because SQLite's lets newcomers overtake. No connection stays
open between transactions, so that a forked child never inherits one.
"""

import os
import random
import sqlite3
import time
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, create_engine, event

from dagster_airbyte_proto.errors import ConfigError, StateUnavailable

_TIMEOUT_SECONDS = 10
_CANNOT_WRITE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
_LONGEST_PAUSE, _SHORTEST_PAUSE, _SHRINK_RATE = 0.03, 0.003, 10
"""Between two attempts of a writer to begin, in SQLite: the seconds at first and at last, and how fast they shrink."""


def sqlite_engine(path: Path, lock_timeout_seconds: float) -> Engine:
    """An engine of such connections. Where the file cannot be written, they can only read."""
    absolute = path.absolute()  # A change of the working directory does no harm.
    engine = create_engine(
        "sqlite+pysqlite://",
        creator=lambda: _connected(absolute, lock_timeout_seconds),
        hide_parameters=True,
        poolclass=NullPool,
    )

    @event.listens_for(engine, "begin")
    def _begin(tx: Connection) -> None:
        if tx.get_execution_options().get("writes"):
            _begin_writing(tx, lock_timeout_seconds)
        else:
            tx.exec_driver_sql("BEGIN")

    return engine


class _UnwritableFile(sqlite3.Connection):
    """A connection that takes the file for one that nobody changes: it needs no files beside it, as WAL mode does.

    A program for which the file is no read-only one may change it all the same. `mark` is what it was at the beginning.
    """

    file: Path
    mark: tuple[int, ...]


def check_unchanged(tx: Connection, store: str) -> None:
    """Raises StateUnavailable if a file that cannot be written here was changed during the transaction."""
    if tx.closed or tx.invalidated:
        return
    connection = tx.connection.driver_connection
    if isinstance(connection, _UnwritableFile) and connection.mark != _mark(connection.file):
        found = f"{store}: another program wrote to it while it was read"
        raise StateUnavailable("reading the state store", found, remedy="Try again.")


def _connected(path: Path, timeout_seconds: float) -> sqlite3.Connection:
    # `mode=rw` never creates the file: if somebody removes it under a running process, an empty one in its place would
    # have no state and no lease.
    #
    # Without isolation level the driver has no transactions of its own: it would begin them only at the first write,
    # and never around DDL.
    uri = path.as_uri()
    connection = sqlite3.connect(f"{uri}?mode=rw", uri=True, timeout=timeout_seconds, isolation_level=None)
    try:
        _use_wal(connection)
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode & 0xFF not in _CANNOT_WRITE or _is_writable(path):
            raise
        return _unwritable(path)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _unwritable(path: Path) -> sqlite3.Connection:
    """Opens a file on a read-only disk. Raises ConfigError where its newest changes are in a file beside it."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        raise ConfigError(
            "reading the state store",
            f"{path} cannot be written, and its newest changes are in {log.name}, which SQLite reads only where it can"
            " write",
            remedy="Copy both files to a folder that can be written, and name that store by state_url.",
        )
    mark = _mark(path)
    uri = f"{path.as_uri()}?immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, factory=_UnwritableFile)
    connection.file, connection.mark = path, mark
    return connection


def _mark(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


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
