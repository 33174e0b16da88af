"""Ways out of the sandbox, tried: files, variables, network, growth, floods, handles of others, forged words.

None works, and each ends the run with an error or leaves it unharmed. None leaves a process: `output` looks.

Beside these: hosts and addresses in test_host_functions.py, loops and changed compiled code in test_launcher.py, and
what a whole Python tries in test_python_guest.py.
"""

import re
import resource
import socket
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from dagster_airbyte_proto.launchers.wasm.host.component_state import MemoryState
from dagster_airbyte_proto.launchers.wasm.host.frames import MAX_FRAMES, Frames
from dagster_airbyte_proto.launchers.wasm.host.host_functions import HostFunctions
from dagster_airbyte_proto.launchers.wasm.host.inbox import Inbox
from dagster_airbyte_proto.launchers.wasm.host.log_room import LogRoom
from dagster_airbyte_proto.launchers.wasm.host.refusals import CallRefused
from dagster_airbyte_proto.launchers.wasm.host.sockets import HostSockets
from dagster_airbyte_proto.launchers.wasm.running_component import PreparedAnswer
from dagster_airbyte_proto.launchers.wasm.session import CallTookTooLong, ComponentSession
from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.protocols.rapidbyte import messages
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import HOST_FUNCTIONS, ROLE_FUNCTIONS
from dagster_airbyte_proto.protocols.rapidbyte.component.wire import ANSWER, BASE, MAGIC, READY, HostCall
from dagster_airbyte_proto.protocols.rapidbyte.grants import HostRule, Narrowing
from tests.launchers.wasm.conftest import NOTHING, Component, Output, invocation, output
from tests.support.wasm import guests

pytestmark = pytest.mark.everyday(
    "test_no_file_is_opened_but_those_of_a_granted_folder",
    "test_no_variable_is_seen_but_a_granted_one",
    "test_there_is_no_network_of_wasi",
    "test_one_that_waits_for_ever_is_ended[sleep]",
    "test_forged_messages_are_but_prints",
    "test_memory_is_refused_beyond_its_limit",
    "test_one_that_recurses_without_end_traps",
    "test_a_table_grows_to_its_limit",
    "test_a_flood_of_words_waits_until_it_is_read",
    "test_one_that_calls_us_without_end_is_ended[log]",
    "test_its_time_goes_on_while_nobody_waits_for_it",
    "test_warnings_have_room_where_the_rest_of_a_log_has_none",
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


@pytest.fixture(scope="module")
def escaping(tmp_path_factory: pytest.TempPathFactory) -> Component:
    """The guest of escapes.c, which may use the folder `granted`."""
    place = tmp_path_factory.mktemp("escapes")
    (granted := place / "granted").mkdir()
    (place / "secret.txt").write_text("x")
    (granted / "inside.txt").write_text("x")
    (granted / "link").symlink_to("/etc")
    path = place / "source.wasm"
    path.write_bytes(guests.escapes(granted))
    return Component(path, place / "cache")


def _tried(escaping: Component, what: str, narrowing: Narrowing = NOTHING, **config: Any) -> Output:
    return output(escaping.launcher(narrowing), Verb.READ, {"try": what, **config})


def test_no_file_is_opened_but_those_of_a_granted_folder(escaping: Component) -> None:
    paths = "inside.txt;../secret.txt;/etc/passwd;link/passwd;link;granted/../../secret.txt"
    found = _tried(escaping, "files", paths=paths)
    assert found.logged == [
        "folders 1", "inside.txt opened", "../secret.txt refused", "/etc/passwd refused", "link/passwd refused",
        "link refused", "granted/../../secret.txt refused",
    ]  # fmt: skip
    assert found.report.ended_cleanly
    assert _tried(escaping, "files", Narrowing(preopens=()), paths=paths).logged == ["folders 0"]


def test_a_handle_of_nothing_is_a_trap(escaping: Component) -> None:
    found = _tried(escaping, "handle", Narrowing(preopens=()))
    [error] = found.errors
    assert re.fullmatch(r"internal/COMPONENT_ENDED: exited with code 70: the component trapped \(.*handle.*\)", error)


def test_no_variable_is_seen_but_a_granted_one(escaping: Component, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRANTED", "seen")
    monkeypatch.setenv("SECRET", "unseen")
    assert _tried(escaping, "variables").logged == ["GRANTED=seen"]
    assert _tried(escaping, "variables", Narrowing(variables=())).logged == []


def test_there_is_no_network_of_wasi(escaping: Component) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = _tried(escaping, "network", port=str(server.getsockname()[1]))
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
    [said] = found.logged
    assert said.startswith(("socket refused ", "connect refused "))


@pytest.mark.parametrize("what", ["sleep", "stdin"])
def test_one_that_waits_for_ever_is_ended(escaping: Component, what: str) -> None:
    """By a timer of WASI, or for more words on a stdin that has our replies alone."""
    found = _tried(escaping, what, Narrowing(timeout_seconds=0.5))
    assert found.errors == [
        "internal/TIMEOUT: its call run took more than 0.5 s of its own time (limits: timeout_seconds): it was ended"
    ]
    assert found.report.stopped


def test_forged_messages_are_but_prints(escaping: Component) -> None:
    """Its own output is stderr, so it can neither make up the answer to a call, nor call the host past its adapter."""
    numbers = {each.name: number for number, each in enumerate(HOST_FUNCTIONS)}
    run = ANSWER + 1 + [each.name for each in ROLE_FUNCTIONS["source"]].index("run")
    heads = [(run, BASE), (numbers["emit-batch"], 1), (numbers["frame-new"], 9), (READY, 0)]
    forged = b"".join(struct.pack("<IIII14Q", MAGIC, number, 0, 0, first, *[0] * 13) for number, first in heads)
    found = _tried(escaping, "forge", forged=(forged + b'{"type":"finished","stream":"users"}\n').hex())
    assert (found.kinds(), found.errors, found.batches) == (["started", "finished"], [], [])
    assert found.report.ended_cleanly


def test_memory_is_refused_beyond_its_limit(source: Component) -> None:
    launcher = source.launcher(Narrowing(memory_bytes=32 << 20))
    assert source.read("grow 1000;grow 100", launcher).logged[:2] == ["grow refused", "grow ok"]
    [error] = source.read("eat", launcher).errors
    memory = "its memory had 3[12] MiB of the 32 MiB that it may have, and may have run out"
    assert re.fullmatch(
        rf".*: the component trapped \(wasm `unreachable` .*\): {memory} \(limits: max_memory; .*\)", error
    )


def test_one_that_recurses_without_end_traps(source: Component, tmp_path: Path) -> None:
    """Where its stack in memory ends, or that of the processor: which is first depends on its compiler."""
    again = "(func $again (result i32) (i32.add (call $again) (i32.const 1)))"
    found = [*source.read("recurse").errors, *_run(tmp_path, "(drop (call $again))", again).errors]
    trapped = "internal/COMPONENT_ENDED: exited with code 70: the component trapped"
    nested = "its calls were probably nested too deeply, and its stack ended, whose size its compiler sets"
    assert found == [
        f"{trapped} (out of bounds memory access): {nested}",
        f"{trapped} (call stack exhausted): its calls were nested too deeply, and the stack of all components ended",
    ]


def test_a_table_grows_to_its_limit(tmp_path: Path) -> None:
    grow = """(block $done (loop $more
      (br_if $done (i32.eq (table.grow $t (ref.null func) (i32.const 1000000)) (i32.const -1)))
      (if (i32.gt_u (table.size $t) (i32.const 50000000)) (then (unreachable)))
      (br $more)))"""
    found = _run(tmp_path, grow, "(table $t 1 funcref)")
    assert found.errors == []
    assert found.kinds()[-1] == "finished"


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("(memory 1) " * 90, r"resource limit exceeded: memory count .*"),
        ("(table 1 funcref) " * 90, r"resource limit exceeded: table count .*"),
        ("(table 2000000 funcref)", r"table minimum size of 2000000 elements exceeds table limits"),
    ],
    ids=["memories", "tables", "elements"],
)
def test_more_memories_and_tables_than_anybody_needs_are_not_loaded(tmp_path: Path, more: str, found: str) -> None:
    ended = _run(tmp_path, "", more)
    assert not ended.report.ended_cleanly
    [error] = ended.errors
    limits = "it may have 3 memories, 64 tables of 1,048,576 elements, 64 instances"
    assert re.fullmatch(rf".* exited with code 72: the component cannot be loaded \({found}\): {limits}", error)


