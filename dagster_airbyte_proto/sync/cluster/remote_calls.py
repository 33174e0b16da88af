"""The executor's side of the channel: stubs whose calls go to the driver.

A call that gets no answer is made again for a while. Of those that must not be repeated (`_ONCE`) only one that was not
sent is: no connection was to be had, or it broke before the whole request was out.
"""

import socket
import threading
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.errors import CommitUnknown, StateUnavailable
from dagster_airbyte_proto.sync.cluster.driver_identity import trusting
from dagster_airbyte_proto.sync.cluster.frames import keep_alive, receive_frame, send_frame
from dagster_airbyte_proto.sync.cluster.values import RemoteError, RemoteMethods, decoder, encoded, from_remote

_CONNECT_SECONDS = 20.0
_RETRY_FOR_SECONDS = 30.0
_RETRY_SECONDS = 0.5

_ONCE = frozenset((("store", "acquire"), ("tables", "commit")))
"""Calls that may have had their effect once they were sent, although no answer came: a lease that nobody knows of, a
commit."""


def package_version() -> str:
    """The version of this package; empty if it was not installed, but put on the path."""
    try:
        return version("dagster-airbyte-proto")
    except PackageNotFoundError:
        return ""


class Access(NamedTuple):
    """All that a task needs to reach its driver. The token is good for one sync, and ends with those that were started
    beside it: a task that starts anew has to hear that its sync has ended. `version` is the one of this package at the
    driver: both ends need the same. It is empty where nobody knows it."""

    host: str
    port: int
    token: str
    certificate: str
    version: str = ""

    def __repr__(self) -> str:
        return f"Access({self.host!r}, {self.port})"


class Greeting(msgspec.Struct, frozen=True):
    """The first message of a connection."""

    token: str
    attempt: int


class RemoteCall(msgspec.Struct, frozen=True, array_like=True):
    """A call of a method of one of the driver's objects."""

    target: str
    method: str
    arguments: bytes


class RemoteResult(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a call, or its error."""

    answer: bytes = b""
    error: RemoteError | None = None


_RESULTS = decoder(RemoteResult)


class DriverLink:
    """Calls to one driver, by one attempt of a task. Each thread has a connection of its own."""

    def __init__(self, access: Access, attempt: int) -> None:
        self._access = access
        self._greeting = encoded(Greeting(access.token, attempt))
        self._context = trusting(access.certificate)
        self._of_thread = threading.local()
        self._opened: list[socket.socket] = []

    def stub(self, target: str, *interfaces: type, **attributes: Any) -> Any:
        """Returns an object with the methods of these interfaces, each a call to the driver's `target`."""
        methods = RemoteMethods(*interfaces)
        calls = {name: _method(self, target, methods, name) for name in methods}
        return type(f"Remote_{target}", (), {**calls, **attributes})()

    def call(self, target: str, methods: RemoteMethods, name: str, arguments: bytes) -> Any:
        """Calls a method on the driver. Raises what it raised there, and StateUnavailable without an answer."""
        request = encoded(RemoteCall(target, name, arguments))
        deadline: float | None = None
        while True:
            was_sent = False
            try:
                connection = self._connected()
                send_frame(connection, request)
                was_sent = True
                result: RemoteResult = _RESULTS.decode(receive_frame(connection))
                break
            except OSError as error:
                self._drop()
                # From the first error on: the driver may think about a call for as long as it likes.
                deadline = deadline or time.monotonic() + _RETRY_FOR_SECONDS
                # A driver listens for as long as its tasks run: one that refuses is gone.
                is_gone = isinstance(error, ConnectionRefusedError)
                if is_gone or (was_sent and (target, name) in _ONCE) or time.monotonic() > deadline:
                    raise self._no_answer(target, error) from error
                time.sleep(_RETRY_SECONDS)
        if result.error is not None:
            raise from_remote(result.error)
        return methods.answer(name, result.answer)

    def close(self) -> None:
        for connection in self._opened:
            with suppress(OSError):
                connection.close()

    def _connected(self) -> socket.socket:
        connection: socket.socket | None = getattr(self._of_thread, "connection", None)
        if connection is None:
            place = self._access.host, self._access.port
            plain = socket.create_connection(place, _CONNECT_SECONDS)
            keep_alive(plain)
            connection = self._of_thread.connection = self._context.wrap_socket(plain)
            connection.settimeout(None)
            self._opened.append(connection)
            send_frame(connection, self._greeting)
        return connection

    def _drop(self) -> None:
        connection = getattr(self._of_thread, "connection", None)
        if connection is not None:
            self._of_thread.connection = None
            with suppress(OSError):
                connection.close()

    def _no_answer(self, target: str, error: OSError) -> StateUnavailable | CommitUnknown:
        doing = f"calling the driver at {self._access.host}:{self._access.port}"
        found = f"it does not answer: {error}"
        if target == "tables":
            return CommitUnknown(doing, found)
        remedy = "Is the driver alive, and can executors reach it there? Set spark.driver.host."
        return StateUnavailable(doing, found, remedy=remedy)


def _method(link: DriverLink, target: str, methods: RemoteMethods, name: str) -> Any:
    def call(_: object, *positional: Any, **named: Any) -> Any:
        return link.call(target, methods, name, methods.encoded_arguments(name, positional, named))

    call.__name__ = name
    return call
