"""The state server: both dialects of its calls, and callers who should not be there."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

from dagster_airbyte_proto.checkpoints.deliveries import AcknowledgedRows
from dagster_airbyte_proto.checkpoints.kept_values import Asset, Key, ValueChanges
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.errors import StateConflict
from dagster_airbyte_proto.launchers.process import OUR_MACHINE
from dagster_airbyte_proto.loads.push import PlannedCounts, SealedPlan
from dagster_airbyte_proto.model import PushMode, StreamId
from dagster_airbyte_proto.sync.state_server.pending_values import LimitExceeded, PendingValues, ValueLimits
from dagster_airbyte_proto.sync.state_server.server import ServerLimits, StateServer

STREAM = StreamId.of("people")
ASSET = Asset("crm", STREAM)
LIMITS = ValueLimits(value_bytes=1000, key_bytes=400, kept=50, kept_bytes=20_000, waiting_bytes=8000)


class Served:
    """A server, its values, and a client of it."""

    def __init__(self, folder: Path, *, is_as_specified: bool = False, limits: ServerLimits | None = None) -> None:
        self.store = SqlStore(f"sqlite:///{folder}/state.db")
        self.lease = self.store.acquire("crm", run_id="run-1", holder="me", seconds=60)
        self.plan = SealedPlan("p", "crm", STREAM, PushMode.UPSERT, "/p", (), (), PlannedCounts(9, 0, 0, 0), "f")
        self.store.seal_plan(self.lease, self.plan)
        self.is_over = False
        self.values = PendingValues(self.store, ASSET, LIMITS)
        self.server = StateServer(
            self.values,
            OUR_MACHINE,
            is_as_specified=is_as_specified,
            check=self._check,
            limits=limits or ServerLimits(call_bytes=4000),
        )
        address = urlsplit(self.server.variables["RPC_URL"])
        assert address.hostname is not None
        assert address.port is not None
        self.path, self.host, self.port = address.path, address.hostname, address.port

    def _check(self) -> None:
        if self.is_over:
            raise StateConflict("using the lease", "another run has it")

    def keep(self) -> None:
        """What an acknowledgement does with the values."""
        self.store.acknowledge_rows(self.lease, self.plan, AcknowledgedRows(5, (), self.values.changes()))
        self.values = PendingValues(self.store, ASSET, LIMITS)

    def ask(self, method: str, body: Any, *, path: str | None = None, verb: str = "POST", **headers: str) -> Any:
        client = http.client.HTTPConnection(self.host, self.port, timeout=10)
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        client.request(verb, f"{self.path if path is None else path}/{method}", text, given)
        answer = client.getresponse()
        content = answer.read()
        client.close()
        self.status, self.kind = answer.status, answer.headers.get("Content-Type", "")
        return content if "ndjson" in self.kind else json.loads(content or b"null")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path)
    yield found
    found.server.close()


def test_the_calls_of_the_packages(served: Served) -> None:
    key = ["syncId=1", "type=cursor"]
    assert served.ask("state.get", {"key": key}) == {}
    assert served.ask("state.set", {"key": key, "value": {"at": 1}}) == {}
    assert served.ask("state.set", {"key": "one", "value": 0}) == {}
    assert served.ask("state.get", {"key": key}) == {"at": 1}
    assert served.ask("state.get", {"key": ["one"]}) == 0
    assert served.ask("state.size", {"prefix": ["syncId=1"]}) == {"size": 1}
    served.ask("state.set", {"key": ["syncId=1", "type=list", "2"], "value": [2]})
    lines = served.ask("state.list", {"prefix": "syncId=1"}).splitlines()
    assert served.kind == "application/x-ndjson"
    assert [json.loads(line) for line in lines] == [
        {"key": key, "value": {"at": 1}},
        {"key": ["syncId=1", "type=list", "2"], "value": [2]},
    ]
    assert served.ask("state.del", {"key": key}) == {}
    assert served.ask("state.deleteByPrefix", {"prefix": ["syncId=1"]}) == {}
    assert served.ask("state.list", {"prefix": "syncId=1"}) == b""
    assert served.ask("state.size", {"prefix": ["one"]}) == {"size": 1}


def test_the_calls_of_the_specification(tmp_path: Path) -> None:
    served = Served(tmp_path, is_as_specified=True)
    served.ask("state.set", {"key": ["a", "b"], "value": None})
    assert served.ask("state.get", {"key": ["a", "b"]}) == {"value": None}
    assert served.ask("state.get", {"key": ["a"]}) == {}
    assert served.ask("state.list", {"prefix": ["a"]}) == [{"key": ["a", "b"], "value": None}]
    assert served.ask("state.delete", {"key": ["a"]}) == {"rowsDeleted": 0}
    assert served.ask("state.deleteAll", {"prefix": ["a"]}) == {"rowsDeleted": 1}
    assert served.ask("state.list", {"prefix": ["a"]}) == []
    served.server.close()


def test_a_value_with_line_ends_is_one_line_of_a_list(served: Served) -> None:
    served.ask("state.set", b'{"key":"a","value":{\n"at": [1,\r\n  2.50]}}')
    assert served.ask("state.list", {"prefix": "a"}) == b'{"key":["a"],"value":{"at":[1,2.50]}}\n'


def test_values_that_come_and_go_leave_nothing_that_waits(served: Served) -> None:
    for number in range(60):
        served.values.set((str(number), "x" * 100), b"1")
        assert served.values.delete((str(number), "x" * 100))
        assert not served.values.delete((str(number), "x" * 100))
    assert served.values.changes() == ValueChanges()


def test_values_that_come_and_are_dropped_leave_nothing_that_waits(served: Served) -> None:
    served.values.set(("p", "1"), b"1")
    assert served.values.delete_all(("p",)) == 1
    assert served.values.changes() == ValueChanges()


def test_a_dropped_prefix_ends_what_was_deleted_key_by_key_before(served: Served) -> None:
    for name in "12":
        served.values.set(("p", name), b"old")
    served.keep()
    for name in "12":
        assert served.values.delete(("p", name))
    assert served.values.delete_all(("p",)) == 0
    assert served.values.get(("p", "1")) is None
    served.keep()
    assert served.store.count_kept_values(ASSET) == (0, 0)


def test_a_prefix_under_which_all_waits_that_may_can_be_dropped(served: Served) -> None:
    served.values.set(("p", "1"), b"kept")
    served.keep()
    for number in range(10, 50):
        served.values.set(("p", str(number)), b"x" * 133)
    with pytest.raises(LimitExceeded, match="wait"):
        served.values.set(("q",), b"")
    assert served.values.delete_all(("p",)) == 41
    served.values.set(("q",), b"")


def test_deletions_of_kept_values_wait_like_values(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        for round_of in range(2):
            for number in range(20):
                served.values.set((f"{round_of}-{number}", "ä" * 50 + "x" * 60), b"1")
            served.keep()
        with pytest.raises(LimitExceeded):
            for number in range(40):
                served.values.delete((f"{number // 20}-{number % 20}", "ä" * 50 + "x" * 60))
    finally:
        served.server.close()


def test_kept_values_and_waiting_ones_are_one_for_their_writer(served: Served) -> None:
    for name in ("b", "d", "f"):
        served.ask("state.set", {"key": ["x", name], "value": name})
    served.keep()
    store_has = dict(served.store.kept_values(ASSET))
    later = Served.__new__(Served)
    later.__dict__.update(served.__dict__)
    later.server = StateServer(served.values, OUR_MACHINE, is_as_specified=True, check=lambda: None)
    later.path, later.port = f"/{later.server.secret}", urlsplit(later.server.variables["RPC_URL"]).port or 0
    for name in ("a", "e"):
        later.ask("state.set", {"key": ["x", name], "value": name})
    later.ask("state.set", {"key": ["x", "d"], "value": "new"})
    assert later.ask("state.delete", {"key": ["x", "b"]}) == {"rowsDeleted": 1}
    listed = [(each["key"][1], each["value"]) for each in later.ask("state.list", {"prefix": "x"})]
    assert listed == [("a", "a"), ("d", "new"), ("e", "e"), ("f", "f")]
    assert dict(served.store.kept_values(ASSET)) == store_has
    assert later.ask("state.deleteAll", {"prefix": ["x"]}) == {"rowsDeleted": 4}
    assert later.ask("state.deleteAll", {"prefix": ["x"]}) == {"rowsDeleted": 0}
    assert later.ask("state.get", {"key": ["x", "f"]}) == {}
    later.ask("state.set", {"key": ["x", "z"], "value": "z"})
    assert later.ask("state.list", {"prefix": ["x"]}) == [{"key": ["x", "z"], "value": "z"}]
    served.keep()
    assert dict(served.store.kept_values(ASSET)) == {("x", "z"): b'"z"'}
    later.server.close()


def test_what_transforms_keep_is_out_of_reach(served: Served) -> None:
    kept: dict[Key, bytes | None] = {("transform", "mask", "values", "a"): b'"1"'}
    served.store.keep_values(served.lease, ASSET, ValueChanges(kept))
    key = ["transform", "mask", "values", "a"]
    for method in ("state.get", "state.del", "state.delete", "state.set"):
        served.ask(method, {"key": key, "value": "2"})
        assert served.status == 400
    for method in ("state.list", "state.size", "state.deleteAll", "state.deleteByPrefix"):
        served.ask(method, {"prefix": "transform"})
        assert served.status == 400
    assert served.ask("state.set", {"key": ["transforms"], "value": 1}) == {}
    served.keep()
    assert dict(served.store.kept_values(ASSET)) == {**kept, ("transforms",): b"1"}


def test_the_store_counts_what_a_list_has(served: Served) -> None:
    random, names = Random(7), "abc"
    keys = [tuple(random.choices(names, k=random.randint(1, 3))) for _ in range(40)]
    for step in range(300):
        key = random.choice(keys)
        change = random.random()
        if change < 0.6:
            served.values.set(key, b"%d" % step)
        elif change < 0.8:
            served.values.delete(key)
        elif change < 0.9:
            served.values.delete_all(key)
        elif change < 0.95:
            served.keep()
        prefix = random.choice(keys)
        assert served.values.size(prefix) == len(list(served.values.list(prefix)))


@pytest.mark.parametrize("path", ["", "/wrong"])
def test_a_caller_without_the_secret_is_refused(served: Served, path: str) -> None:
    served.ask("state.get", {"key": "a"}, path=path)
    assert served.status == 401
    served.ask("state.get", {"key": "a"}, path=path, Authorization=f"Bearer {served.server.secret}x")
    assert served.status == 401
    served.ask("state.get", {"key": "a"}, Authorization="Bearer of another run")
    assert served.status == 401


@pytest.mark.parametrize("variable", ["RPC_SECRET", "RPC_TOKEN"])
def test_the_secret_may_come_as_a_bearer_token(served: Served, variable: str) -> None:
    secret = served.server.variables[variable]
    assert served.ask("state.get", {"key": "a"}, path="", Authorization=f"Bearer {secret}") == {}
    assert served.ask("state.get", {"key": "a"}, Authorization=f"Bearer {secret}") == {}


def test_a_browser_is_refused(served: Served) -> None:
    served.ask("state.get", {"key": "a"}, Host="evil.example:80")
    assert served.status == 403
    served.ask("state.get", {"key": "a"}, Origin="http://evil.example")
    assert served.status == 403
    assert served.ask("state.get", {"key": "a"}, Host=f"localhost:{served.port}") == {}


def test_a_run_that_is_over_is_served_no_more(served: Served) -> None:
    served.is_over = True
    assert "this run is over" in served.ask("state.set", {"key": "a", "value": 1})["error"]
    assert served.status == 401


@pytest.mark.parametrize(
    ("method", "body", "status"),
    [
        ("state.forget", {"key": "a"}, 404),
        ("state.get", b"no json", 400),
        ("state.get", b"[1]", 400),
        ("state.get", {}, 400),
        ("state.get", {"key": []}, 400),
        ("state.get", {"key": ["a"] * 65}, 400),
        ("state.get", {"key": [1]}, 400),
        ("state.set", {"key": "a"}, 400),
        ("state.set", b'{"key":"a","value":"\xff"}', 400),
        ("state.set", {"key": "a", "value": "x" * 1000}, 413),
        ("state.set", {"key": "a", "value": "x" * 5000}, 413),
        ("state.set", {"key": "k" * 500, "value": 1}, 413),
    ],
)
def test_a_call_that_is_none_changes_nothing(served: Served, method: str, body: Any, status: int) -> None:
    served.ask(method, body)
    assert served.status == status
    assert served.values.changes() == ValueChanges()


def test_a_connector_cannot_keep_without_end(served: Served) -> None:
    statuses = []
    for number in range(60):
        served.ask("state.set", {"key": ["n", str(number)], "value": "x" * 10})
        statuses.append(served.status)
    assert statuses == [200] * 50 + [413] * 10
    served.keep()
    assert served.store.count_kept_values(ASSET)[0] == 50


def test_values_that_wait_are_bounded(served: Served) -> None:
    statuses = []
    for number in range(10):
        served.ask("state.set", {"key": ["n", str(number)], "value": "x" * 900})
        statuses.append(served.status)
    assert statuses == [200] * 8 + [413] * 2


def test_a_value_that_is_set_again_or_dropped_takes_no_more_room(served: Served) -> None:
    for number in range(200):
        served.ask("state.set", {"key": "cursor", "value": f"{number:0900}"})
        assert served.status == 200
    for number in range(20):
        served.ask("state.set", {"key": ["n", str(number)], "value": "x" * 900})
        assert served.status == 200
        served.ask("state.del", {"key": ["n", str(number)]})
    assert served.values.get(("cursor",)) == b'"%0900d"' % 199


def test_another_verb_and_a_call_without_a_length_are_refused(served: Served) -> None:
    client = http.client.HTTPConnection(served.host, served.port, timeout=10)
    client.request("GET", f"{served.path}/state.get")
    assert client.getresponse().status == 501
    with socket.create_connection((served.host, served.port), timeout=10) as raw:
        host = f"{served.host}:{served.port}"
        raw.sendall(f"POST {served.path}/state.get HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert b" 411 " in raw.recv(1000)


def _asked_in_chunks(served: Served, chunks: list[bytes]) -> tuple[int, bytes]:
    client = http.client.HTTPConnection(served.host, served.port, timeout=10)
    try:
        client.request("POST", f"{served.path}/state.set", iter(chunks))  # Its length is not known then.
        answer = client.getresponse()
        found = answer.status, answer.read()
        if answer.status == 200:  # The connection is at the beginning of the next call.
            client.request("POST", f"{served.path}/state.get", b'{"key":"a"}')
            return found[0], client.getresponse().read()
        return found
    finally:
        client.close()


def test_a_call_may_come_in_chunks(served: Served) -> None:
    """As Node's own client sends a body that is written before its end is known."""
    assert _asked_in_chunks(served, [b'{"key":', b'"a","val', b'ue":[1]}']) == (200, b"[1]")
    status, answer = _asked_in_chunks(served, [b'{"key":"a","value":"', b"x" * 5000, b'"}'])
    assert (status, b"a call may have 4,000 bytes" in answer) == (413, True)
    assert served.values.get(("a",)) == b"[1]"
    with socket.create_connection((served.host, served.port), timeout=10) as raw:
        head = f"POST {served.path}/state.get HTTP/1.1\r\nHost: {served.host}:{served.port}\r\n"
        raw.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n")
        assert b" 400 " in raw.recv(1000)


