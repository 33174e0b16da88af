"""The jars that Spark fetches when a JVM starts: which of them are on this machine, and one download at a time.

Ivy keeps them in one folder for all processes of a user, and takes no lock there. Of two JVMs that download the same
jar at once, one moves away the file that the other writes, and that one ends: "Downloaded file size (0) doesn't match".
"""

import fcntl
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.project_folder import expanded
from dagster_airbyte_proto.tables.only_writer import locked_in_time

IVY_RULES = "spark.jars.ivySettings"
"""The setting that names a user's own rules for Ivy. They can have Ivy take locks: `lockStrategy`."""
_LOCK = "jars.lock"
_POLL_SECONDS = 0.1
_MOST_SECONDS = 600.0


class Package(NamedTuple):
    """A package as `spark.jars.packages` names it."""

    group: str
    artifact: str
    version: str

    @property
    def path(self) -> str:
        """Its jar in a Maven repository."""
        folder = f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}"
        return f"{folder}/{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.artifact} {self.version}"


def named_packages(config: Mapping[str, str]) -> list[Package]:
    """The packages of a session's configuration."""
    return [Package(*name.split(":")) for name in setting_items(config, "spark.jars.packages") if name.count(":") == 2]


def setting_items(config: Mapping[str, str], key: str) -> list[str]:
    """The items of a setting with commas."""
    return [item.strip() for item in config.get(key, "").split(",") if item.strip()]


def is_in_ivys_cache(package: Package, config: Mapping[str, str]) -> bool:
    named = config.get("spark.jars.ivy")
    folders = [Path(named)] if named else sorted(expanded("~").glob(".ivy2*"))
    jar = f"cache/{package.group}/{package.artifact}/jars/{package.artifact}-{package.version}.jar"
    return any((folder / jar).is_file() for folder in folders)


def needs_no_network(package: Package, config: Mapping[str, str]) -> bool:
    """True if Spark finds the jar on this machine, in Ivy's cache or in Maven's repository."""
    return is_in_ivys_cache(package, config) or (expanded("~") / ".m2/repository" / package.path).is_file()


@contextmanager
def download_lock(cache: Path, config: Mapping[str, str], given_up: threading.Event) -> Iterator[None]:
    """Held while a JVM starts: by one process alone if it may have to download, else by any number of them.

    These wait too while another downloads, for a package can be there before the jars that it needs. Goes on without
    the lock where the cache cannot be locked, or after ten minutes. Raises ConfigError if `given_up` is set meanwhile.
    """
    packages = named_packages(config)
    lock = None if not packages or config.get(IVY_RULES) else _open_lock(cache)
    if lock is None:
        yield
        return
    try:
        is_complete = all(is_in_ivys_cache(package, config) for package in packages)
        _wait(lock, fcntl.LOCK_SH if is_complete else fcntl.LOCK_EX, given_up)
        yield
    finally:
        os.close(lock)


def _open_lock(cache: Path) -> int | None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return os.open(cache / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _wait(lock: int, mode: int, given_up: threading.Event) -> None:
    deadline = time.monotonic() + _MOST_SECONDS
    try:
        while not locked_in_time(lock, _POLL_SECONDS, mode) and time.monotonic() < deadline:
            if given_up.is_set():
                found = "it was given up while another process downloaded Spark's jars"
                raise ConfigError("starting Spark", found, remedy="Try again.")
    except OSError:  # a file system without locks
        return
