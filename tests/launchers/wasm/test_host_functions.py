"""Every function of the host, called by a component: each where it works, and each where it is refused."""

import contextlib
import fcntl
import resource
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.launchers.wasm.host import frames, sockets
from dagster_airbyte_proto.launchers.wasm.host.component_state import MemoryState
from dagster_airbyte_proto.launchers.wasm.host.frames import Frames
from dagster_airbyte_proto.launchers.wasm.host.host_functions import HostFunctions
from dagster_airbyte_proto.launchers.wasm.host.inbox import Inbox
from dagster_airbyte_proto.launchers.wasm.host.sockets import HostSockets
from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.protocols.rapidbyte import messages
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import HOST_FUNCTIONS
from dagster_airbyte_proto.protocols.rapidbyte.component.wire import HostCall
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import Tagged
from dagster_airbyte_proto.protocols.rapidbyte.grants import HostRule, Narrowing
from tests.launchers.wasm.conftest import Component, output

pytestmark = pytest.mark.everyday(
    "test_a_frame_is_written_sealed_and_read",
    "test_the_number_of_frames_has_a_limit",
    "test_frames_that_are_dropped_or_emitted_give_their_memory_back",
    "test_a_batch_goes_out_as_it_was_written",
    "test_batches_are_taken_and_end",
    "test_state_is_kept_by_scope_and_key",
    "test_state_has_limits",
    "test_outside_of_a_run_nothing_goes_to_a_stream",
    "test_a_component_talks_to_a_host_that_its_config_names",
    "test_a_name_that_leads_to_this_machine_is_refused",
    "test_a_name_is_looked_up_once",
    "test_the_number_of_sockets_has_a_limit",
    "test_writes_to_a_slow_host_would_block",
)

_FUNCTIONS = {function.name: function for function in HOST_FUNCTIONS}


def _logged(component: Component, script: str, **config: Any) -> list[str]:
    """The words of the calls of a script that ends well."""
    found = component.read(script, **config)
    assert found.errors == [] and found.report.ended_cleanly
    return found.logged[:-1]


def test_a_frame_is_written_sealed_and_read(source: Component) -> None:
    script = "new 3;write 1 abc;write 1 defg;len 1;seal 1;read 1 0 7;read 1 2 3;read 1 7 0;len 1;drop 1;drop 1;len 1"
    assert _logged(source, script) == [
        "new 1", "write 3", "write 7", "len 7", "seal ok", "read abcdefg", "read cde", "read ", "len 7",
        "len error frame/FRAME_LEN_FAILED",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "refused"),
    [
        ("new 536870913", "new error frame/FRAME_NEW_FAILED"),
        ("write 9 a", "write error frame/FRAME_WRITE_FAILED"),
        ("new 1;seal 1;write 1 a", "write error frame/FRAME_WRITE_FAILED"),
        ("new 1;seal 1;seal 1", "seal error frame/FRAME_SEAL_FAILED"),
        ("seal 9", "seal error frame/FRAME_SEAL_FAILED"),
        ("new 1;drop 1;write 1 a", "write error frame/FRAME_WRITE_FAILED"),
        ("read 9 0 1", "read error frame/FRAME_READ_FAILED"),
        ("new 1;write 1 abc;read 1 0 1", "read error frame/FRAME_READ_FAILED"),
        ("new 1;write 1 abc;seal 1;read 1 1 3", "read error frame/FRAME_READ_FAILED"),
        ("new 1;write 1 abc;seal 1;read 1 0 18446744073709551615", "read error frame/FRAME_READ_FAILED"),
        ("emit 9", "emit error frame/EMIT_BATCH_FAILED"),
        ("new 1;write 1 a;emit 1", "emit error frame/EMIT_BATCH_FAILED"),
        ("new 1;seal 1;emit 1", "emit error internal/EMPTY_BATCH"),
        ("new 1;write 1 a;seal 1;emit 1;emit 1", "emit error frame/EMIT_BATCH_FAILED"),
        ("new 1;write 1 a;seal 1;emit 1;read 1 0 1", "read error frame/FRAME_READ_FAILED"),
    ],
)
def test_a_frame_is_never_used_otherwise(source: Component, script: str, refused: str) -> None:
    assert _logged(source, script)[-1] == refused


def test_writes_to_an_older_frame_are_answered_by_us(source: Component) -> None:
    """Only those to the newest need no reply."""
    script = "new 1;new 1;write 1 a;write 2 b;write 1 c;seal 2;seal 1;read 1 0 2;read 2 0 1"
    assert _logged(source, script)[2:] == ["write 1", "write 1", "write 2", "seal ok", "seal ok", "read ac", "read b"]


