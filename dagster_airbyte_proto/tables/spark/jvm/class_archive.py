"""Keeps an archive of Spark's loaded classes for the next JVM, which saves half the CPU of its start.

The JVM does the work (class data sharing, docs/decisions/0016). The first JVM of a Java and a Spark writes the archive
when it ends, in some seconds that nobody waits for. A JVM that cannot use an archive starts without it.
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
"""The first bytes of an archive. The JVM writes them last, so an archive that was cut off lacks them."""
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_BASE = ".base"
_DUMP_TIMEOUT_SECONDS = 60
_KEEP_SECONDS = 30 * 24 * 3600
_KEEP_FILES = 12
"""Of 200 MB each. Every virtual environment has its own, and machines that build software make new ones all day."""


@contextmanager
def class_archive(cache: Path, java_home: Path, jars: Path) -> Iterator[tuple[str, ...]]:
    """Gives the options for a JVM that is started inside: they use the archive of this Java and these jars, or make it.

    Gives no options where the cache cannot be written. The archive of a JVM that does not come up is removed.
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
        _take_over(archive)
        if not archive.exists():
            _remove_old(archive.parent)
            return (*_base(archive, java_home), f"-XX:ArchiveClassesAtExit={made}", *_QUIET)
        for used in (archive, archive.with_suffix(_BASE)):
            if used.exists():
                os.utime(used)
        return (f"-XX:SharedArchiveFile={archive}", *_QUIET)
    return ()


def _base(archive: Path, java_home: Path) -> tuple[str, ...]:
    """Returns the option for the base archive, with Java's own classes.

    The wheel's JRE comes without one, so it is made.
    """
    if (java_home / "lib" / "server" / "classes.jsa").exists():
        return ()
    base = archive.with_suffix(_BASE)
    if not base.exists():
        dumped = archive.with_suffix(f".base{os.getpid()}")
        command = [str(java_home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={dumped}", *_QUIET]
        subprocess.run(command, capture_output=True, check=True, timeout=_DUMP_TIMEOUT_SECONDS)
        dumped.replace(base)
    return (f"-XX:SharedArchiveFile={base}",)


def _identity(java_home: Path, jars: Path) -> str:
    """Returns a digest of what a JVM compares before it takes an archive: its own files, and the jars by size and time.

    Times are in whole seconds, as in the JVM: the layers of a container image keep no fractions.
    """
    java = java_home.resolve()
    found = [f"{jar.name} {(stat := jar.stat()).st_size} {int(stat.st_mtime)}" for jar in sorted(jars.glob("*.jar"))]
    machine = (java / "lib" / "server" / "libjvm.so", java / "lib" / "modules")
    versions = [f"{file} {int(file.stat().st_mtime)}" for file in machine if file.exists()]
    return hashlib.sha256("\n".join([str(java), *versions, str(jars), *found]).encode()).hexdigest()[:16]


def _take_over(archive: Path) -> None:
    """Renames the complete archive of an earlier JVM to its place.

    Another JVM may still be writing an incomplete one.
    """
    for made in archive.parent.glob(f"{archive.stem}.[0-9]*"):
        with made.open("rb") as file:
            is_complete = file.read(len(_COMPLETE)) == _COMPLETE
        if is_complete:
            made.replace(archive)


def _remove_old(cache: Path) -> None:
    """Removes what was not used for long, and all but what was used last."""
    used = sorted(((file.stat().st_mtime, file) for file in cache.glob("spark-*.*")), reverse=True)
    for number, (time_used, file) in enumerate(used):
        if number >= _KEEP_FILES or time_used < time.time() - _KEEP_SECONDS:
            file.unlink(missing_ok=True)
