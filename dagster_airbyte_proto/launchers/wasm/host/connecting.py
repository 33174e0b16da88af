"""A connection of a component on its way: a name that is looked up, then its addresses, one after the other.

Nothing here waits longer than it is let: whoever drives the component has others to look after, and may be cancelled.

- A resolver takes as long as it likes, and no call ends it. So a name is looked up in a thread of its own, which ends
  with the resolver, long after its answer was of use.
- Each address gets its share of the time. One that never answers (IPv6 where there is no way for it) must not take that
  of the next, which would have.
"""

import errno
import os
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from dagster_airbyte_proto.launchers.wasm.host.refusals import CallRefused, passing_refusal
from dagster_airbyte_proto.protocols.rapidbyte.grants import plain_host

LOOKUP_SECONDS = 10.0
CONNECT_SECONDS = 10.0
_STEP_SECONDS = 0.25
_UNDER_WAY = (errno.EINPROGRESS, errno.EALREADY)

_Wait = Callable[[float], object]
_Addresses = Sequence[Any]
"""As `socket.getaddrinfo` has them."""


class Connecting:
    """One connection to a port of a host. `permitted` returns those of its addresses that it may lead to."""

    def __init__(self, host: str, port: int, permitted: Callable[[_Addresses], _Addresses]) -> None:
        self._lookup = _Lookup(host, port)
        self._steps = _steps(host, self._lookup, permitted)
        self._wait: _Wait = self._lookup.wait
        self._found: socket.socket | CallRefused | None = None

    @property
    def is_looking_up(self) -> bool:
        """True while the resolver has its name, also when nobody waits for it any more."""
        return not self._lookup.is_done

    def is_under_way(self, seconds: float) -> bool:
        """Waits for it, up to so many seconds. False once it has come to an end."""
        until = time.monotonic() + seconds
        while self._found is None:
            self._wait(max(0.0, until - time.monotonic()))
            try:
                self._wait = next(self._steps)
            except StopIteration as end:
                self._found = end.value
            except CallRefused as refused:
                self._found = refused
            else:
                if time.monotonic() >= until:
                    return True
        return False

    def result(self) -> socket.socket:
        """Returns the socket, which does not block. Waits for what is left to do. Raises CallRefused."""
        while self.is_under_way(_STEP_SECONDS):
            pass
        assert self._found is not None
        if isinstance(self._found, CallRefused):
            raise self._found
        return self._found

    def close(self) -> None:
        """Gives it up, and closes its socket."""
        self._steps.close()
        if isinstance(self._found, socket.socket):
            self._found.close()


class _Lookup:
    """The addresses of a host, looked up in a thread."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._has_ended = threading.Event()
        self._addresses: _Addresses = ()
        self._failure: BaseException | None = None
        try:
            threading.Thread(target=self._look_up, name="component-lookup", daemon=True).start()
        except RuntimeError as error:  # The host has no room for a thread.
            self._failure = error
            self._has_ended.set()

    @property
    def is_done(self) -> bool:
        return self._has_ended.is_set()

    def wait(self, seconds: float) -> None:
        self._has_ended.wait(seconds)

    def addresses(self) -> _Addresses:
        """Raises a refusal that passes if they cannot be found."""
        if self._failure is not None:
            raise _no_address(self._host, self._failure) from self._failure
        return self._addresses

    def _look_up(self) -> None:
        try:
            self._addresses = socket.getaddrinfo(plain_host(self._host), self._port, type=socket.SOCK_STREAM)
        except Exception as error:  # noqa: BLE001 - the edge of a thread: raised by `addresses`
            self._failure = error
        finally:
            self._has_ended.set()


def _steps(
    host: str, lookup: _Lookup, permitted: Callable[[_Addresses], _Addresses]
) -> Generator[_Wait, None, socket.socket]:
    """The steps of a connection: each yields what to wait for. Raises CallRefused."""
    deadline = time.monotonic() + LOOKUP_SECONDS
    while not lookup.is_done:
        if time.monotonic() >= deadline:
            raise _no_address(host, f"no answer within {LOOKUP_SECONDS:g} s")
        yield lookup.wait
    addresses = permitted(lookup.addresses())
    deadline = time.monotonic() + CONNECT_SECONDS
    failure: OSError | None = None
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        left = max(0.0, deadline - time.monotonic())
        try:
            made = new_socket(family, kind, protocol)
        except OSError as error:
            failure = error
            continue
        is_connected = False
        try:
            yield from _connected(made, address, left / (len(addresses) - number))
            is_connected = True
            return made
        except OSError as error:
            failure = error
        finally:
            if not is_connected:
                made.close()
    raise passing_refusal("TCP_CONNECT_FAILED", f"host {host}: {failure}") from failure


def _connected(made: socket.socket, address: Any, seconds: float) -> Generator[_Wait, None, None]:
    """Connects a socket, within so many seconds. Raises OSError."""
    until = time.monotonic() + seconds
    made.setblocking(False)
    outcome = made.connect_ex(address)
    while outcome in _UNDER_WAY:
        if time.monotonic() >= until:
            raise TimeoutError(f"no answer within {seconds:.3g} s")
        yield partial(is_ready, made, select.POLLOUT)
        if is_ready(made, select.POLLOUT, 0.0):
            outcome = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if outcome:
        raise OSError(outcome, os.strerror(outcome))
    with suppress(OSError):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _no_address(host: str, found: object) -> CallRefused:
    return passing_refusal("DNS_RESOLUTION_FAILED", f"host {host[:255]}: {found}")


def is_ready(found: socket.socket, event: int, seconds: float) -> bool:
    """Waits until the socket is ready for that, up to so many seconds."""
    # Not `select`, which fails for a descriptor of 1,024 and more.
    poll = select.poll()
    poll.register(found, event)
    return bool(poll.poll(seconds * 1000))


def new_socket(family: int, kind: int, protocol: int = 0) -> socket.socket:
    """Raises OSError, also where few descriptors are left: the lowest free number is given, so as many are in use."""
    made = socket.socket(family, kind, protocol)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and made.fileno() >= most * 3 // 4:
        made.close()
        raise OSError(errno.EMFILE, "the host has too many open files")
    return made