def test_a_frame_ends_at_half_a_gibibyte(source: Component) -> None:
    """The adapter itself knows when the newest frame is full."""
    assert _logged(source, "new 1;fill 1 513 1048576;len 1") == [
        "new 1", "fill error frame/FRAME_WRITE_FAILED", "len 536870912",
    ]  # fmt: skip


def test_all_frames_together_have_a_limit(source: Component, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_HELD_BYTES", 5 << 20)
    found = source.read("new 1;fill 1 4 1048576;new 1;fill 2 4 1048576")
    assert found.errors == ["internal/PROTOCOL_VIOLATION: writing a frame: the connector holds over 5 MiB of frames"]
    assert found.report.stopped


def test_the_number_of_frames_has_a_limit() -> None:
    host = _host()
    for _ in range(frames.MAX_FRAMES):
        assert _called(host, "frame-new", 1).case == "ok"
    assert _code(_called(host, "frame-new", 1)) == "frame/FRAME_NEW_FAILED"


def test_frames_that_are_dropped_or_emitted_give_their_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_HELD_BYTES", 10)
    held = Frames()
    for take in (held.drop, held.take):
        for _ in range(3):
            handle = held.new(1)
            held.write(handle, b"x" * 9)
            held.seal(handle)
            take(handle)
    held.write(held.new(1), b"x" * 9)
    with pytest.raises(ProtocolViolation):
        held.write(held.new(1), b"xx")


def test_a_batch_goes_out_as_it_was_written(source: Component) -> None:
    found = source.read("new 1;write 1 abc;seal 1;emit 1;ipc b", b="00ff0a7b")
    assert found.batches == [b"abc", b"\x00\xff\n{"]
    summary = next(line["summary"] for line in found.lines if line["type"] == "finished")
    assert summary["read"]["batches-emitted"] == 1


def test_a_source_has_no_batches_to_take(source: Component) -> None:
    assert _logged(source, "next") == ["next none"]


def test_batches_are_taken_and_end() -> None:
    inbox = Inbox()
    for content in (b"abc", b"de"):
        inbox.feed(messages.line("batch", stream="users", rows=1, bytes=len(content)) + content)
    inbox.is_closed = True
    host = HostFunctions("destination", HostRule(), MemoryState(), inbox)
    for content in (b"abc", b"de"):
        handle = _called(host, "next-batch").payload
        assert _called(host, "frame-len", handle) == Tagged("ok", len(content))
        assert _called(host, "frame-read", handle, 0, len(content)) == Tagged("ok", content)
        assert _code(_called(host, "frame-write", handle, b"x")) == "frame/FRAME_WRITE_FAILED"
        _called(host, "frame-drop", handle)
    assert _called(host, "next-batch") == Tagged("ok", None)


def test_logs_and_metrics_come_out_and_are_cut(source: Component) -> None:
    found = source.read('log 0 bad;log 9 fine;metric {"name":"rows"};log 2 ' + "x" * 70_000)
    assert [(line["level"], line["message"][:9], len(line["message"])) for line in found.lines if "level" in line] == [
        (0, "bad", 3), (9, "fine", 4), (2, "metric ok", 9), (2, "x" * 9, 65536), (2, "closed", 6),
    ]  # fmt: skip
    assert [line["message"] for line in found.lines if line["type"] == "metric"] == ['{"name":"rows"}']


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ('checkpoint 0 {"id":1}', "checkpoint ok"),
        ('checkpoint 1 {"id":1}', "checkpoint error config/INVALID_CHECKPOINT_KIND"),
        ('checkpoint 7 {"id":1}', "checkpoint error config/INVALID_CHECKPOINT_KIND"),
        ("checkpoint 0 [1]", "checkpoint error data/INVALID_CHECKPOINT"),
        ("checkpoint 0 {", "checkpoint error data/INVALID_CHECKPOINT"),
    ],
)
def test_a_checkpoint_is_an_object_of_the_components_own_kind(source: Component, script: str, answer: str) -> None:
    found = source.read(script)
    assert found.logged[0] == answer
    assert [line["checkpoint"] for line in found.lines if line["type"] == "checkpoint"] == (
        ['{"id":1}'] if answer.endswith("ok") else []
    )


def test_rejected_records_are_reported_and_counted(source: Component) -> None:
    found = source.read('dlq users {"secret":1} too-long data;dlqs 9999;dlq users {} again data')
    rejected = [line for line in found.lines if line["type"] == "rejected"]
    assert len(rejected) == 10_000
    named = {"type": "rejected", "stream": "users", "name": "users"}
    assert rejected[0] == {**named, "message": "data: too-long", "record": '{"secret":1}'}
    assert found.logged[:2] == ["dlq ok", "dlq error data/TOO_MANY_REJECTED"]


