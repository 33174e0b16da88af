"""Spark's classes as a JVM has them once they are read and checked, kept for the next one: half the CPU of its start.

The JVM does it all (class data sharing). The first one of a Java and a Spark leaves the archive behind when it ends, in
some seconds that nobody waits for. One that cannot use an archive starts without it.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_COMPLETE = (0xF00BABA8).to_bytes(4, sys.byteorder)
"""How an archive begins. The JVM writes it last."""
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_BASE = ".base"
_PATIENCE_SECONDS = 60
_KEEP_SECONDS = 30 * 24 * 3600


@contextmanager
def class_archive(cache: Path, java_home: Path, jars: Path) -> Iterator[tuple[str, ...]]:
    """Options for a JVM that is started inside: to use the archive of this Java and these jars, or else to make it.

    No options where there is no place for one. What a JVM that does not come up has loaded is not worth keeping.
    """
    archive = cache / f"spark-{_identity(java_home, jars)}.jsa"
    made = archive.with_suffix(f".{os.getpid()}")
    try:
        yield _options(archive, made, java_home)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def _options(archive: Path, made: Path, java_home: Path) -> tuple[str, ...]:
    with suppress(OSError, subprocess.SubprocessError):
        archive.parent.mkdir(parents=True, exist_ok=True)
        _adopt(archive)
        if not archive.exists():
            _forget_old(archive.parent)
            return (*_base(archive, java_home), f"-XX:ArchiveClassesAtExit={made}", *_QUIET)
        for used in (archive, archive.with_suffix(_BASE)):
            if used.exists():
                os.utime(used)
        return (f"-XX:SharedArchiveFile={archive}", *_QUIET)
    return ()


def _base(archive: Path, java_home: Path) -> tuple[str, ...]:
    """The archive of Java's own classes that ours lies on, for a JRE that comes without: that of the wheel."""
    if (java_home / "lib" / "server" / "classes.jsa").exists():
        return ()
    base = archive.with_suffix(_BASE)
    if not base.exists():
        dumped = archive.with_suffix(f".base{os.getpid()}")
        command = [str(java_home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={dumped}", *_QUIET]
        subprocess.run(command, capture_output=True, check=True, timeout=_PATIENCE_SECONDS)
        dumped.replace(base)
    return (f"-XX:SharedArchiveFile={base}",)


def _identity(java_home: Path, jars: Path) -> str:
    """Of what a JVM compares before it takes an archive: itself, and the jars as they lie there.

    Times in whole seconds, as a JVM does: the layers of an image keep no more.
    """
    java = java_home.resolve()
    found = [f"{jar.name} {(stat := jar.stat()).st_size} {int(stat.st_mtime)}" for jar in sorted(jars.glob("*.jar"))]
    machine = (java / "lib" / "server" / "libjvm.so", java / "lib" / "modules")
    versions = [f"{file} {int(file.stat().st_mtime)}" for file in machine if file.exists()]
    return hashlib.sha256("\n".join([str(java), *versions, str(jars), *found]).encode()).hexdigest()[:16]


def _adopt(archive: Path) -> None:
    """Takes over what an earlier JVM left; of what is not complete that JVM may still be at work."""
    for made in archive.parent.glob(f"{archive.stem}.[0-9]*"):
        with made.open("rb") as file:
            is_complete = file.read(len(_COMPLETE)) == _COMPLETE
        if is_complete:
            made.replace(archive)


def _forget_old(cache: Path) -> None:
    for file in cache.glob("spark-*.*"):
        if file.stat().st_mtime < time.time() - _KEEP_SECONDS:
            file.unlink(missing_ok=True)
