#!/usr/bin/env python3
"""A connector that behaves as its first argument says, once its other arguments are printed. Runs under `-S`."""

import hashlib
import os
import signal
import socket
import sys
import time
from pathlib import Path

LINE = b'{"type":"RECORD","record":{"stream":"users","data":{"id":1},"emitted_at":1}}\n'


def lines() -> None:
    """A little of everything, and a last line without its newline."""
    os.write(1, LINE * 1000 + b'{"type":"STATE"')
    os.write(2, b"first\nlast")


def fail() -> None:
    os.write(1, LINE)
    os.write(2, b"it broke\n")
    sys.exit(3)


def big() -> None:
    block = LINE * 10_000
    left = 200_000_000
    while left > 0:
        left -= os.write(1, block[:left])


def die() -> None:
    os.write(1, LINE)
    os.kill(os.getpid(), signal.SIGSEGV)


def folder() -> None:
    """Tells where its config is, who may read it, and rewrites it as real connectors do."""
    config = Path(sys.argv[2])
    modes = [oct(path.stat().st_mode & 0o777) for path in (config.parent, config)]
    content = config.read_text()
    config.write_text("migrated")
    (config.parent / "left-over").mkdir()
    os.write(1, "\n".join([str(config.parent), *modes, content]).encode())


def link() -> None:
    """Puts a link in the place of its config."""
    config = Path(sys.argv[2])
    config.unlink()
    config.symlink_to("/etc/passwd")


def large_folder() -> None:
    """Puts a folder with 300 MB in the place of its config."""
    config = Path(sys.argv[2])
    config.unlink()
    config.mkdir()
    with (config / "filling").open("wb") as file:
        for _ in range(300):
            file.write(bytes(1 << 20))


def environment() -> None:
    os.write(1, os.environ.get("FAKE", "").encode())


def all_variables() -> None:
    import json

    os.write(1, json.dumps(dict(os.environ)).encode())


def echo() -> None:
    """Writes what it reads, and says how the input ended."""
    while data := os.read(0, 1 << 16):
        while data:
            data = data[os.write(1, data) :]
    os.write(2, b"end of input\n")


def write_first() -> None:
    """Writes more than a pipe holds before it reads."""
    left = 8_000_000
    while left > 0:
        left -= os.write(1, b"x" * min(left, 1 << 16))
    echo()


def read_first() -> None:
    """Reads all of its input before it writes."""
    size = 0
    while data := os.read(0, 1 << 16):
        size += len(data)
    os.write(1, b"%d" % size)


def read_slowly() -> None:
    """Reads less at a time than anybody writes."""
    digest = hashlib.sha256()
    while data := os.read(0, 500):
        digest.update(data)
    os.write(1, digest.hexdigest().encode())


def close_stdin() -> None:
    os.close(0)
    os.write(1, LINE)
    time.sleep(600)


def hang() -> None:
    os.write(1, LINE)
    time.sleep(600)


def hang_and_tell() -> None:
    os.write(1, b"%d\n" % os.getpid())
    time.sleep(600)


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang()


def say_goodbye() -> None:
    """Has more to say at SIGTERM than a pipe holds."""

    def goodbye(number: int, frame: object) -> None:
        left = 4_000_000
        while left > 0:
            left -= os.write(1, b"x" * left)
        os._exit(7)

    signal.signal(signal.SIGTERM, goodbye)
    hang()


def close_stdout() -> None:
    os.write(1, LINE)
    os.close(1)
    time.sleep(600)


def flood_stderr() -> None:
    for _ in range(1000):
        os.write(2, b"x" * 99_999 + b"\n")
    os.write(2, b"the end\n")
    os.write(1, LINE)


def endless_stderr_line() -> None:
    for _ in range(1000):
        os.write(2, b"x" * 100_000)
    os.write(1, LINE)


def confinement() -> None:
    """Tells what it may do."""
    status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    told = {
        "user": f"{os.getuid()}:{os.getgid()}",
        "capabilities": status["CapBnd"],
        "no_new_privileges": status["NoNewPrivs"],
        "writable": ",".join(path for path in (str(Path.cwd()), "/tmp", "/") if os.access(path, os.W_OK)),
        "networks": ",".join(sorted(name for _, name in socket.if_nameindex())),
        "folder": str(Path.cwd()),
    }
    os.write(1, "\n".join(f"{key}={value}" for key, value in told.items()).encode())


def routes() -> None:
    os.write(1, Path("/proc/net/route").read_bytes())


def surroundings() -> None:
    """Tells where its stdout leads, and what variables it has."""
    os.write(1, " ".join([str(Path("/proc/self/fd/1").readlink()), *sorted(os.environ)]).encode())


def eat_memory() -> None:
    """Eats half a GiB, and keeps it."""
    eaten = [b"x" * (1 << 20) for _ in range(512)]
    time.sleep(600)
    eaten.clear()


def family_of_eaters() -> None:
    """Three processes, each of which eats a third of 240 MiB."""
    for _ in range(2):
        if os.fork() == 0:
            break
    eaten = b"x" * (80 << 20)
    time.sleep(600)
    del eaten


def talk_for_ever() -> None:
    """Ends well when it is asked to end."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        os.write(1, LINE)


def family() -> None:
    """A grandchild in our group, and one that left it; both deaf to SIGTERM, both holding stdout open."""
    ready, told = os.pipe()
    for leaves in (False, True):
        if os.fork() == 0:
            if os.fork() == 0:
                if leaves:
                    os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.write(told, f"{os.getpid()} ".encode())
                time.sleep(600)
            os._exit(0)
    said = b""
    while said.count(b" ") < 2:
        said += os.read(ready, 64)
    os.write(1, b"%d %s\n" % (os.getpid(), said))


def family_and_wait() -> None:
    family()
    time.sleep(600)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
