"""A stand-alone program that runs one composed component under its limits. `launcher.py` starts it.

It runs under `python -I -S`, outside the package, to start fast; so it imports only the standard library and wasmtime,
whose folder is its only argument. Stdin and stdout belong to the component, stderr takes what it prints. Before that,
the task comes on stdin (its length in 4 bytes, then JSON: no argument, which every user of this machine could read),
and one message goes out when the component is ready (READY of the protocol's `wire.py`).

Nothing here looks at what the component does, and nobody here ends it: it may spin, sleep or wait for ever. The
launcher's guardian ends it, by a signal that no component can catch.

The compiled code is native code: who can write that file runs code here. So it is used only if it belongs to us, nobody
else can write it or its folder, and it is what we wrote, by the digest in front of it. Otherwise, and if wasmtime does
not load it, it is compiled again.
"""

import fcntl
import hashlib
import json
import os
import stat
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DIGEST_BYTES = 32
TRAPPED, OUT_OF_MEMORY, NOT_LOADED = 70, 71, 72
"""The exit codes of this program; 0 if the component ended by itself."""
MARK = "wasmtime: "
MEMORY, DECLARED, GRANTED = "memory:", "declared", "granted"
"""The words of the last line: the size of its memory, its limit, and whether its manifest sets that."""
_READY = struct.Struct("<IIII14Q")
_MAGIC, _READY_NUMBER = 0x34574252, 1 << 16
_MAX_TASK_BYTES = 64 << 20
_LOCK_SECONDS, _LOOK_SECONDS = 300.0, 0.05
MEMORIES, INSTANCES, TABLES, TABLE_ELEMENTS = 3, 64, 64, 1 << 20
"""The memories are the connector's, and those of the two halves of the adapter. The limit holds for each."""
_RESERVED_BYTES = 4 << 30
"""The addresses that wasmtime reserves for a memory. It opens those to which the memory has grown."""
_MEMORY_WORDS = ("memory minimum size", "exceeds memory limits", "memory allocation of", "forcing trap when growing")


def main(wasmtime_folder: str) -> None:
    sys.path.append(wasmtime_folder)
    (size,) = struct.unpack("<I", _read(4))
    task = json.loads(_read(min(size, _MAX_TASK_BYTES)))
    import wasmtime
    from wasmtime.component import Linker

    try:
        engine = wasmtime.Engine()
        component, was_compiled = _loaded(engine, task["component"], task["compiled"])
        store = wasmtime.Store(engine)
        store.set_limits(
            memory_size=task["memory_bytes"],
            table_elements=TABLE_ELEMENTS,
            instances=INSTANCES,
            tables=TABLES,
            memories=MEMORIES,
        )
        store.set_wasi(_wasi(task))
        linker = Linker(engine)
        linker.add_wasip2()
        _write(_READY.pack(_MAGIC, _READY_NUMBER, 0, 0, was_compiled, *[0] * 13))
        instance: Any = linker.instantiate(store, component)
        exported = instance.get_export_index(store, "wasi:cli/run@0.2.0")
        run = instance.get_func(store, instance.get_export_index(store, "run", exported))
    except (wasmtime.WasmtimeError, OSError) as error:
        _end(NOT_LOADED, str(error), task)
    try:
        run(store)
    except (wasmtime.Trap, wasmtime.WasmtimeError) as error:
        _end(TRAPPED, str(error), task)
    os._exit(0)


def _wasi(task: dict[str, Any]) -> Any:
    import wasmtime

    wasi = wasmtime.WasiConfig()
    wasi.argv = ["connector"]
    wasi.env = list(task["variables"].items())
    for folder, name in task["preopens"]:
        wasi.preopen_dir(folder, name)
    wasi.inherit_stdin()
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    return wasi


def _loaded(engine: Any, component: str, compiled: str) -> tuple[Any, bool]:
    """The component, and whether it had to be compiled."""
    from wasmtime.component import Component

    found = _compiled(engine, compiled)
    if found is not None:
        return found, False
    with _one_at_a_time(compiled):
        found = _compiled(engine, compiled)
        if found is not None:
            return found, False
        binary = sealed_content(component)
        if binary is None:
            raise OSError(f"{component} is not what was written there")
        made = Component(engine, binary)
        try:
            write_sealed(compiled, bytes(made.serialize()))
        except OSError as error:  # The cache saves time, and no more: with a full disk the next program compiles again.
            os.write(2, f"{MARK}the compiled code is not kept: {error.strerror or error}\n".encode())
    return made, True


