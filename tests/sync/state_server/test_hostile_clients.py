"""Clients of the state server who ask for too much, or take too slowly what they asked for."""

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dagster_airbyte_proto.checkpoints.deliveries import AcknowledgedRows
from dagster_airbyte_proto.checkpoints.kept_values import Asset, Key, ValueChanges
from dagster_airbyte_proto.launchers.process import OUR_MACHINE
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.state_server.pending_values import PendingValues
from dagster_airbyte_proto.sync.state_server.server import StateServer
from tests.sync.state_server.test_server import LIMITS, STREAM, Served

pytestmark = pytest.mark.timeout(300)

# The calls of both dialects but `state.set`, each with what it answers where there is no value.
_READ_OR_DROPPED: dict[str, Sequence[Any]] = {
    "state.get": ({},),
    "state.size": ({"size": 0},),
    "state.list": (b"", []),
    "state.del": ({},),
    "state.delete": ({"rowsDeleted": 0},),
    "state.deleteAll": ({"rowsDeleted": 0},),
    "state.deleteByPrefix": ({},),
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path)
    yield found
    found.server.close()


class PeakMemory:
    """The most memory that this process has had since the last call of `reset`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._peak()

    def grown_mebibytes(self) -> float:
        return (self._peak() - self._before) / 1024

    def _peak(self) -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1])


def _request(served: Served, method: str, length: int) -> bytes:
    head = f"POST {served.path}/{method} HTTP/1.1\r\nHost: {served.host}:{served.port}\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n".encode()


def _keep(served: Served, count: int, value: bytes) -> None:
    step = 10_000
    for start in range(0, count, step):
        changes: dict[Key, bytes | None] = {
            ("n", f"{number:07}"): value for number in range(start, min(start + step, count))
        }
        served.store.acknowledge_rows(
            served.lease, served.plan, AcknowledgedRows(1 + start // step, (), ValueChanges(changes))
        )


def test_a_slow_reader_holds_up_nobody_and_ends_with_the_server(served: Served) -> None:
    _keep(served, 5000, b'"%s"' % (b"x" * 900))
    before = set(threading.enumerate())
    slow = []
    for _ in range(8):
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect((served.host, served.port))
        body = b'{"prefix":["n"]}'
        raw.sendall(_request(served, "state.list", len(body)) + body)
        assert raw.recv(10)
        slow.append(raw)
    began_at = time.monotonic()
    for number in range(50):
        assert served.ask("state.set", {"key": ["other", str(number)], "value": 1}) == {}
    assert time.monotonic() - began_at < 30
    serving = set(threading.enumerate()) - before
    assert len(serving) >= 8
    served.server.close()
    ends_at = time.monotonic() + 30  # A silent reader is served for a minute, if nobody ends that.
    for each in serving:
        each.join(max(0.0, ends_at - time.monotonic()))
    assert not any(each.is_alive() for each in serving)
    assert not served.server._thread.is_alive()
    for raw in slow:
        raw.close()


@pytest.mark.parametrize(
    "others", [Asset("shop", STREAM), Asset("crm", StreamId.of("leads")), Asset("crm", STREAM, "2026-11-01")]
)
def test_no_client_reaches_the_values_of_another_asset(served: Served, others: Asset) -> None:
    """By its own secret it has its own values, whatever the key; by the other's server it has none without the other's
    secret. So it is for each call of both dialects."""
    lease = served.lease
    if others.connection != lease.connection:
        lease = served.store.acquire(others.connection, run_id="run-2", holder="me", seconds=60)
    secret_key = ("token", "of another")
    kept: dict[Key, bytes | None] = {secret_key: b'"hidden"'}
    served.store.set_values(lease, others, ValueChanges(kept), who="me")
    theirs = StateServer(
        PendingValues(served.store, others, LIMITS), OUR_MACHINE, is_as_specified=True, check=lambda: None
    )
    try:
        own, port = served.server.secret, served.port
        place = [others.connection, str(others.stream), others.partition]
        for key in (secret_key, (*place, *secret_key), (f"../{others.connection}", *secret_key), ("%", "%")):
            for method, nothing in _READ_OR_DROPPED.items():
                assert served.ask(method, {"key": key, "prefix": key[:1]}) in nothing, method
                assert served.status == 200
        served.port = urlsplit(theirs.variables["RPC_URL"]).port or 0
        for path, headers in ((f"/{own}", {}), ("", {"Authorization": f"Bearer {own}"}), ("", {})):
            for method in (*_READ_OR_DROPPED, "state.set"):
                refusal = served.ask(method, {"key": secret_key, "prefix": ["token"], "value": 1}, path=path, **headers)
                assert (served.status, list(refusal)) == (401, ["error"]), method
                assert not any(word in refusal["error"] for word in ("hidden", "token", "of another", *place[:2]))
        served.port = port
        assert served.ask("state.set", {"key": secret_key, "value": "mine"}) == {}
        served.keep()
        assert dict(served.store.kept_values(others)) == kept
    finally:
        theirs.close()


@pytest.mark.nightly
def test_a_gigabyte_is_refused_unread(served: Served) -> None:
    peak = PeakMemory()
    with socket.create_connection((served.host, served.port), timeout=10) as raw:
        raw.sendall(_request(served, "state.set", 1 << 30) + b'{"key":"a","value":"' + b"x" * 1000)
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")
    began_at = time.monotonic()
    client = http.client.HTTPConnection(served.host, served.port, timeout=30)
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        client.request(
            "POST",
            f"{served.path}/state.set",
            (b"x" * (1 << 20) for _ in range(1024)),
            {"Content-Length": str(1 << 30)},
        )
    assert time.monotonic() - began_at < 5
    assert peak.grown_mebibytes() < 24
    assert served.values.changes() == ValueChanges()


@pytest.mark.nightly
def test_a_million_keys_are_counted_by_the_store_and_listed_piece_by_piece(served: Served) -> None:
    count = 1_000_000
    _keep(served, count, b"1")
    served.ask("state.set", {"key": ["n", "0000007"], "value": 2})
    served.ask("state.set", {"key": ["n", "later"], "value": 2})
    peak, began_at = PeakMemory(), time.monotonic()
    assert served.ask("state.size", {"prefix": ["n"]}) == {"size": count + 1}
    assert time.monotonic() - began_at < 5
    with socket.create_connection((served.host, served.port), timeout=60) as raw:
        body = b'{"prefix":["n"]}'
        raw.sendall(_request(served, "state.list", len(body)) + body)
        listed, last = 0, b""
        while not last.endswith(b"0\r\n\r\n"):
            received = raw.recv(1 << 16)
            listed += (last + received).count(b'"key"') - last.count(b'"key"')
            last = (last + received)[-8:]
    assert listed == count + 1
    assert served.ask("state.deleteAll", {"prefix": ["n"]}) == {"rowsDeleted": count + 1}
    assert served.ask("state.size", {"prefix": ["n"]}) == {"size": 0}
    assert peak.grown_mebibytes() < 32


def test_a_value_that_is_somewhat_too_large_gets_the_answer(served: Served) -> None:
    body = json.dumps({"key": "a", "value": "x" * (4 << 20)}).encode()
    for _ in range(5):
        assert "may have" in served.ask("state.set", body)["error"]
        assert served.status == 413
