"""TCP for a connector, through us: the only network that it has.

A host must be permitted by its name, and each address by itself. The name is looked up once: the address that was
checked is the one that is connected to, so a name that leads elsewhere a moment later changes nothing.

Reads and writes do not block. They wait a little, though: a connector that gets `would-block` only asks again.

Descriptors belong to our whole process, in which other connectors run too. So a socket is refused once few are left.
"""

import errno
import resource
import select
import socket
import time
from contextlib import suppress
from typing import Any

from dagster_airbyte_proto.launchers.wasm.host.refusals import passing_refusal, refusal
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import Tagged
from dagster_airbyte_proto.protocols.rapidbyte.grants import HostRule, plain_host
from dagster_airbyte_proto.protocols.rapidbyte.reported_error import ErrorCategory

CONNECT_SECONDS = 10.0
MAX_READ_BYTES = 64 << 10
MAX_SOCKETS = 256
_WAIT_MILLISECONDS = 20
_WOULD_BLOCK = Tagged("would-block")
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class HostSockets:
    """The sockets of one connector, by their handles. Methods raise CallRefused."""

    def __init__(self, rule: HostRule) -> None:
        self._rule = rule
        self._sockets: dict[int, socket.socket] = {}
        self._next_handle = 1

    def connect(self, host: str, port: int) -> int:
        if len(self._sockets) >= MAX_SOCKETS:
            raise refusal(ErrorCategory.PERMISSION, "TOO_MANY_SOCKETS", f"{MAX_SOCKETS} sockets are open")
        if not self._rule.permits(host, port):
            raise refusal(
                ErrorCategory.PERMISSION, "NETWORK_DENIED", f"port {port} of host {host[:255]} is not allowed"
            )
        found = _addresses(host, port)
        permitted = [each for each in found if self._permits(host, port, each)]
        if not permitted:
            message = f"host {host} leads to an address of this machine or its link, which only the user may allow"
            raise refusal(ErrorCategory.PERMISSION, "NETWORK_DENIED", message)
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._sockets[handle] = _connected(permitted, host)
        return handle

    def read(self, handle: int, count: int) -> Tagged:
        found = self._socket(handle)
        if not count or not _is_ready(found, select.POLLIN):
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
        if not _is_ready(found, select.POLLOUT):
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
        for handle in tuple(self._sockets):
            self.close(handle)

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


def _is_ready(found: socket.socket, event: int) -> bool:
    # Not `select`, which fails for a descriptor of 1,024 and more.
    poll = select.poll()
    poll.register(found, event)
    return bool(poll.poll(_WAIT_MILLISECONDS))


def _addresses(host: str, port: int) -> list[Any]:
    """The addresses of a host, as `socket.getaddrinfo` has them."""
    try:
        return socket.getaddrinfo(plain_host(host), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, ValueError) as error:
        raise passing_refusal("DNS_RESOLUTION_FAILED", f"host {host[:255]}: {error}") from error


def _is_of_this_machine(family: int, address: Any) -> bool:
    """True for an address that a socket can be bound to: one of a network card or a bridge of ours. Raises a refusal
    that passes where the host has no room for a socket."""
    try:
        with _new_socket(family, socket.SOCK_DGRAM) as made:
            made.bind((address[0], 0, *address[2:]))
    except OSError as error:
        if error.errno in _SHORTAGES:
            raise passing_refusal("TCP_CONNECT_FAILED", f"host {address[0]}: {error}") from error
        return error.errno != errno.EADDRNOTAVAIL
    return True


def _new_socket(family: int, kind: int, protocol: int = 0) -> socket.socket:
    """Raises OSError, also where few descriptors are left: the lowest free number is given, so as many are in use."""
    made = socket.socket(family, kind, protocol)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and made.fileno() >= most * 3 // 4:
        made.close()
        raise OSError(errno.EMFILE, "the host has too many open files")
    return made


def _connected(addresses: list[Any], host: str) -> socket.socket:
    deadline = time.monotonic() + CONNECT_SECONDS
    failure: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        try:
            made = _new_socket(family, kind, protocol)
        except OSError as error:
            failure = error
            continue
        try:
            made.settimeout(max(0.001, deadline - time.monotonic()))
            made.connect(address)
            made.setblocking(False)
            with suppress(OSError):
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made
        except OSError as error:
            made.close()
            failure = error
    raise passing_refusal("TCP_CONNECT_FAILED", f"host {host}: {failure}") from failure