def test_state_is_kept_by_scope_and_key(source: Component) -> None:
    state = MemoryState()
    script = (
        "get 0 k;put 0 k a b;get 0 k;get 1 k;cas 1 k - new;cas 1 k - other;get 1 k;"
        "cas 1 k old x;cas 1 k new x;get 1 k;put 2 k z"
    )
    found = source.read(script, source.launcher(state=state))
    assert found.logged[:-1] == [
        "get none", "put ok", "get a b", "get none", "cas true", "cas false", "get new",
        "cas false", "cas true", "get x", "put ok",
    ]  # fmt: skip
    assert state.values == {(0, "", "k"): "a b", (1, "users", "k"): "x", (2, "", "k"): "z"}


@pytest.mark.parametrize(
    ("script", "refused"),
    [
        ("get 3 k", "get error config/INVALID_SCOPE"),
        ("put 3 k v", "put error config/INVALID_SCOPE"),
        ("cas 4 k - v", "cas error config/INVALID_SCOPE"),
        ("longkey 1025", "longkey error config/KEY_TOO_LONG"),
    ],
)
def test_state_has_three_scopes_and_short_keys(source: Component, script: str, refused: str) -> None:
    assert _logged(source, script + ";longkey 1024") == [refused, "longkey ok"]


def test_the_values_of_a_stream_go_with_its_checkpoints(source: Component) -> None:
    found = source.read('checkpoint 0 {"id":1};put 1 k v;put 0 p v;checkpoint 0 {"id":2}')
    assert [line.get("values") for line in found.lines if line["type"] == "checkpoint"] == [None, {"k": "v"}]


def test_state_has_limits() -> None:
    host = _host()
    for name in "abcd":
        assert _called(host, "state-put", 1, name, "x" * ((1 << 20) - 9)).case == "ok"
    assert _code(_called(host, "state-put", 1, "e", "x" * 99)) == "config/STATE_TOO_LARGE"
    assert _code(_called(host, "state-put", 0, "k", "x" * ((1 << 20) + 1))) == "config/VALUE_TOO_LONG"
    for _ in range(10_000):
        _called(host, "state-put", 0, "k", "v")
    assert _code(_called(host, "state-put", 0, "k", "v")) == "config/TOO_MANY_PUTS"
    host.stream = None
    assert _code(_called(host, "state-get", 1, "k")) == "config/INVALID_SCOPE"


def test_limits_of_a_run_begin_anew_with_each_stream() -> None:
    host = _host()
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("emit-dlq-record", ("users", "{}", "bad", "data")),
        ("state-put", (1, "k", "v")),
    ]
    for name, arguments in calls:
        while _called(host, name, *arguments).case == "ok":
            host.output.clear()
    host.begin("others", {})
    assert [_called(host, name, *arguments).case for name, arguments in calls] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("name", "arguments"), [("emit-dlq-record", ("users", "{}", "bad", "data")), ("state-put", (0, "k", "v"))]
)
def test_a_run_that_rejected_or_kept_something_is_not_called_again(name: str, arguments: tuple[Any, ...]) -> None:
    host = _host()
    before = host.effects
    _called(host, name, *arguments)
    assert host.effects > before


def test_outside_of_a_run_nothing_goes_to_a_stream() -> None:
    host = _host()
    handle = _called(host, "frame-new", 1).payload
    host.stream = None
    assert _code(_called(host, "emit-batch", handle)) == "internal/NO_STREAM"
    assert _code(_called(host, "checkpoint", 0, "{}")) == "internal/NO_STREAM"


# TCP


