"""Ways out of the sandbox, tried: growth, floods, handles of others, forged words. None works, and each ends the run
with an error or leaves it unharmed.

Beside these: files, variables, hosts and addresses in test_host_functions.py and test_python_guest.py; loops, sleep,
memory, recursion and changed compiled code in test_launcher.py.
"""

import re
import resource
import socket
import time
import tracemalloc
from pathlib import Path

import pytest
import wasmtime

from dagster_airbyte_proto.launchers.wasm.host.component_state import MemoryState
from dagster_airbyte_proto.launchers.wasm.host.frames import MAX_FRAMES, Frames
from dagster_airbyte_proto.launchers.wasm.host.host_functions import HostFunctions
from dagster_airbyte_proto.launchers.wasm.host.inbox import Inbox
from dagster_airbyte_proto.launchers.wasm.host.refusals import CallRefused
from dagster_airbyte_proto.launchers.wasm.host.sockets import HostSockets
from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.protocols.rapidbyte import messages
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import HOST_FUNCTIONS
from dagster_airbyte_proto.protocols.rapidbyte.component.wire import HostCall
from dagster_airbyte_proto.protocols.rapidbyte.grants import HostRule, Narrowing
from tests.launchers.wasm.conftest import Component, Output, invocation, output
from tests.support.wasm import guests

pytestmark = pytest.mark.everyday(
    "test_one_that_calls_us_without_end_is_ended[log]",
    "test_a_log_has_so_much_room_and_no_more",
    "test_a_destination_that_drops_no_frame_gets_no_more",
    "test_a_handle_is_good_for_its_own_component_alone",
    "test_no_spelling_of_an_address_leads_to_this_machine",
)

_MIB = 1 << 20
_GUEST = """(module
  (import "host" "frame-drop" (func $drop (param i64)))
  (memory (export "memory") 2) (global $top (mut i32) (i32.const 8192)) %(more)s
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (global.set $top (i32.and (i32.add (global.get $top) (i32.const 15)) (i32.const -16)))
    (global.get $top) (global.set $top (i32.add (global.get $top) (local.get 3))))
  (func (export "open") (param i32 i32) (result i32) (i32.const 1024))
  (func (export "discover") (param i64) (result i32) (i32.const 1024))
  (func (export "validate") (param i64) (result i32) (i32.const 1024))
  (func (export "close") (param i64) (result i32) (i32.const 1024))
  (func (export "run") (param i64 i32 i32 i32 i32 i32 i64) (result i32) %(run)s (i32.const 1024)))"""


def _run(folder: Path, run: str, more: str = "") -> Output:
    """Runs a source of this text of WebAssembly."""
    core = bytes(wasmtime.wat2wasm(_GUEST % {"run": run, "more": more}))
    path = folder / "guest.wasm"
    path.write_bytes(guests.as_component(core, "source"))
    return output(Component(path, folder / "cache").launcher(), Verb.READ, {})


def test_a_table_grows_to_its_limit(tmp_path: Path) -> None:
    grow = """(block $done (loop $more
      (br_if $done (i32.eq (table.grow $t (ref.null func) (i32.const 1000000)) (i32.const -1)))
      (if (i32.gt_u (table.size $t) (i32.const 50000000)) (then (unreachable)))
      (br $more)))"""
    found = _run(tmp_path, grow, "(table $t 1 funcref)")
    assert found.errors == []
    assert found.kinds()[-1] == "finished"


@pytest.mark.parametrize("more", ["(memory 1) " * 100, "(table 1 funcref) " * 1000], ids=["memories", "tables"])
def test_more_memories_and_tables_than_anybody_needs_are_not_loaded(tmp_path: Path, more: str) -> None:
    found = _run(tmp_path, "", more)
    assert not found.report.ended_cleanly
    assert len(found.errors) == 1
    assert "cannot be loaded" in found.errors[0] or "trapped" in found.errors[0] or "more memory" in found.errors[0]


def test_a_memory_that_is_too_large_from_the_start_is_not_loaded(tmp_path: Path) -> None:
    core = (_GUEST % {"run": "", "more": ""}).replace('"memory") 2', '"memory") 60000')
    path = tmp_path / "guest.wasm"
    path.write_bytes(guests.as_component(bytes(wasmtime.wat2wasm(core)), "source"))
    found = output(Component(path, tmp_path / "cache").launcher(), Verb.READ, {})
    assert not found.report.ended_cleanly
    assert len(found.errors) == 1


def test_a_flood_of_words_waits_until_it_is_read(source: Component) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    running = source.launcher().launch(invocation(Verb.READ, {"script": "logs 20000"}), environment={})
    try:
        for _ in range(200):
            assert running.read(60.0)
    finally:
        running.stop()
    assert running.wait(10.0) is not None
    assert running.read(1.0) == b""
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 200 * _MIB


@pytest.mark.parametrize("call", ["log", "metric", "drop"])
def test_one_that_calls_us_without_end_is_ended(source: Component, call: str) -> None:
    """There is always a message of it to be read, so nobody ever waits for it."""
    found = source.read(f"endless {call}", source.launcher(Narrowing(timeout_seconds=1)))
    [error] = found.errors
    assert re.fullmatch(
        r"internal/TIMEOUT: its call run took more than 1 s of its own time(, most of it by [\d,]+ calls of [\w-]+)?"
        r" \(limits: timeout_seconds\): it was ended",
        error,
    )
    assert found.report.stopped


