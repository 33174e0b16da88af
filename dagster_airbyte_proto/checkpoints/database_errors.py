"""The errors of the state store's database as errors of ours: what failed, and what a person can do about it."""

import sqlite3
from pathlib import Path

import psutil
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from dagster_airbyte_proto.errors import ConfigError, InternalError, ProtoError, StateUnavailable

DOING = "using the state store"
MAKE_WRITABLE = "Make the file and its folder writable, or name another state_url."

_FULL_BYTES = 64 * 1024  # twice the shared-memory file of SQLite

_MANY = "For many syncs at once keep the state in PostgreSQL (state_url): a SQLite file lets in one writer at a time."
_LOCKED = f"Another process holds the file's lock. Try again; stop that process if it stays. {_MANY}"
_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_PROTOCOL: f"Too many processes open the file at once. Try again. {_MANY}",
    sqlite3.SQLITE_FULL: "The disk is full. Make room, then run again.",
    sqlite3.SQLITE_IOERR: "The disk or its file system failed. Look at it, then run again.",
}
_MISCONFIGURED = {
    sqlite3.SQLITE_PERM: MAKE_WRITABLE,
    sqlite3.SQLITE_READONLY: MAKE_WRITABLE,
    sqlite3.SQLITE_CANTOPEN: MAKE_WRITABLE,
    sqlite3.SQLITE_CORRUPT: "The file is damaged. Restore it from a backup, or name another state_url.",
    sqlite3.SQLITE_NOTADB: "That is no SQLite database. Name another state_url.",
}

# Wrong user or password, no such database, no such schema, no right to it: the user must change state_url or grants.
_CONFIG_SQLSTATES = ("28", "3D", "3F", "42501")
_NO_CONNECTION = "53300"
_UNAVAILABLE_SQLSTATES = {
    # After a failover a name may lead to the server that was the primary for some seconds more.
    "25006": "The server only reads: it is a replica, or has just become one. Name the primary in state_url;"
    " `?target_session_attrs=read-write` there lets in no other server.",
    "53100": "The disk of the server is full. Make room there, then run again.",
    "53200": "The server has no memory left. Look at it, then run again.",
    _NO_CONNECTION: "The server lets in no more connections. Raise max_connections or the limit of the role, or let"
    " fewer processes run at once.",
    "55P03": "Another process holds a lock of the store. Try again; if it stays, pg_stat_activity of the server shows"
    " which it is.",
    "57014": "The server stopped the call, as its statement_timeout does. Raise that for the role, then run again.",
}
# The driver has no state of a connection that was refused.
_SAY_NO_CONNECTION = ("too many connections", "too many clients", "connection slots")


def database_error(error: DBAPIError, store: str, file: Path) -> ProtoError:
    """Returns the error for one of SQLite, in a file, or of PostgreSQL."""
    found = f"{store}: {str(error.orig).strip()}"
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF  # the lower byte of an extended code is the plain one
    if code == sqlite3.SQLITE_IOERR and _is_disk_full(file):
        code = sqlite3.SQLITE_FULL
    if code in _UNAVAILABLE:
        return StateUnavailable(DOING, found, remedy=_UNAVAILABLE[code])
    if code in _MISCONFIGURED:
        return ConfigError(DOING, found, remedy=_MISCONFIGURED[code])
    sqlstate = getattr(error.orig, "sqlstate", None) or ""
    if not sqlstate and any(words in found for words in _SAY_NO_CONNECTION):
        sqlstate = _NO_CONNECTION
    if sqlstate in _UNAVAILABLE_SQLSTATES:
        return StateUnavailable(DOING, found, remedy=_UNAVAILABLE_SQLSTATES[sqlstate])
    if sqlstate.startswith(_CONFIG_SQLSTATES):
        return ConfigError(DOING, found, remedy="Check the user, its rights and the database in state_url.")
    if code == 0 and (error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)):
        return StateUnavailable(DOING, found, remedy="Check that the server runs and that state_url is right.")
    return InternalError(DOING, found)


def _is_disk_full(file: Path) -> bool:
    """SQLite says "disk I/O error" where its shared-memory file has no room: the cause is not to be guessed."""
    try:
        return psutil.disk_usage(str(file.absolute().parent)).free < _FULL_BYTES
    except OSError:
        return False