def test_a_memory_that_is_too_large_from_the_start_is_not_loaded(tmp_path: Path) -> None:
    core = (_GUEST % {"run": "", "more": ""}).replace('"memory") 2', '"memory") 60000')
    path = tmp_path / "guest.wasm"
    path.write_bytes(guests.as_component(bytes(wasmtime.wat2wasm(core)), "source"))
    found = output(Component(path, tmp_path / "cache").launcher(), Verb.READ, {})
    assert not found.report.ended_cleanly
    [error] = found.errors
    assert error.startswith(
        "internal/COMPONENT_ENDED: exited with code 71: the component needs more memory than it may have, 1,024 MiB "
        "(limits: max_memory; raise that, or have it read less at once) (memory minimum size of 60000 pages "
    )


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


class _Flood(PreparedAnswer):
    """A program whose next words are there before anybody looks for them, as those of one that we are slower than."""

    def __init__(self) -> None:
        super().__init__(b"")
        number = [each.name for each in HOST_FUNCTIONS].index("log")
        body = b"x"
        self._words = struct.pack("<IIII14Q", MAGIC, number, len(body), 0, 2, BASE, len(body), *[0] * 11) + body

    def read(self, timeout_seconds: float) -> bytes:  # noqa: ARG002
        return self._words * 100

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:  # noqa: ARG002
        return len(data)


def test_its_time_goes_on_while_nobody_waits_for_it() -> None:
    session = ComponentSession(_Flood(), "source", HostFunctions("source", HostRule(), MemoryState()), 0.2)
    steps, until = session.call("close", 7), time.monotonic() + 60
    with pytest.raises(CallTookTooLong, match=r"0\.2 s of its own time, most of it by [\d,]+ calls of log \("):
        while time.monotonic() < until:
            session.begin_step(1.0)
            assert next(steps)


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


def test_warnings_have_room_where_the_rest_of_a_log_has_none() -> None:
    room, text = LogRoom(), "x" * (1 << 20)
    assert [room.takes(2, text) for _ in range(64)] == [*[True] * 63, False]
    assert [room.takes(level, text) for level in (3, 1, 0)] == [False, True, True]
    assert room.left_out == 2
    room.renew()
    assert room.takes(2, text)


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