def test_a_slow_reader_takes_nothing_of_the_time_of_one_that_logs(source: Component) -> None:
    launcher = source.launcher(Narrowing(timeout_seconds=2))
    running = launcher.launch(invocation(Verb.READ, {"script": "logs 200"}), environment={})
    chunks = []
    while (chunk := running.read(5)) != b"":
        chunks.append(chunk)
        time.sleep(0.02)
    assert b'"finished"' in (chunks[-2] or b"")


def test_a_log_has_so_much_room_and_no_more(source: Component) -> None:
    found = source.read("logs 1200;log 1 careful")
    lines = [each for each in found.logged if each.startswith("x")]
    assert 1000 < len(lines) < 1200
    assert found.logged[len(lines) :] == [
        "careful",
        "closed",
        f"{1200 - len(lines)} lines of the connector's log are left out: there are too many for one stream",
    ]
    assert found.report.ended_cleanly


def test_a_handle_is_good_for_its_own_component_alone(source: Component) -> None:
    first = source.launcher().launch(
        invocation(Verb.READ, {"script": "new 9;write 1 secret;seal 1;spin"}), environment={}
    )
    try:
        while b"seal ok" not in (first.read(30.0) or b""):
            pass
        found = source.read("len 1;read 1 0 6;emit 1;drop 1;new 9;drop 1;len 1")
        assert found.errors == []
        assert found.logged[:-1] == [
            "len error frame/FRAME_LEN_FAILED",
            "read error frame/FRAME_READ_FAILED",
            "emit error frame/EMIT_BATCH_FAILED",
            "new 1",
            "len error frame/FRAME_LEN_FAILED",
        ]
    finally:
        first.stop()
    assert first.wait(10.0) is not None


def test_a_destination_that_drops_no_frame_gets_no_more() -> None:
    inbox = Inbox()
    for _ in range(MAX_FRAMES + 1):
        inbox.feed(messages.line("batch", stream="s", rows=1, bytes=1) + b"x")
    host = HostFunctions("destination", HostRule(), MemoryState(), inbox)
    [function] = [each for each in HOST_FUNCTIONS if each.name == "next-batch"]
    answers = [host.answer(HostCall(function, (), expects_reply=True)) for _ in range(MAX_FRAMES + 1)]
    assert {answer.case for answer in answers[:-1]} == {"ok"}
    assert (answers[-1].case, answers[-1].payload["code"]) == ("err", "TOO_MANY_FRAMES")


def test_json_without_an_end_to_its_depth_is_refused(source: Component) -> None:
    found = source.read("deep 200000")
    assert found.errors == []
    assert found.logged[0] == "deep error data/INVALID_CHECKPOINT"


def test_small_chunks_of_a_frame_are_joined() -> None:
    held = Frames()
    handle = held.new(1)
    chunks = [b"ab", b"x" * 70_000, *[b"cd"] * 100_000]
    tracemalloc.start()
    for chunk in chunks:
        held.write(handle, bytes(bytearray(chunk)))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 1 << 20
    held.seal(handle)
    assert held.take(handle) == b"".join(chunks)


def test_a_name_that_leads_to_an_address_of_our_own_network_card_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.connect(("192.0.2.1", 9))  # Sends nothing: the kernel says from where it would.
        own = made.getsockname()[0]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (own, 1))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    sockets = HostSockets(HostRule(("*",), ("db.example.com",)))
    for host, code in (("rebound.example.com", "NETWORK_DENIED"), ("db.example.com", "TCP_CONNECT_FAILED")):
        with pytest.raises(CallRefused) as refused:
            sockets.connect(host, 1)
        assert refused.value.error.code == code


_SPELLINGS = [
    "127.1", "0x7f.1", "0177.0.0.1", "2130706433", "0x7f000001", "0", "0.0.0.0", "[::]", "::1", "0:0:0:0:0:0:0:1%lo",
    "::ffff:127.0.0.1", "::ffff:7f00:1", "[::ffff:a9fe:a9fe]", "::127.0.0.1", "64:ff9b::169.254.169.254", "0xa9fea9fe",
    "fe80::1%lo", "localhost.", "LOCALHOST", "169.254.169.254.",
]  # fmt: skip


@pytest.mark.parametrize("host", _SPELLINGS)
def test_no_spelling_of_an_address_leads_to_this_machine(host: str) -> None:
    with pytest.raises(CallRefused) as refused:
        HostSockets(HostRule(("*",), ("api.example.com",))).connect(host, 1)
    assert refused.value.error.code in ("NETWORK_DENIED", "DNS_RESOLUTION_FAILED")


def test_that_descriptors_are_short_does_not_make_a_host_a_forbidden_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 1))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    with pytest.raises(CallRefused) as refused:
        HostSockets(HostRule(("*",), ())).connect("api.example.com", 1)
    assert refused.value.error.code == "TCP_CONNECT_FAILED"