def _compiled(engine: Any, compiled: str) -> Any:
    """The component by its compiled code; None if there is none that can be used."""
    import wasmtime
    from wasmtime.component import Component

    code = sealed_content(compiled)
    if code is None:
        return None
    try:
        return Component.deserialize(engine, code)
    except wasmtime.WasmtimeError:
        return None  # Another version made it, or for another processor.


@contextmanager
def _one_at_a_time(compiled: str) -> Iterator[None]:
    """Waits while another program compiles the same: partitions of one read start at once, and each would take all
    processors for it.

    A lock ends with the program that holds it. It saves work, and no more: one that cannot be had, or not in time, as
    from a program that was halted, is done without.
    """
    try:
        descriptor = os.open(f"{compiled}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        until = time.monotonic() + _LOCK_SECONDS
        while not _is_locked(descriptor) and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Takes the lock if it is free. True also where the file system has no locks: waiting would change nothing."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def sealed_content(path: str) -> bytes | None:
    """The content of a file of the cache; None if it is missing, damaged, or if others can write it."""
    try:
        folder = os.stat(os.path.dirname(path))  # noqa: PTH120, PTH116 - no pathlib: it takes time to import
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not (stat.S_ISREG(about.st_mode) and _is_private(about) and _is_private(folder)):
            return None
        digest, content = file.read(DIGEST_BYTES), file.read()
    return content if _digest(path, content) == digest else None


def _digest(path: str, content: bytes) -> bytes:
    """A digest of the name too: no file of ours stands for another."""
    return hashlib.sha256(os.path.basename(path).encode() + b"\0" + content).digest()  # noqa: PTH119


def _is_private(about: os.stat_result) -> bool:
    return about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def write_sealed(path: str, content: bytes) -> None:
    """Writes a file of the cache, with its digest in front. Whoever reads sees the whole of it or nothing."""
    unfinished = f"{path}.{os.urandom(8).hex()}"  # Containers that share a folder have the same process ids.
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_digest(path, content))
            file.write(content)
        os.replace(unfinished, path)  # noqa: PTH105
    except BaseException:
        os.unlink(unfinished)  # noqa: PTH108 - a full disk would be fuller each time
        raise


def _read(count: int) -> bytes:
    """Exactly so many bytes: what follows on stdin is for the component."""
    found = b""
    while len(found) < count:
        chunk = os.read(0, count - len(found))
        if not chunk:
            os._exit(0)  # Nobody wants it any more.
        found += chunk
    return found


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _end(code: int, text: str, task: dict[str, Any]) -> None:
    """Ends the program. Each line of the reason is marked, so that it is told from what the component printed."""
    if any(words in text for words in _MEMORY_WORDS):
        code = OUT_OF_MEMORY
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("note: ")]
    set_by = DECLARED if task["memory_is_declared"] else GRANTED
    lines.append(f"{MEMORY} {_largest_memory()} {task['memory_bytes']} {set_by}")
    try:
        os.write(2, "".join(f"\n{MARK}{line}" for line in lines).encode() + b"\n")
    finally:
        os._exit(code)


def _largest_memory() -> int:
    """The size of the component's largest memory; 0 where this system does not show it.

    wasmtime reports to the component alone that a memory was refused to grow. The component gives up in its own way, by
    a trap that says no more, and its memories cannot be reached from here. But the addresses of this program show them:
    each is open in front of a large part that is closed.
    """
    largest = size = opened_until = 0
    try:
        with open("/proc/self/maps", "rb") as file:  # noqa: PTH123
            for line in file:
                addresses, rights = line.split()[:2]
                begin, end = (int(each, 16) for each in addresses.split(b"-"))
                if rights == b"rw-p":  # One behind the other: a part that still is as it was loaded has a file.
                    size, opened_until = end - begin + (size if begin == opened_until else 0), end
                elif rights == b"---p" and begin == opened_until and size + end - begin >= _RESERVED_BYTES:
                    largest = max(largest, size)
    except OSError:
        return 0
    return largest


if __name__ == "__main__":
    main(*sys.argv[1:])
