"""The cache of composed and compiled components: private, and keyed by all that went into them.

A connector is composed here, in milliseconds, and compiled by the child program, which may take seconds. Both files are
sealed: see child_program.py, which says what is trusted.
"""

import hashlib
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConfigError, StagingError
from dagster_airbyte_proto.launchers.wasm.child_program import sealed_content, write_sealed
from dagster_airbyte_proto.launchers.wasm.composition.compose import ADAPTER_VERSION, compose, without_wasmtime
from dagster_airbyte_proto.launchers.wasm.composition.connector_header import read_header

_FOLDER = "components"
_START_MINUTES = 10
"""A component that is starting has its name and not yet its bytes. So none goes that was used just now."""


class CachedComponent(NamedTuple):
    """The files of one connector in the cache. The one of compiled code may not be there yet."""

    composed: Path
    compiled: Path
    role: str

    @property
    def is_compiled(self) -> bool:
        return self.compiled.exists()


def read_connector(path: Path, read_file: Callable[[Path], bytes]) -> bytes:
    """The bytes of a connector's file. Raises ConfigError if it cannot be read."""
    try:
        return read_file(path)
    except OSError as error:
        doing = f"reading the component {path}"
        raise ConfigError(doing, error.strerror or str(error), remedy="`path` names a .wasm file.") from error


def wasmtime_version() -> str:
    """The version of wasmtime that is installed. Raises ConfigError if none is."""
    try:
        return version("wasmtime")
    except PackageNotFoundError as error:
        raise without_wasmtime() from error


def cached_component(binary: bytes, name: str, cache: Path) -> CachedComponent:
    """Composes the connector unless that is done already. `name` is for messages.

    Raises ConfigError if it is not one that we can host, StagingError if the cache cannot be written.
    """
    runtime = wasmtime_version()
    digest = hashlib.sha256(binary).hexdigest()[:32]
    folder = cache / _FOLDER
    composed = folder / f"{digest}-a{ADAPTER_VERSION}.wasm"
    key = f"{digest}-a{ADAPTER_VERSION}-w{runtime}-{sys.platform}-{platform.machine()}"
    role = read_header(binary, name).role
    if sealed_content(str(composed)) is None:
        component = compose(binary, name).component
        try:
            _make_private(folder)
            write_sealed(str(composed), component)
        except OSError as error:
            raise StagingError(
                f"keeping the component {name}", f"{error.strerror or error} ({folder})", remedy="Make room there."
            ) from error
    with suppress(OSError):  # A cache that is not ours has its own care.
        os.utime(composed)
    return CachedComponent(composed, folder / f"{key}.cwasm", role)


class KeptComponent(NamedTuple):
    """A component in the cache: its composed form, and what was compiled of it for each runtime and machine."""

    files: tuple[Path, ...]
    size_bytes: int
    used_at: datetime


def kept_components(cache: Path) -> list[KeptComponent]:
    """The components in the cache, by the digests of their bytes."""
    files: dict[str, list[tuple[Path, os.stat_result]]] = {}
    for path in sorted((cache / _FOLDER).glob("*wasm*")):  # Those that a killed writer left too.
        with suppress(OSError):  # Another process removes it.
            files.setdefault(path.name.partition("-")[0], []).append((path, path.lstat()))
    return [
        KeptComponent(
            tuple(path for path, _ in each),
            sum(about.st_size for _, about in each),
            datetime.fromtimestamp(max(about.st_mtime for _, about in each), UTC),
        )
        for each in files.values()
    ]


def unused_components(cache: Path, before: datetime) -> list[KeptComponent]:
    """Those that were not used since then, and are not starting now. A running one needs its files no more."""
    newest = min(before, datetime.now(UTC) - timedelta(minutes=_START_MINUTES))
    return [each for each in kept_components(cache) if each.used_at <= newest]


def remove_component(component: KeptComponent) -> None:
    """Removes it; the next run composes and compiles it again."""
    for path in component.files:
        path.unlink(missing_ok=True)


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid == os.geteuid() and about.st_mode & 0o077:
        folder.chmod(0o700)
