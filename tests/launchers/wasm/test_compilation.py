"""Programs that start the same component at once: one compiles it, and the others wait for that."""

import fcntl
import json
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from dagster_airbyte_proto.launchers.wasm import child_program, compiled_components
from dagster_airbyte_proto.launchers.wasm.child_program import sealed_content, write_sealed
from dagster_airbyte_proto.launchers.wasm.compiled_components import CachedComponent, cached_component
from dagster_airbyte_proto.protocols.rapidbyte.component.wire import MessageReader, Ready
from tests.conformance.launcher import until
from tests.launchers.wasm.conftest import Component


@contextmanager
def _started(component: CachedComponent) -> Iterator["subprocess.Popen[bytes]"]:
    wasmtime = find_spec("wasmtime")
    assert wasmtime is not None and wasmtime.origin is not None
    command = [sys.executable, "-I", "-S", child_program.__file__, str(Path(wasmtime.origin).parent.parent)]
    task = {
        "component": str(component.composed), "compiled": str(component.compiled),
        "memory_bytes": 1 << 28, "variables": {}, "preopens": [],
    }  # fmt: skip
    written = json.dumps(task).encode()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        program.stdin.write(struct.pack("<I", len(written)) + written)
        program.stdin.flush()
        yield program
        program.kill()


def _was_compiled(program: "subprocess.Popen[bytes]") -> bool:
    assert program.stdout is not None
    reader = MessageReader()
    while chunk := os.read(program.stdout.fileno(), 1 << 16):
        for message in reader.feed(chunk):
            if isinstance(message, Ready):
                return message.was_compiled
    raise AssertionError("it ended before it was ready")


def _open_files(program: "subprocess.Popen[bytes]") -> list[str]:
    return [each.path for each in psutil.Process(program.pid).open_files()]


def test_programs_that_start_at_once_compile_a_component_once(source: Component, tmp_path: Path) -> None:
    component = cached_component(source.path.read_bytes(), "source.wasm", tmp_path)
    with ExitStack() as stack:
        programs = [stack.enter_context(_started(component)) for _ in range(4)]
        assert sorted(map(_was_compiled, programs)) == [False, False, False, True]
    with _started(component) as program:
        assert not _was_compiled(program)


def test_one_that_compiles_is_waited_for_until_it_has_ended(source: Component, tmp_path: Path) -> None:
    component = cached_component(source.path.read_bytes(), "source.wasm", tmp_path)
    lock = Path(f"{component.compiled}.lock")
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with _started(component) as program:
            until(lambda: str(lock) in _open_files(program), "it waits for the lock")
            assert not component.is_compiled
            fcntl.flock(held, fcntl.LOCK_UN)  # As where its holder was killed: nothing is there.
            assert _was_compiled(program)
    assert sealed_content(str(component.compiled)) is not None


@pytest.mark.parametrize(
    ("owner", "name", "other"),
    [
        (compiled_components, "ADAPTER_VERSION", 999),
        (compiled_components, "wasmtime_version", lambda: "0.0.1"),
        (platform, "machine", lambda: "riscv64"),
        (sys, "platform", "plan9"),
    ],
    ids=["adapter", "runtime", "machine", "system"],
)
def test_code_that_was_compiled_for_another_runtime_or_machine_is_not_taken(
    owner: object, name: str, other: object, source: Component, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cached_component(source.path.read_bytes(), "source.wasm", tmp_path)
    before.compiled.write_bytes(b"code")
    assert cached_component(source.path.read_bytes(), "source.wasm", tmp_path).is_compiled
    monkeypatch.setattr(owner, name, other)
    assert not cached_component(source.path.read_bytes(), "source.wasm", tmp_path).is_compiled


def test_a_component_of_other_bytes_has_a_place_of_its_own(source: Component, tmp_path: Path) -> None:
    binary = source.path.read_bytes()
    before = cached_component(binary, "source.wasm", tmp_path)
    # A custom section without content changes nothing but the bytes.
    after = cached_component(binary + b"\0\5\4more", "source.wasm", tmp_path)
    assert not {before.composed, before.compiled} & {after.composed, after.compiled}


def test_one_whose_code_cannot_be_kept_runs_all_the_same(source: Component, tmp_path: Path) -> None:
    component = cached_component(source.path.read_bytes(), "source.wasm", tmp_path)
    with _started(component._replace(compiled=tmp_path / "no folder" / component.compiled.name)) as program:
        assert _was_compiled(program)


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "source.wasm").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_sealed(str(tmp_path / "source.wasm"), b"code")
    assert [each.name for each in tmp_path.iterdir()] == ["source.wasm"]