@pytest.fixture
def server() -> Iterator[int]:
    """Echoes what it gets, with `pong:` before it, and closes."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"pong:" + connection.recv(100))

    threading.Thread(target=serve, daemon=True).start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def test_a_component_talks_to_a_host_that_its_config_names(source: Component, server: int) -> None:
    script = f"connect localhost {server};peek 1;send 1 ping;recv 1 100;recv 1 100;shutdown 1;shutdown 1;recv 1 9"
    assert _logged(source, script, host="localhost") == [
        "connect 1", "peek would-block", "send 4", "recv pong:ping", "recv eof", "recv error internal/INVALID_SOCKET",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("host", "config", "refused"),
    [
        ("localhost", {}, "permission/NETWORK_DENIED"),  # only its manifest names it
        ("127.0.0.1", {"host": "localhost"}, "permission/NETWORK_DENIED"),
        ("example.com", {"host": "localhost"}, "permission/NETWORK_DENIED"),
        ("0x7f.1", {"host": "0x7f.1.evil"}, "permission/NETWORK_DENIED"),
        ("no.such.host.invalid", {"host": "no.such.host.invalid"}, "transient-network/DNS_RESOLUTION_FAILED"),
    ],
)
def test_any_other_host_is_refused(source: Component, server: int, host: str, config: Any, refused: str) -> None:
    retry = " retryable safe" if refused.startswith("transient") else ""
    assert _logged(source, f"connect {host} {server}", **config) == [f"connect error {refused}{retry}"]


def test_a_connection_blocks_hosts_and_ports_of_the_config(source: Component, server: int) -> None:
    for launcher in (source.launcher(Narrowing(hosts=())), source.launcher(Narrowing(hosts=("localhost:1",)))):
        found = output(launcher, Verb.READ, {"script": f"connect localhost {server}", "host": "localhost"})
        assert found.logged[0] == "connect error permission/NETWORK_DENIED"


def test_a_port_that_nobody_listens_at_may_be_tried_again(source: Component) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert _logged(source, f"connect localhost {port}", host="localhost") == [
        "connect error transient-network/TCP_CONNECT_FAILED retryable safe"
    ]


@pytest.mark.parametrize("leads_to", ["127.0.0.1", "169.254.169.254", "::1", "fe80::1", "::ffff:127.0.0.1"])
def test_a_name_that_leads_to_this_machine_is_refused(leads_to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = socket.AF_INET6 if ":" in leads_to else socket.AF_INET
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(family, socket.SOCK_STREAM, 6, "", (leads_to, 1))])
    host = _host(HostRule(("*",), ("db.example.com",)))
    assert _code(_called(host, "connect-tcp", "rebound.example.com", 1)) == "permission/NETWORK_DENIED"


def test_a_name_is_looked_up_once(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads elsewhere at its second look-up gains nothing."""
    looked_up: list[str] = []

    def found(host: str, port: int, **_: Any) -> list[Any]:
        looked_up.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1" if len(looked_up) == 1 else "9.9.9.9", port))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    made = HostSockets(HostRule((), ("db.example.com",)))
    assert made.connect("db.example.com", server) == 1
    assert looked_up == ["db.example.com"]
    made.close_all()


def test_the_number_of_sockets_has_a_limit(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "MAX_SOCKETS", 2)
    host = _host(HostRule((), ("localhost",)))
    assert [_called(host, "connect-tcp", "localhost", server).case for _ in range(2)] == ["ok", "ok"]
    assert _code(_called(host, "connect-tcp", "localhost", server)) == "permission/TOO_MANY_SOCKETS"
    _called(host, "socket-close", 1)
    assert _called(host, "connect-tcp", "localhost", server).case == "ok"
    host.close()


def test_sockets_leave_descriptors_for_others(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    host = _host(HostRule((), ("localhost",)))
    with socket.socket() as free:
        limit = (free.fileno() + 4) * 4 // 3
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    answers = [_called(host, "connect-tcp", "localhost", server) for _ in range(10)]
    assert answers[0].case == "ok"
    assert _code(answers[-1]) == "transient-network/TCP_CONNECT_FAILED"
    host.close()


def test_a_socket_with_a_large_descriptor_is_read(server: int) -> None:
    made = HostSockets(HostRule((), ("localhost",)))
    handle = made.connect("localhost", server)
    plain = made._sockets[handle]
    with contextlib.suppress(OSError):  # Where the limit is lower, there is nothing to see.
        made._sockets[handle] = socket.socket(fileno=fcntl.fcntl(plain.fileno(), fcntl.F_DUPFD_CLOEXEC, 1024))
    assert made.write(handle, b"ping") == Tagged("written", 4)
    assert made.read(handle, 100).case == "data"
    plain.close()
    made.close_all()


def test_writes_to_a_slow_host_would_block() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made = HostSockets(HostRule((), ("127.0.0.1",)))
        handle = made.connect("127.0.0.1", listening.getsockname()[1])
        answers = [made.write(handle, b"x" * (1 << 20)) for _ in range(20)]
        assert answers[0].case == "written" and answers[-1] == Tagged("would-block")
        made.close_all()


def _host(rule: HostRule = HostRule()) -> HostFunctions:  # noqa: B008  # a tuple, and frozen
    host = HostFunctions("source", rule, MemoryState())
    host.stream = "users"
    return host


def _called(host: HostFunctions, name: str, *arguments: Any) -> Tagged:
    return host.answer(HostCall(_FUNCTIONS[name], arguments, expects_reply=True))


def _code(answer: Tagged) -> str:
    assert answer.case == "err"
    return f"{answer.payload['category']}/{answer.payload['code']}"
