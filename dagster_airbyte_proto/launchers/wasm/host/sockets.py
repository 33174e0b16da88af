"""TCP for a connector, through us: the only network that it has.

A host must be permitted by its name, and each address by itself. The name is looked up once: the address that was
checked is the one that is connected to, so a name that leads elsewhere a moment later changes nothing.

A connection is made while others are served (`connecting.py`). Reads and writes do not block. They wait a little,
though: a connector that gets `would-block` only asks again.

Descriptors belong to our whole process, in which other connectors run too. So a socket is refused once few are left.
"""

import errno
import select
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any

from dagster_airbyte_proto.launchers.wasm.host.connecting import Connecting, is_ready, new_socket
from dagster_airbyte_proto.launchers.wasm.host.refusals import CallRefused, passing_refusal, refusal
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import Tagged
from dagster_airbyte_proto.protocols.rapidbyte.grants import HostRule
from dagster_airbyte_proto.protocols.rapidbyte.reported_error import ErrorCategory

MAX_READ_BYTES = 64 << 10
MAX_SOCKETS = 256
MAX_LOOKUPS = 8
"""Names that are looked up at once: a connector that is refused after ten seconds may go on with the next name, while
the resolver still has the one before."""
_WAIT_SECONDS = 0.02
_WOULD_BLOCK = Tagged("would-block")
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class HostSockets:
    """The sockets of one connector, by their handles. Methods raise CallRefused."""

    def __init__(self, rule: HostRule) -> None:
        self._rule = rule
        self._sockets: dict[int, socket.socket] = {}
        self._next_handle = 1
        self._connecting: Connecting | CallRefused | None = None
        self._lookups: list[Connecting] = []

    def is_connecting(self, host: str, port: int, seconds: float) -> bool:
        """Begins to connect, or goes on with it, for so many seconds. False once `connect` has its answer."""
        if self._connecting is None:
            try:
                self._connecting = self._begun(host, port)
            except CallRefused as refused:
                self._connecting = refused
        return isinstance(self._connecting, Connecting) and self._connecting.is_under_way(seconds)

    def connect(self, host: str, port: int) -> int:
        """Waits for what is left to do."""
        self.is_connecting(host, port, 0.0)
        connecting, self._connecting = self._connecting, None
        if not isinstance(connecting, Connecting):
            assert connecting is not None
            raise connecting
        made = connecting.result()
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._sockets[handle] = made
        return handle

    def read(self, handle: int, count: int) -> Tagged:
        found = self._socket(handle)
        if not count or not is_ready(found, select.POLLIN, _WAIT_SECONDS):
            return _WOULD_BLOCK
        try:
            data = found.recv(min(count, MAX_READ_BYTES))
        except BlockingIOError:
            return _WOULD_BLOCK
        except OSError as error:
            raise passing_refusal("SOCKET_READ_FAILED", error.strerror or str(error)) from error
        return Tagged("data", data) if data else Tagged("eof")

    def write(self, handle: int, data: bytes) -> Tagged:
        found = self._socket(handle)
        if not is_ready(found, select.POLLOUT, _WAIT_SECONDS):
            return _WOULD_BLOCK
        try:
            return Tagged("written", found.send(data))
        except BlockingIOError:
            return _WOULD_BLOCK
        except OSError as error:
            raise passing_refusal("SOCKET_WRITE_FAILED", error.strerror or str(error)) from error

    def close(self, handle: int) -> None:
        """Safe for a handle that is none."""
        found = self._sockets.pop(handle, None)
        if found is not None:
            found.close()

    def close_all(self) -> None:
        if isinstance(self._connecting, Connecting):
            self._connecting.close()
        for handle in tuple(self._sockets):
            self.close(handle)

    def _begun(self, host: str, port: int) -> Connecting:
        if len(self._sockets) >= MAX_SOCKETS:
            raise refusal(ErrorCategory.PERMISSION, "TOO_MANY_SOCKETS", f"{MAX_SOCKETS} sockets are open")
        if not self._rule.permits(host, port):
            raise refusal(
                ErrorCategory.PERMISSION, "NETWORK_DENIED", f"port {port} of host {host[:255]} is not allowed"
            )
        self._lookups = [each for each in self._lookups if each.is_looking_up]
        if len(self._lookups) >= MAX_LOOKUPS:
            found = f"host {host[:255]}: {MAX_LOOKUPS} names are still being looked up"
            raise passing_refusal("DNS_RESOLUTION_FAILED", found)
        begun = Connecting(host, port, partial(self._permitted, host, port))
        self._lookups.append(begun)
        return begun

    def _permitted(self, host: str, port: int, found: Sequence[Any]) -> Sequence[Any]:
        permitted = [each for each in found if self._permits(host, port, each)]
        if not permitted:
            message = f"host {host} leads to an address of this machine or its link, which only the user may allow"
            raise refusal(ErrorCategory.PERMISSION, "NETWORK_DENIED", message)
        return permitted

    def _permits(self, host: str, port: int, found: Any) -> bool:
        family, _, _, _, address = found
        if self._rule.is_written_by_user(host, port):
            return True
        return self._rule.permits_address(host, port, address[0]) and not _is_of_this_machine(family, address)

    def _socket(self, handle: int) -> socket.socket:
        found = self._sockets.get(handle)
        if found is None:
            raise refusal(ErrorCategory.INTERNAL, "INVALID_SOCKET", f"invalid socket handle: {handle}")
        return found


def _is_of_this_machine(family: int, address: Any) -> bool:
    """True for an address that a socket can be bound to: one of a network card or a bridge of ours. Raises a refusal
    that passes where the host has no room for a socket."""
    try:
        with new_socket(family, socket.SOCK_DGRAM) as made:
            made.bind((address[0], 0, *address[2:]))
    except OSError as error:
        if error.errno in _SHORTAGES:
            raise passing_refusal("TCP_CONNECT_FAILED", f"host {address[0]}: {error}") from error
        return error.errno != errno.EADDRNOTAVAIL
    return True
