"""A PostgreSQL server of the tests' own: in a folder of its own, gone afterwards. It is asked by a socket in there; for
Java, which knows no such sockets, it also listens on a port of this machine."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg

from tests.support.network.ports import free_port

_STARTS_WITHIN_SECONDS = 60


class PostgresServer:
    """Makes one empty place after the other."""

    def __init__(self, bin_folder: Path, socket_folder: Path, port: int) -> None:
        self.bin_folder = bin_folder
        self._socket_folder = socket_folder
        self.port = port

    def new_store(self) -> str:
        """The URL of a database that looks empty. A schema takes a millisecond to make, a database many and 7 MB."""
        return self.url_of(self.new_schema())

    def new_schema(self) -> str:
        name = f"t{uuid4().hex}"
        self.ask(f"CREATE SCHEMA {name}")
        return name

    def url_of(self, schema: str, *, port: int | None = None) -> str:
        """The URL of a schema: by the server's socket, or by another port of this machine."""
        place = f"host={self._socket_folder}&port={self.port}" if port is None else f"host=127.0.0.1&port={port}"
        return f"postgresql://tester@/postgres?{place}&options=-csearch_path%3D{schema}"

    def ask(self, sql: str) -> str:
        """Runs SQL, and returns the first value of the answer as text."""
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            found = connection.execute(sql.encode())
            row = found.fetchone() if found.description else None
        return str(row[0]) if row else ""

    def jdbc_uri(self, password: str = "") -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=tester&password={password}"

    def conninfo(self) -> str:
        return f"host={self._socket_folder} port={self.port} user=tester dbname=postgres"


def programs() -> Path | None:
    """The folder of initdb and postgres: the newest in Debian's place, or that on the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@contextmanager
def running_server(bin_folder: Path) -> Iterator[PostgresServer]:
    initdb = [f"{bin_folder}/initdb", "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync"]
    with _folder_made_by(initdb) as folder, _serving(bin_folder, folder) as started:
        yield started


class PostgresStandby(PostgresServer):
    """A server that follows another one, until it is told not to."""

    def has_replayed(self, first: PostgresServer) -> bool:
        """True once it has all that the first one has now."""
        now = first.ask("SELECT pg_current_wal_flush_lsn()")
        return self.ask(f"SELECT pg_last_wal_replay_lsn() >= '{now}'") == "True"

    def stop_following(self) -> None:
        self.ask("ALTER SYSTEM SET primary_conninfo = ''")
        self.ask("SELECT pg_reload_conf()")
        deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
        while self.ask("SELECT count(*) FROM pg_stat_wal_receiver") != "0":
            assert time.monotonic() < deadline, "it follows still"
            time.sleep(0.05)

    def promote(self) -> None:
        assert self.ask("SELECT pg_promote()") == "True"


@contextmanager
def running_standby(first: PostgresServer) -> Iterator[PostgresStandby]:
    """A standby of a running server."""
    copy = [f"{first.bin_folder}/pg_basebackup", "-d", first.conninfo(), "-R", "--no-sync", "--checkpoint=fast"]
    with _folder_made_by(copy) as folder, _serving(first.bin_folder, folder) as started:
        yield PostgresStandby(first.bin_folder, folder, started.port)


@contextmanager
def _folder_made_by(command: list[str]) -> Iterator[Path]:
    """A folder in which a program has made the data of a server."""
    # Not in pytest's own folder: that is closed to the user whom the server runs as, and its path may be too long
    # for a socket.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    user, group = _server_user()
    if user is not None and group is not None:
        os.chown(folder, user, group)
    try:
        data = ["-D", f"{folder}/data"]
        subprocess.run([*command, *data], check=True, capture_output=True, cwd=folder, user=user, group=group)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _serving(bin_folder: Path, folder: Path) -> Iterator[PostgresServer]:
    """A server on the data in a folder."""
    user, group = _server_user()
    # Far from UTC, so that a time which is taken for another zone's does not pass.
    port = free_port()
    settings = ["-c", "listen_addresses=127.0.0.1", "-p", f"{port}", "-c", "timezone=Asia/Kolkata"]
    settings += ["-c", "wal_level=logical"]  # connectors read its log
    command = [f"{bin_folder}/postgres", "-F", "-D", f"{folder}/data", "-k", f"{folder}", *settings]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, user=user, group=group)
    try:
        started = PostgresServer(bin_folder, folder, port)
        _wait_until_it_answers(started, server, folder / "log")
        yield started
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait(30)


def _server_user() -> tuple[int, int] | tuple[None, None]:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None, None
    user = pwd.getpwnam("postgres")
    return user.pw_uid, user.pw_gid


def _wait_until_it_answers(started: PostgresServer, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
    while True:
        try:
            psycopg.connect(started.conninfo()).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the server did not start: {log.read_text()}") from None
            time.sleep(0.05)
