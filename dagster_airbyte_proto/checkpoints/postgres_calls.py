"""Connections to PostgreSQL whose calls do not wait for ever.

TCP notices a machine that is gone (`tcp_user_timeout`, keepalives). It does not notice a server that hangs on a machine
that goes on acknowledging bytes, nor one behind a proxy. The outcome of a call without an answer is unknown, as it is
where a connection breaks: the transaction is lost, or committed if its COMMIT was the call. Whoever repeats it has to
reckon with both.

A server that has let in a connection, and lets in no other, most likely starts again, fails over to another machine, or
has no free one. So it is waited for: nothing of the transaction was sent by then, and no sync of hours ends because its
database was patched. The first connection is not waited for: the URL may be wrong.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import URL, Engine, create_engine, event

_Answer = TypeVar("_Answer")

_AWAY_SECONDS = 60.0
"""A server is waited for so long, once for all calls of that time."""
_PAUSE_SECONDS = 0.5


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed, with an OperationalError, once the server has sent nothing for `silent_seconds` of a
    call. That is far longer than any statement of the store takes."""

    silent_seconds = 120.0

    def wait(self, gen: PQGen[_Answer], *args: Any, **options: Any) -> _Answer:
        return super().wait(self._bounded(gen), *args, **options)

    def _bounded(self, call: PQGen[_Answer]) -> PQGen[_Answer]:
        deadline = time.monotonic() + self.silent_seconds
        try:
            wanted = next(call)
            while True:
                # psycopg (from 3.2 on) resumes the call some ten times a second, also where nothing has come.
                ready = yield wanted
                if ready:
                    deadline = time.monotonic() + self.silent_seconds
                elif time.monotonic() > deadline:
                    self.close()
                    raise psycopg.OperationalError(f"the server sent no answer for {self.silent_seconds:.0f} s")
                wanted = call.send(ready)
        except StopIteration as ended:
            answer: _Answer = ended.value
            return answer


class _Reconnector:
    """Opens the connections of one engine, and waits for a server that was there before."""

    def __init__(self) -> None:
        self._was_there = False
        self._away_since: float | None = None

    def open(self, connect: Callable[[], BoundedConnection]) -> BoundedConnection:
        while True:
            try:
                connection = connect()
            except psycopg.OperationalError:
                now = time.monotonic()
                self._away_since = away_since = self._away_since or now
                if not self._was_there or now - away_since > _AWAY_SECONDS:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                self._was_there, self._away_since = True, None
                return connection


def bounded_engine(url: URL, connect_args: Mapping[str, Any]) -> Engine:
    """An engine of such connections."""
    # One stays open, and others come and go with their transactions: a server has a hundred by default, and 50
    # processes with two each were refused.
    #
    # Nothing is prepared on the server. A pooler between (PgBouncer in transaction mode, those of hosted databases) may
    # give each transaction to another session of the server, which does not know a statement that was prepared before.
    options = {"prepare_threshold": None, **connect_args}
    # Whatever level the server, the database or the role has as its default. A writer first waits for the lock of its
    # connection, and then has to read what the one before it has written: at a higher level it would be refused.
    level = "READ COMMITTED"
    # Whoever waits for a connection of the pool may wait for the server too.
    engine = create_engine(
        url,
        hide_parameters=True,
        pool_pre_ping=True,
        pool_size=1,
        pool_timeout=_AWAY_SECONDS,
        isolation_level=level,
        connect_args=options,
    )
    reconnector = _Reconnector()

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, args: list[Any], options: dict[str, Any]) -> BoundedConnection:
        return reconnector.open(partial(BoundedConnection.connect, *args, **options))

    return engine
