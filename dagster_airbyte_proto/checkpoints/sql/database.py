"""A database behind a URL: opened at its first use, safe under threads and forks. Its errors are ProtoErrors.

SQLite: one file (`sqlite_engine.py`).

PostgreSQL: through psycopg 3. Waiting for a lock has a timeout, and so has a call (`postgres_calls.py`). The server
ends the transaction of a client that stops in the middle of one (a paused machine); otherwise the run that takes over
would wait until that client wakes up.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Table,
    case,
    func,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from dagster_airbyte_proto.checkpoints.database_errors import DOING, MAKE_WRITABLE, database_error
from dagster_airbyte_proto.checkpoints.network_disk import network_file_system
from dagster_airbyte_proto.checkpoints.sql.migrations.steps import MIGRATIONS
from dagster_airbyte_proto.checkpoints.sql.migrations.table_version import (
    checked_version,
    is_current,
    migrate,
    stored_version,
)
from dagster_airbyte_proto.checkpoints.sql.schema import UtcTime, schema_version
from dagster_airbyte_proto.checkpoints.sqlite_engine import check_unchanged, sqlite_engine
from dagster_airbyte_proto.checkpoints.sqlite_files import sqlite_path
from dagster_airbyte_proto.errors import ConfigError, StateUnavailable

Clock = Callable[[], datetime]

_SQLITE, _POSTGRES = "sqlite", "postgresql"
_URLS = "Write sqlite:///path/to/state.db or postgresql://user:password@host/database."
_TIMEOUT_SECONDS = 10

_COMMIT_LEVEL = "synchronous_commit"
_MIGRATION_SECONDS, _MIGRATION_POLL_SECONDS = 60, 0.25
_MIGRATION_LOCK = 7_246_180_315  # any number, as long as nobody else's advisory lock has it
_SECRETS_IN_QUERY = ("password", "sslpassword", "passfile", "sslkey")
_PREPARE = "prepare_threshold"
_ONLY_IN_PYTHON = ("autocommit", "context", "cursor_factory", "row_factory")
"""Arguments of psycopg's connect that a URL cannot give. In autocommit no change would be whole."""

_WAITED = "Try again. If it stays so, pg_stat_activity of the server shows which one it is."
_LOCAL = "Put the home folder on a local disk, name another file by state_url, or use PostgreSQL."


def insert_of(tx: Connection, table: Table) -> Any:
    """An INSERT that can say what becomes of rows that are there already: each dialect has its own."""
    if tx.dialect.name == _POSTGRES:
        from sqlalchemy.dialects import postgresql  # Takes some 50 ms, which users of SQLite are spared.

        return postgresql.insert(table)
    return sqlite.insert(table)


class DatabaseCondition(NamedTuple):
    """The condition of a database that can be written.

    `version` is that of its tables, 0 where it has none yet, and `newest_version` the one that this code makes.
    `clock_ahead_seconds` is None for a database that uses the clock of this machine.
    """

    version: int
    newest_version: int
    clock_ahead_seconds: float | None


