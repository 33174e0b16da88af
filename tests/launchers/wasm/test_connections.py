"""Connections that take their time: a host or a resolver that does not answer holds up nobody but its component."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dagster_airbyte_proto.launchers.wasm.host import connecting
from dagster_airbyte_proto.launchers.wasm.host.refusals import CallRefused
from dagster_airbyte_proto.launchers.wasm.host.sockets import MAX_LOOKUPS, HostSockets
from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.protocols.rapidbyte.grants import HostRule
from tests.conformance.launcher import until
from tests.launchers.wasm.conftest import Component, invocation
from tests.sync.shop import descriptors

_DB = HostRule((), ("db.example.com",))
_Addresses = list[tuple[int, int, int, str, tuple[str, int]]]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port whose queue is full: the kernel answers nobody who connects to it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]
        for each in waiting:
            each.close()


@pytest.fixture
def silent_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names that a resolver got which does not answer before the test ends."""
    names: list[str] = []
    end = threading.Event()

    def found(host: str, *_: Any, **__: Any) -> _Addresses:
        names.append(host)
        end.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", found)
    yield names
    end.set()


def _leading_to(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def _refused(made: HostSockets, port: int) -> str:
    with pytest.raises(CallRefused) as refused:
        made.connect("db.example.com", port)
    return f"{refused.value.error.category}/{refused.value.error.code}: {refused.value.error.message}"


def test_a_host_that_does_not_answer_holds_up_no_reader_and_no_stop(source: Component, silent_port: int) -> None:
    _is_let_go(source, silent_port)


def test_a_resolver_that_does_not_answer_holds_up_no_reader_and_no_stop(
    source: Component, silent_resolver: list[str]
) -> None:
    _is_let_go(source, 5432)
    assert silent_resolver == ["localhost"]


def _is_let_go(source: Component, port: int) -> None:
    config = {"script": f"log 2 before;connect localhost {port}", "host": "localhost"}
    running = source.launcher().launch(invocation(Verb.READ, config), environment={})
    read: list[bytes | None] = []
    seconds: list[float] = []

    def read_on() -> None:
        while read[-1:] != [b""]:
            began = time.monotonic()
            read.append(running.read(0.05))
            seconds.append(time.monotonic() - began)

    reader = threading.Thread(target=read_on, daemon=True)
    reader.start()
    try:
        until(lambda: any(b"before" in (each or b"") for each in read), "it runs")
        until(lambda: read[-3:] == [None] * 3, "a read that brings nothing ends")
        assert all(each < connecting.CONNECT_SECONDS / 2 for each in seconds[-3:])
        began = time.monotonic()
    finally:
        running.stop()
    reader.join(5)
    assert not reader.is_alive()
    assert time.monotonic() - began < connecting.CONNECT_SECONDS / 2
    assert not any(b"connect " in (each or b"") for each in read)


def test_a_name_without_an_answer_is_refused_and_few_are_looked_up_at_once(
    silent_resolver: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "LOOKUP_SECONDS", 0.01)
    made = HostSockets(_DB)
    for _ in range(MAX_LOOKUPS):
        assert _refused(made, 1) == (
            "transient-network/DNS_RESOLUTION_FAILED: host db.example.com: no answer within 0.01 s"
        )
    assert "8 names are still being looked up" in _refused(made, 1)
    assert len(silent_resolver) == MAX_LOOKUPS


def test_an_address_that_does_not_answer_leaves_time_for_the_next(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "CONNECT_SECONDS", 1.0)
    made = HostSockets(_DB)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        _leading_to(monkeypatch, silent_port, listening.getsockname()[1])
        assert made.connect("db.example.com", 1) == 1
    _leading_to(monkeypatch, silent_port, silent_port)
    assert _refused(made, 1).startswith(
        "transient-network/TCP_CONNECT_FAILED: host db.example.com: no answer within 0."
    )
    made.close_all()


def test_a_connection_that_is_given_up_is_closed(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _leading_to(monkeypatch, silent_port)
    made = HostSockets(_DB)
    before = descriptors()
    assert made.is_connecting("db.example.com", 1, 0.2)
    [opened] = descriptors() - before
    made.close_all()
    assert opened not in descriptors()
