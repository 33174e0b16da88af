"""The driver's side of the channel: answers the calls of the syncs that run on executors.

- TLS with a certificate of this process, and a token for each sync: whoever has neither is not answered.
- A token opens the state, the tables and the events of one connection, and dies with its sync.
"""

import errno
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import msgspec

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.sync.cluster.driver_identity import new_identity
from dagster_airbyte_proto.sync.cluster.frames import keep_alive, receive_frame, send_frame
from dagster_airbyte_proto.sync.cluster.remote_calls import Access, Greeting, RemoteCall, RemoteResult, package_version
from dagster_airbyte_proto.sync.cluster.values import RemoteMethods, as_remote, decoder, encoded

_GREETING_SECONDS = 10.0
_MAX_GREETING_BYTES = 1024
_MAX_STRANGERS = 64
"""So many connections may be open that have not shown a token yet."""
_MORE_PORTS, _LAST_PORT = 16, 65_535

_GREETINGS = decoder(Greeting)
_CALLS = decoder(RemoteCall)


class RemoteObject(NamedTuple):
    """An object of the driver whose methods tasks may call. `open` returns it for an attempt of a task."""

    methods: RemoteMethods
    open: Callable[[int], Any]


class ServedSync(Protocol):
    """The objects that the task of one sync may call, by their names."""

    @property
    def served(self) -> Mapping[str, RemoteObject]: ...


class Channel:
    """A server for the tasks of one driver. Enter it to listen."""

    def __init__(self, host: str, bind: str, port: int = 0) -> None:
        self._host = host
        self._identity = new_identity()
        self._syncs: dict[str, ServedSync] = {}
        self._strangers = threading.BoundedSemaphore(_MAX_STRANGERS)
        self._connections: set[socket.socket] = set()
        try:
            self._listener = _listening(bind, port)
        except OSError as error:
            raise ConfigError(
                "opening the channel to executors",
                f"cannot listen at {bind}:{port}: {error.strerror or error}",
                remedy="Set spark.driver.bindAddress to an address of this machine.",
            ) from error

    def __enter__(self) -> "Channel":
        threading.Thread(target=self._accept, name="channel", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._syncs.clear()
        # Closing alone would not wake the thread that accepts.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._connections):
            _close(connection)

    def admit(self, sync: ServedSync) -> Access:
        """Returns the access of a new sync."""
        token = secrets.token_urlsafe(32)
        self._syncs[token] = sync
        return Access(self._host, self._listener.getsockname()[1], token, self._identity.certificate, package_version())

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if not self._strangers.acquire(blocking=False):
                _close(connection)
                continue
            threading.Thread(target=self._serve, args=(connection,), name="executor", daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        connection = plain
        try:
            try:
                plain.settimeout(_GREETING_SECONDS)
                keep_alive(plain)
                connection = self._identity.context.wrap_socket(plain, server_side=True)
                greeting: Greeting = _GREETINGS.decode(receive_frame(connection, _MAX_GREETING_BYTES))
            finally:
                self._strangers.release()
            self._connections.add(connection)
            connection.settimeout(None)
            # Looked up for each call: a token may have died since.
            while greeting.token in self._syncs:
                call: RemoteCall = _CALLS.decode(receive_frame(connection))
                if (sync := self._syncs.get(greeting.token)) is not None:
                    send_frame(connection, _answer(sync.served, call, greeting.attempt))
        except (OSError, msgspec.MsgspecError):
            pass
        finally:
            self._connections.discard(connection)
            _close(connection)


def _answer(served: Mapping[str, RemoteObject], call: RemoteCall, attempt: int) -> bytes:
    try:
        return encoded(_result(served, call, attempt))
    except Exception as error:  # noqa: BLE001 - the edge of a thread: without an answer the call would be made again
        return encoded(RemoteResult(error=as_remote(error)))


def _result(served: Mapping[str, RemoteObject], call: RemoteCall, attempt: int) -> RemoteResult:
    try:
        methods, open_target = served[call.target]
        arguments = methods.arguments(call.method, call.arguments)
        answer = getattr(open_target(attempt), call.method)(**arguments)
        return RemoteResult(methods.encoded_answer(call.method, answer))
    except BaseException as error:  # noqa: BLE001 - the edge of a thread: raised again where the call came from
        return RemoteResult(error=as_remote(error))


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.close()


def _listening(bind: str, port: int) -> socket.socket:
    """Listens at a port, or at a free one of the sixteen behind it, as Spark does with its own: several syncs of one
    machine may have the same setting. Raises OSError."""
    last = min(port + _MORE_PORTS, _LAST_PORT) if port else 0
    while True:
        try:
            return socket.create_server((bind, port), backlog=128)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port >= last:
                raise
            port += 1