class Database:
    """Opens transactions in one SQLite or PostgreSQL database.

    `clock` is for tests. Without one, SQLite uses this machine's clock, since it serves one machine. PostgreSQL uses
    its server's clock, so that machines whose clocks differ agree on when a lease expires.
    """

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._url = _checked_url(url)
        self._clock = clock
        self._engine_lock = threading.Lock()
        self._engine_of_process: tuple[int, Engine] | None = None

    def __str__(self) -> str:
        return self._url.difference_update_query(_SECRETS_IN_QUERY).render_as_string(hide_password=True)

    @property
    def file(self) -> Path | None:
        """The file of SQLite; None for a server."""
        return Path(self._url.database or "").absolute() if self._url.get_backend_name() == _SQLITE else None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read transaction, which sees one snapshot of the database."""
        with self._translating_errors(), self._engine().connect() as tx, tx.begin():
            try:
                yield tx
            finally:
                check_unchanged(tx, str(self))

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A write transaction, durable once the block has ended.

        Another process may have migrated the database since this one opened it, or somebody has restored an older copy.
        """
        with self._translating_errors(), _write_transaction(self._engine()) as tx:
            if (version := checked_version(tx)) != len(MIGRATIONS):
                self.close()
                raise StateUnavailable(
                    DOING,
                    f"{self}: its tables have version {version} since another copy of it was restored",
                    remedy="Try again: they are brought up to date then.",
                )
            yield tx

    def now(self, tx: Connection) -> datetime:
        if self._clock is not None:
            return self._clock()
        if tx.dialect.name == _POSTGRES:
            return tx.execute(select(func.clock_timestamp(type_=UtcTime))).scalar_one()
        return datetime.now(UTC)

    def condition(self) -> DatabaseCondition:
        """Looks at the database as it is, without creating or migrating it, and tries a write, which it takes back."""
        path = Path(self._url.database or "")
        if self._url.get_backend_name() == _SQLITE:
            self._check_disk(path)
            if not path.exists():
                self._try_new_file(path)
                return DatabaseCondition(0, len(MIGRATIONS), None)
        engine = self._new_engine()
        try:
            with self._translating_errors(), engine.connect().execution_options(writes=True) as tx:
                version = stored_version(tx)
                now = datetime.now(UTC)
                ahead = None if tx.dialect.name == _SQLITE else (self.now(tx) - now).total_seconds()
                if version:
                    tx.execute(update(schema_version).values(version=schema_version.c.version))
                else:
                    tx.execute(text("CREATE TABLE airbyte_proto_probe (number INTEGER)"))
                tx.rollback()
                return DatabaseCondition(version, len(MIGRATIONS), ahead)
        finally:
            engine.dispose()

    def close(self) -> None:
        """Closes the connections. The next call opens them again."""
        with self._engine_lock:
            if self._engine_of_process is not None and self._engine_of_process[0] == os.getpid():
                self._engine_of_process[1].dispose()
            self._engine_of_process = None

    def _engine(self) -> Engine:
        """The SQLAlchemy engine of this process. A forked child opens its own: it must not share a connection."""
        with self._engine_lock:
            if self._engine_of_process is not None and self._engine_of_process[0] == os.getpid():
                return self._engine_of_process[1]
            if self._engine_of_process is not None:
                self._engine_of_process[1].dispose(close=False)
            engine = self._open()
            self._engine_of_process = (os.getpid(), engine)
            return engine

    def _open(self) -> Engine:
        if self._url.get_backend_name() == _SQLITE:
            self._create_file(Path(self._url.database or ""))
        engine = self._new_engine()
        waits_until = time.monotonic() + _MIGRATION_SECONDS
        while not (_has_current_tables(engine) or _migrated(engine)):
            if time.monotonic() > waits_until:
                found = f"{self}: another process has brought its tables up to date for {_MIGRATION_SECONDS} seconds"
                raise StateUnavailable(DOING, found, remedy=_WAITED)
            time.sleep(_MIGRATION_POLL_SECONDS)
        return engine

    def _new_engine(self) -> Engine:
        if self._url.get_backend_name() == _SQLITE:
            return sqlite_engine(Path(self._url.database or ""), self._lock_timeout_seconds())
        return self._postgres_engine()

    def _create_file(self, path: Path) -> None:
        """Creates the file, readable only by its owner since stored configs hold secrets. SQLite gives its side files
        the same mode."""
        self._check_disk(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # An existing file must not be opened here: POSIX locks belong to the process, so closing a second
            # descriptor would drop the locks that SQLite holds on the first one.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            if not path.is_file():
                raise self._config_error(f"{path} is no file", "Name another state_url.") from None
        except OSError as error:
            raise self._creation_error(path, error) from error

    def _check_disk(self, path: Path) -> None:
        if kind := network_file_system(path, psutil.disk_partitions(all=True)):
            raise self._config_error(
                f"{path} is on a network file system ({kind}), where two machines corrupt it", _LOCAL
            )

    def _try_new_file(self, path: Path) -> None:
        """Raises ConfigError if the file could not be created."""
        try:
            with tempfile.TemporaryFile(dir=next(folder for folder in path.absolute().parents if folder.exists())):
                pass
        except OSError as error:
            raise self._creation_error(path, error) from error

    def _creation_error(self, path: Path, error: OSError) -> ConfigError:
        return self._config_error(f"cannot create {path}: {error.strerror}", MAKE_WRITABLE)

    def _lock_timeout_seconds(self) -> float:
        """The seconds that SQLite waits for a lock: `?timeout=` in the URL, as in SQLAlchemy's own URLs."""
        try:
            return float(str(self._url.query.get("timeout", _TIMEOUT_SECONDS)))
        except ValueError as error:
            raise self._config_error("timeout is no number of seconds", _URLS) from error

    def _postgres_engine(self) -> Engine:
        # A database that was created without a locale has no encoding (SQL_ASCII): without `client_encoding` its text
        # would arrive as bytes.
        arguments = {
            "client_encoding": "utf8",
            "connect_timeout": _TIMEOUT_SECONDS,
            "tcp_user_timeout": _TIMEOUT_SECONDS * 1000,
            # Only unacknowledged bytes count for the line before. A call that waits for its answer has none.
            "keepalives_idle": _TIMEOUT_SECONDS,
            "keepalives_interval": _TIMEOUT_SECONDS // 2,
            "keepalives_count": 3,
        }
        connect_args = {name: value for name, value in arguments.items() if name not in self._url.query}
        if _PREPARE in self._url.query:
            connect_args[_PREPARE] = self._prepare_threshold()
        try:
            from dagster_airbyte_proto.checkpoints.postgres_calls import bounded_engine  # Its driver is optional.

            return bounded_engine(self._url, connect_args)
        except (NoSuchModuleError, ModuleNotFoundError) as error:
            raise self._config_error(
                "its driver is not installed", "pip install 'dagster_airbyte_proto[postgres]'"
            ) from error

    def _prepare_threshold(self) -> int | None:
        """After how many times a statement is prepared on the server; None for never."""
        written = str(self._url.query[_PREPARE])
        if written.lower() in ("", "none"):
            return None
        if not written.isdecimal():
            raise self._config_error(f"{_PREPARE} is no whole number, and not none", _URLS)
        return int(written)

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise database_error(error, str(self), Path(self._url.database or "")) from error
        except PoolTimeoutError as error:
            raise StateUnavailable(DOING, f"{self}: no connection became free", remedy="Try again.") from error

    def _config_error(self, found: str, remedy: str) -> ConfigError:
        return ConfigError(DOING, f"{self}: {found}", remedy=remedy)


def _checked_url(text: str) -> URL:
    try:
        url = make_url(text)
        name = url.get_backend_name()
    except (ArgumentError, ValueError):
        # The message leaves out the text, and is not chained: what of a URL does not parse may be of its password.
        raise ConfigError("reading state_url", "it is no database URL", remedy=_URLS) from None
    if name == _SQLITE:
        if not url.database or url.database.startswith((":memory:", "file:")):
            raise ConfigError(
                "reading state_url", "it names no file, and the state must outlive the process", remedy=_URLS
            )
        return url.set(drivername="sqlite+pysqlite", database=sqlite_path(text) or url.database)
    if name == _POSTGRES:
        # Behind the user's name, which may have one too, the password ends at the first.
        behind = text.partition("://")[2].partition(":")[2].partition("@")[2].partition("?")[0]
        if url.password is not None and "@" in behind:
            found = 'its password seems to have an "@", at which it ends: the rest of it would be shown, as the host'
            raise ConfigError("reading state_url", found, remedy='Write %40 for each "@" of it, and %25 for each "%".')
        if wrong := [each for each in _ONLY_IN_PYTHON if each in url.query]:
            found = f"it sets {' and '.join(wrong)}, which are no options of a connection to PostgreSQL"
            raise ConfigError("reading state_url", found, remedy="Leave that out.")
        return url.set(drivername="postgresql+psycopg")
    raise ConfigError("reading state_url", f"there is no state store for {name}", remedy=_URLS)


def _has_current_tables(engine: Engine) -> bool:
    with engine.connect() as tx, tx.begin():
        return is_current(tx)


def _migrated(engine: Engine) -> bool:
    """Brings the tables up to date. False where another process does it just now: fifty that begin at once would wait
    for each other's looks, one after the other, for longer than a lock is waited for."""
    with _write_transaction(engine) as tx:
        if tx.dialect.name == _POSTGRES and not tx.scalar(select(func.pg_try_advisory_xact_lock(_MIGRATION_LOCK))):
            return False
        if not is_current(tx):
            migrate(tx)
        return True


@contextmanager
def _write_transaction(engine: Engine) -> Iterator[Connection]:
    with engine.connect().execution_options(writes=True) as tx, tx.begin():
        if tx.dialect.name == _POSTGRES:
            # A client that stopped in its transaction must lose it before those that wait for its lock give up.
            limits = {"lock_timeout": _TIMEOUT_SECONDS, "idle_in_transaction_session_timeout": _TIMEOUT_SECONDS // 2}
            # What is committed survives a crash of the server, also of one that would answer before it is on its disk.
            level = func.current_setting(_COMMIT_LEVEL)
            durable = func.set_config(_COMMIT_LEVEL, case((level == "off", "on"), else_=level), True)
            timeouts = (func.set_config(name, f"{seconds}s", True) for name, seconds in limits.items())
            tx.execute(select(durable, *timeouts))
        yield tx
