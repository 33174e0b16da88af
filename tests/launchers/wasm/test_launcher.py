"""Components under their launcher: requests, ends of every kind, the cache, grants."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.permissions import Permissions
from dagster_airbyte_proto.launchers.process import LaunchOptions
from dagster_airbyte_proto.launchers.wasm import compiled_components
from dagster_airbyte_proto.launchers.wasm.child_program import sealed_content, write_sealed
from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.protocols.rapidbyte.component.wasm_binary import leb128, section
from dagster_airbyte_proto.protocols.rapidbyte.grants import Narrowing
from tests.conformance.launcher import is_running, until
from tests.launchers.wasm.conftest import Component, invocation, output
from tests.support.wasm import guests

pytestmark = pytest.mark.everyday(
    "test_a_check_opens_validates_and_closes[success]",
    "test_streams_run_one_after_the_other_and_one_that_fails_stops_no_other",
    "test_a_trap_says_which",
    "test_a_call_without_end_is_ended[spin]",
    "test_one_that_waits_for_a_server_holds_up_no_reader",
    "test_a_component_ends_with_us",
    "test_compiled_code_that_is_not_ours_alone_is_not_run[damaged]",
    "test_without_wasmtime_there_is_a_clear_error",
    "test_what_is_no_connector_is_refused",
    "test_a_variable_that_is_not_granted_is_an_error",
)

_CATALOG = {"streams": [{"name": "users", "schema": {"format": "columns", "data": []}}]}


def test_a_spec_needs_no_component_to_run(source: Component) -> None:
    found = output(source.launcher(Narrowing(timeout_seconds=5)), Verb.SPEC, {})
    (line,) = found.lines
    assert line["spec"]["manifest"]["name"] == "Scripted"
    assert line["spec"]["grants"][-2:] == [
        "seconds of a call: 5",
        "hosts of its config: as if it had declared them",
    ]
    assert found.report.ended_cleanly


@pytest.mark.parametrize("status", ["success", "warning", "failed"])
def test_a_check_opens_validates_and_closes(source: Component, status: str) -> None:
    found = output(source.launcher(), Verb.CHECK, {"validation": status})
    warnings = ["one", "two"] if status == "warning" else []
    assert found.lines == [
        {"type": "check", "status": status, "message": "fine", "warnings": warnings},
        {"type": "log", "level": 2, "message": "closed"},
    ]
    assert found.report.ended_cleanly


@pytest.mark.parametrize("call", ["open", "validate"])
def test_an_error_of_a_check_is_its_verdict(source: Component, call: str) -> None:
    found = output(source.launcher(), Verb.CHECK, {"fail": call})
    assert found.lines[0] == {"type": "check", "status": "failed", "message": "rate-limit/BOOM: déjà vu (of a batch)"}


def test_a_catalog_comes_as_the_component_wrote_it(source: Component) -> None:
    found = output(source.launcher(), Verb.DISCOVER, {"catalog": _CATALOG})
    assert found.lines[0]["catalog"].replace(" ", "") == str(_CATALOG).replace("'", '"').replace(" ", "")
    assert output(source.launcher(), Verb.DISCOVER, {"fail": "discover"}).errors == ["rate-limit/BOOM: déjà vu"]


def test_streams_run_one_after_the_other_and_one_that_fails_stops_no_other(source: Component) -> None:
    config = {"script_a": "log 2 a", "script_b": "fail", "script": "opens"}
    found = output(source.launcher(), Verb.READ, config, "a", "b", "c")
    assert [(line["type"], line.get("stream")) for line in found.lines] == [
        ("started", "a"), ("log", "a"), ("finished", "a"),
        ("started", "b"), ("error", "b"),
        ("started", "c"), ("log", "c"), ("finished", "c"),
        ("log", None),
    ]  # fmt: skip
    assert found.logged == ["a", "opens 1", "closed"]
    error = found.lines[4]["error"]
    assert error == [
        "rate-limit", "BOOM", "déjà vu", "per-batch", True, 1234, "slow", True, "after-commit-unknown", '{"k":1}',
    ]  # fmt: skip


def test_a_trap_says_which(source: Component) -> None:
    printed: list[bytes] = []
    launcher = source.launcher(options=LaunchOptions(on_stderr=printed.append))
    found = source.read("log 2 before;trap", launcher)
    assert found.kinds() == ["started", "log", "error"]
    assert found.errors == [
        "internal/COMPONENT_ENDED: exited with code 70: the component trapped (wasm `unreachable` instruction executed)"
    ]
    assert (found.report.code, found.report.stderr_tail) == (70, ())
    # The rest is for the log: where it was.
    assert any(b"wasm backtrace" in line for line in printed) and any(b"run" in line for line in printed)


@pytest.mark.parametrize("script", ["spin", "log 2 a;spin"])
def test_a_call_without_end_is_ended(source: Component, script: str) -> None:
    began = time.monotonic()
    found = source.read(script, source.launcher(Narrowing(timeout_seconds=0.5)))
    assert time.monotonic() - began < 60
    assert found.errors == [
        "internal/TIMEOUT: its call run took more than 0.5 s of its own time (limits: timeout_seconds): it was ended"
    ]
    assert found.report.stopped and found.report.signal is not None


def test_time_in_which_it_waits_for_us_does_not_count(source: Component) -> None:
    launcher = source.launcher(Narrowing(timeout_seconds=3))
    running = launcher.launch(invocation(Verb.READ, {"script": "flood 40 100000"}), environment={})
    chunks = []
    while (chunk := running.read(5)) != b"":
        chunks.append(chunk)
        time.sleep(0.05)
    assert len(chunks) == 83
    assert b'"finished"' in (chunks[-2] or b"")


def test_one_that_does_not_fit_into_its_memory_says_so(source: Component) -> None:
    small = source.read("log 2 a", source.launcher(Narrowing(memory_bytes=1 << 16)))
    assert small.report.code == 71
    assert "needs more memory than it may have, 64 KiB (limits: max_memory; raise that" in small.errors[0]


def test_one_that_waits_for_a_server_holds_up_no_reader(source: Component) -> None:
    """It asks for bytes again and again, and each time there are none yet."""
    read: list[bytes | None] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        script = f"connect localhost {silent.getsockname()[1]};recv 1 9"
        running = source.launcher().launch(
            invocation(Verb.READ, {"script": script, "host": "localhost"}), environment={}
        )

        def read_on() -> None:
            while read[-1:] != [b""]:
                read.append(running.read(0.05))

        threading.Thread(target=read_on, daemon=True).start()
        try:
            until(lambda: any(b"connect 1" in (each or b"") for each in read), "it connects")
            until(lambda: read[-3:] == [None] * 3, "a read that brings nothing ends")
        finally:
            running.stop()


def test_nothing_in_time_is_none_and_a_stop_ends_it(source: Component, runs_folder: Path) -> None:
    launcher = source.launcher(options=LaunchOptions(runs_folder=runs_folder, stop_grace_seconds=0.3))
    running = launcher.launch(invocation(Verb.READ, {"script": "spin"}), environment={})
    while b"started" not in (chunk := running.read(60) or b""):
        assert chunk is not None
    assert running.read(0.05) is None
    assert running.wait(0.01) is None
    running.stop()
    running.stop()
    assert running.read(0) == b""
    report = running.wait(10)
    assert report is not None and report.stopped
    assert list(runs_folder.iterdir()) == []


def test_a_component_ends_with_us(source: Component, tmp_path: Path) -> None:
    """Killed without a chance to clean up: the guardian sees it."""
    program = tmp_path / "owner.py"
    program.write_text(
        "import sys\nfrom pathlib import Path\n"
        "from dagster_airbyte_proto.protocols.conversation import Verb\n"
        "from tests.launchers.wasm.conftest import Component, invocation\n"
        f"running = Component(Path({str(source.path)!r}), Path({str(source.cache)!r})).launcher().launch("
        "invocation(Verb.READ, {'script': 'spin'}), environment={})\n"
        "while b'started' not in (running.read(60) or b''): pass\n"
        "children = Path('/proc/self/task').iterdir()\n"
        "print(' '.join((each / 'children').read_text() for each in children), flush=True)\n"
        "running.read(600)\n"
    )
    owner = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, cwd=Path.cwd(), env={
        **os.environ, "PYTHONPATH": str(Path.cwd())})  # fmt: skip
    assert owner.stdout is not None
    guardian = int(owner.stdout.readline().split()[0])
    component = int(Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()[0])
    owner.kill()
    owner.wait()
    until(lambda: not is_running(component) and not is_running(guardian), "both end")


# The cache of compiled code


@pytest.fixture
def fresh(source: Component, tmp_path: Path) -> Component:
    return Component(source.path, tmp_path / "cache")


def _compiled(component: Component) -> Path:
    (found,) = component.cache.glob("components/*.cwasm")
    return found


def test_compiled_code_is_private_and_used_again(fresh: Component) -> None:
    notices: list[str] = []
    launcher = fresh.launcher(options=LaunchOptions(on_notice=notices.append))
    assert fresh.read("log 2 a", launcher).logged == ["a", "closed"]
    compiled = _compiled(fresh)
    assert [oct(each.stat().st_mode & 0o777) for each in (compiled.parent, compiled)] == ["0o700", "0o600"]
    before = compiled.stat().st_mtime_ns
    assert fresh.read("log 2 a", launcher).logged == ["a", "closed"]
    assert compiled.stat().st_mtime_ns == before
    assert notices == ["compiling source.wasm, once for this machine"]


@pytest.mark.parametrize("harm", ["damaged", "cut", "writable", "folder_writable", "link", "another", "not_code"])
def test_compiled_code_that_is_not_ours_alone_is_not_run(fresh: Component, harm: str, tmp_path: Path) -> None:
    fresh.read("log 2 a")
    compiled = _compiled(fresh)
    content = compiled.read_bytes()
    if harm == "damaged":
        compiled.write_bytes(content[:500] + b"\xcc" * 32 + content[532:])
    elif harm == "cut":
        compiled.write_bytes(content[: len(content) // 2])
    elif harm == "writable":
        compiled.chmod(0o620)
    elif harm == "folder_writable":
        compiled.parent.chmod(0o720)
    elif harm == "link":
        compiled.rename(tmp_path / "elsewhere")
        compiled.symlink_to(tmp_path / "elsewhere")
    elif harm == "another":
        write_sealed(str(tmp_path / "another.cwasm"), content[32:])
        (tmp_path / "another.cwasm").rename(compiled)
    else:
        write_sealed(str(compiled), b"another version's")
    assert fresh.read("log 2 a").logged == ["a", "closed"]
    assert sealed_content(str(compiled)) == content[32:]
    assert [oct(each.lstat().st_mode & 0o777) for each in (compiled.parent, compiled)] == ["0o700", "0o600"]


def test_another_version_of_wasmtime_has_code_of_its_own(fresh: Component, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.read("log 2 a")
    monkeypatch.setattr(compiled_components, "version", lambda _: "0.0.1")
    fresh.read("log 2 a")
    assert len(list(fresh.cache.glob("components/*.cwasm"))) == 2


# Connectors that cannot run


def test_without_wasmtime_there_is_a_clear_error(source: Component, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(compiled_components, "version", missing)
    with pytest.raises(ConfigError, match=r"wasmtime is not installed\n.*\[rapidbyte\]"):
        source.launcher().launch(invocation(Verb.SPEC, {}), environment={})


def test_a_destination_is_no_source(built: Callable[[str], Component]) -> None:
    destination = built("destination")
    assert output(destination.launcher(), Verb.CHECK, {}).lines[0]["status"] == "success"
    for verb in (Verb.DISCOVER, Verb.READ):
        with pytest.raises(ConfigError, match="it is a destination, and no source"):
            destination.launcher().launch(invocation(verb, {}), environment={})


def test_a_role_that_the_manifest_denies_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.wasm"
    path.write_bytes(guests.connector(tmp_path, "source", {**guests.MANIFEST, "roles": {"transform": {}}}))
    with pytest.raises(ConfigError, match="it is a source, and its manifest says transform"):
        Component(path, tmp_path).launcher().launch(invocation(Verb.CHECK, {}), environment={})


def test_another_protocol_version_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "five.wasm"
    path.write_bytes(guests.connector(tmp_path, "source", {**guests.MANIFEST, "protocol_version": "5"}))
    found = output(Component(path, tmp_path).launcher(), Verb.CHECK, {})
    assert "protocol version 5, and we speak 4" in found.logged[0]
    assert found.lines[0]["level"] == 1


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"\0asm\x01\0\0\0", "it is no component"),
        (b"#!/bin/sh", "does not begin as WebAssembly does"),
        (b"\0asm\x0d\0\x01\0", "must export one of rapidbyte:connector/source@4.0.0"),
        (b"\0asm\x0d\0\x01\0" + section(7, leb128(2**32 - 1)) + section(10, b"\0"), "4,294,967,295 types"),
    ],
)
def test_what_is_no_connector_is_refused(content: bytes, found: str, tmp_path: Path) -> None:
    path = tmp_path / "other.wasm"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=found):
        Component(path, tmp_path).launcher().launch(invocation(Verb.CHECK, {}), environment={})


def test_a_composed_connector_is_refused(fresh: Component, tmp_path: Path) -> None:
    fresh.read("log 2 a")
    (composed,) = fresh.cache.glob("components/*.wasm")
    path = tmp_path / "composed.wasm"
    path.write_bytes(sealed_content(str(composed)) or b"")
    with pytest.raises(ConfigError, match="it is composed already"):
        Component(path, tmp_path).launcher().launch(invocation(Verb.CHECK, {}), environment={})


def test_a_variable_that_is_not_granted_is_an_error(source: Component) -> None:
    options = LaunchOptions(permissions=Permissions(("TOKEN=x",)))
    with pytest.raises(ConfigError, match="env_vars names TOKEN, which it is not granted"):
        source.launcher(options=options).launch(invocation(Verb.CHECK, {}), environment={})


_OURS, _STORE = "holds our own files, or is among them", "holds the state store"


@pytest.mark.parametrize(
    ("preopen", "found"),
    [("home", _OURS), ("home/states", _OURS), ("..", _OURS), ("project", _STORE), ("disk", _STORE)],
)
def test_our_own_files_are_never_in_a_folder_of_a_component(preopen: str, found: str, tmp_path: Path) -> None:
    for folder in ("home/states", "project/exports", "disk"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "disk" / "shop.db").touch()
    (store := tmp_path / "project" / "state.db").symlink_to("../disk/shop.db")
    manifest = {**guests.MANIFEST, "permissions": {"fs": {"preopens": [f"{tmp_path}/{preopen}"]}}}
    path = tmp_path / "nosy.wasm"
    path.write_bytes(guests.connector(tmp_path, "source", manifest))
    options = LaunchOptions(permissions=Permissions(hidden=(tmp_path / "home",), hidden_files=(store,)))
    with pytest.raises(ConfigError, match=found):
        Component(path, tmp_path).launcher(options=options).launch(invocation(Verb.CHECK, {}), environment={})
    allowed = Component(path, tmp_path).launcher(Narrowing(preopens=()), options)
    assert output(allowed, Verb.CHECK, {}).lines[0]["status"] == "success"


@pytest.mark.parametrize("preopen", ["/proc", "/proc/self/task", "/sys", "/dev", "/"])
def test_a_folder_of_the_kernel_is_no_folder_of_a_component(preopen: str, tmp_path: Path) -> None:
    manifest = {**guests.MANIFEST, "permissions": {"fs": {"preopens": [preopen]}}}
    path = tmp_path / "nosy.wasm"
    path.write_bytes(guests.connector(tmp_path, "source", manifest))
    with pytest.raises(ConfigError, match="holds files of the kernel"):
        Component(path, tmp_path).launcher().launch(invocation(Verb.CHECK, {}), environment={})


def test_a_folder_within_another_is_refused_also_where_a_link_hides_it(tmp_path: Path) -> None:
    outer, inner = tmp_path / "data", tmp_path / "data" / "exports"
    inner.mkdir(parents=True)
    manifest = {**guests.MANIFEST, "permissions": {"fs": {"preopens": [str(outer), str(inner)]}}}
    path = tmp_path / "nested.wasm"
    path.write_bytes(guests.connector(tmp_path, "source", manifest))
    launcher = Component(path, tmp_path).launcher()
    for _ in range(2):
        with pytest.raises(ConfigError, match="exports lies within its folder"):
            launcher.launch(invocation(Verb.CHECK, {}), environment={})
        if not inner.is_symlink():  # As the component could, once it has the outer one.
            inner.rmdir()
            (tmp_path / "secret").mkdir()
            inner.symlink_to("../secret")
    assert output(Component(path, tmp_path).launcher(Narrowing(preopens=(str(outer),))), Verb.CHECK, {}).lines


def test_two_writers_of_one_file_of_the_cache_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, replace = str(tmp_path / "a.wasm"), os.replace

    def interrupted(unfinished: str, target: str) -> None:
        monkeypatch.setattr(os, "replace", replace)
        write_sealed(target, b"other")
        replace(unfinished, target)

    monkeypatch.setattr(os, "replace", interrupted)
    write_sealed(path, b"one")
    assert sealed_content(path) == b"one"


def test_what_a_killed_writer_left_is_pruned_with_its_component(tmp_path: Path) -> None:
    left = tmp_path / "components" / "abc-w1.cwasm.0123"
    left.parent.mkdir()
    left.touch()
    (kept,) = compiled_components.kept_components(tmp_path)
    assert kept.files == (left,)


def test_identity_is_that_of_the_bytes_and_the_grants(source: Component, tmp_path: Path) -> None:
    assert source.launcher().identity() == source.launcher().identity()
    assert source.launcher(Narrowing(hosts=())).identity() != source.launcher().identity()
    with pytest.raises(ConfigError, match="No such file"):
        Component(tmp_path / "gone.wasm", tmp_path).launcher().identity()
