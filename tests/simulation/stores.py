"""The state stores of simulated worlds, which can be set back: in the memory of this process, or in a file.

Each has the tables and statements of a real one. One in memory is for speed: in a file each transaction opens a
connection and closes it again.
"""

import sqlite3
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event

from dagster_airbyte_proto.checkpoints.sql.database import Clock, Database
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore

StoreCopy = Mapping[str, bytes]
"""The files of a store, by name."""


class SimulatedStore(SqlStore):
    """A store behind a URL, whose tables a test may change by hand."""

    def transaction(self) -> AbstractContextManager[Connection]:
        """A write transaction."""
        return self._database.write()

    def version(self) -> object:
        """Equal for two moments only if nothing was written between them."""
        return object()


class CopiedStore(SimulatedStore):
    """A store of which a whole copy can be made, to be set back to it."""

    @abstractmethod
    def copy(self) -> StoreCopy: ...

    @abstractmethod
    def set_back(self, copy: StoreCopy) -> None: ...


class StoreInMemory(CopiedStore):
    """A store in the memory of this process. Threads may share it: transactions wait for each other."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("sqlite:///of-memory.db", clock=clock)
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._database = _DatabaseOfConnection(self._connection, clock)
        self._times_set_back = 0

    @property
    def file(self) -> None:
        return None

    def copy(self) -> StoreCopy:
        return {"": self._connection.serialize()}

    def set_back(self, copy: StoreCopy) -> None:
        self._connection.deserialize(copy[""])
        self._times_set_back += 1

    def version(self) -> object:
        return self._times_set_back, self._connection.total_changes

    def close(self) -> None:
        self._connection.close()


class _DatabaseOfConnection(Database):
    """A database that one connection of SQLite has, and that ends with it."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        super().__init__("sqlite:///of-memory.db", clock)
        self._connection = connection
        connection.execute("PRAGMA foreign_keys=ON")

    def _create_file(self, path: Path) -> None:
        """Does nothing: there is no file."""

    def _new_engine(self) -> Engine:
        # The pool hands the connection to one transaction after the other. One that began within another, in the same
        # thread, would wait in vain.
        connection = self._connection
        engine = create_engine(
            "sqlite+pysqlite://",
            creator=lambda: connection,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            pool_reset_on_return=None,
        )

        @event.listens_for(engine, "begin")
        def _begin(tx: Connection) -> None:
            connection.execute("BEGIN")

        return engine


class StoreInFile(CopiedStore):
    """A store in a file that is set back under the running process, as people restore backups."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(f"sqlite:///{path}", clock=clock)
        self._files = [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm")]

    def copy(self) -> StoreCopy:
        return {file.name: file.read_bytes() for file in self._files[:2] if file.exists()}

    def set_back(self, copy: StoreCopy) -> None:
        for file in self._files:
            file.unlink(missing_ok=True)
            if file.name in copy:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(copy[file.name])