def test_calls_are_limited(tmp_path: Path) -> None:
    served = Served(tmp_path, limits=ServerLimits(calls_per_second=5))
    statuses: list[int] = []
    while 429 not in statuses and len(statuses) < 300:  # A slow machine may make but few more than five a second.
        served.ask("state.get", {"key": "a"})
        statuses.append(served.status)
    assert statuses[:5] == [200] * 5
    assert statuses[-1] == 429
    served.server.close()


def test_connections_are_limited(tmp_path: Path) -> None:
    served = Served(tmp_path, limits=ServerLimits(connections=2))
    first, second, third = (socket.create_connection((served.host, served.port), timeout=10) for _ in range(3))
    assert b" 429 " in third.recv(100)
    for each in (first, second, third):
        each.close()
    served.server.close()


def test_a_list_is_sent_as_it_is_read_by_a_slow_reader(served: Served) -> None:
    for number in range(50):
        served.ask("state.set", {"key": ["n", f"{number:02}"], "value": "x" * 50})
    with socket.create_connection((served.host, served.port), timeout=10) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        body = b'{"prefix":["n"]}'
        head = f"POST {served.path}/state.list HTTP/1.1\r\nHost: {served.host}:{served.port}\r\n"
        raw.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += raw.recv(512)
        assert received.count(b'"key"') == 50
        assert served.ask("state.size", {"prefix": "n"}) == {"size": 50}


def test_nothing_answers_after_the_end(served: Served) -> None:
    still_open = http.client.HTTPConnection(served.host, served.port, timeout=10)
    still_open.request("POST", f"{served.path}/state.get", b'{"key":"a"}')
    assert still_open.getresponse().read() == b"{}"
    served.server.close()
    assert still_open.sock.recv(10) == b""
    with pytest.raises(ConnectionRefusedError):
        served.ask("state.get", {"key": "a"})
