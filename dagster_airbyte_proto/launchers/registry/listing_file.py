"""Where a connector registry comes from: a file, or a URL whose answer is kept and asked for again only if it changed.

What a URL holds beside its host and path (a password, a token) is not shown.
"""

import hashlib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import msgspec

from dagster_airbyte_proto.errors import ConfigError, StagingError
from dagster_airbyte_proto.launchers.registry.listing import Registry, read_registry
from dagster_airbyte_proto.whole_files import write_whole

_PATIENCE_SECONDS = 30.0
_MAX_BYTES = 256 << 20
_NOT_MODIFIED = 304


class _Kept(msgspec.Struct):
    """What was told of the content that is kept beside it. `digest` is that content's: the two are written apart."""

    digest: str
    etag: str = ""
    last_modified: str = ""


# Made here, in one thread: two that use a type for the first time at once can crash msgspec.
_KEPT = msgspec.json.Decoder(_Kept)


class _Cached(NamedTuple):
    """The files of one URL."""

    content: Path
    about: Path

    @classmethod
    def of(cls, url: str, folder: Path) -> "_Cached":
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        return cls(folder / f"{name}.json", folder / f"{name}.about.json")

    def read(self) -> tuple[bytes, _Kept] | None:
        try:
            content, about = self.content.read_bytes(), _KEPT.decode(self.about.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        return (content, about) if about.digest == _digest(content) else None

    def write(self, content: bytes, about: _Kept) -> None:
        try:
            write_whole(self.content, content)
            write_whole(self.about, msgspec.json.encode(about))
        except OSError as error:
            raise StagingError(f"keeping the connector registry in {self.content.parent}", str(error)) from error


def open_registry(place: str, *, cache: Path, on_warning: Callable[[str], None]) -> Registry:
    """The registry at a path or a URL. Raises ConfigError when there is none, or none that can be read.

    A URL that does not answer is no fault where its last answer is kept: a warning says so.
    """
    if urlsplit(place).scheme in ("http", "https"):
        return _fetched(place, _Cached.of(place, cache), on_warning)
    try:
        content = Path(place).expanduser().read_bytes()
    except OSError as error:
        raise _refusal(place, error.strerror or str(error)) from error
    return read_registry(content, where=place)


def _fetched(url: str, cached: _Cached, on_warning: Callable[[str], None]) -> Registry:
    kept = cached.read()
    where = _shown(url)
    try:
        answer = _asked(url, kept[1] if kept else None)
    except (OSError, HTTPException, ValueError) as error:
        if kept is None:
            raise _refusal(where, _reason(error)) from None
        on_warning(f"the connector registry {where} is not to be had ({_reason(error)}): its last answer is used")
        answer = None
    if answer is None and kept is not None:
        return read_registry(kept[0], where=where)
    if answer is None:
        raise _refusal(where, "it says that nothing changed, and nothing was asked before")
    registry = read_registry(answer[0], where=where)
    cached.write(*answer)
    return registry


def _asked(url: str, kept: _Kept | None) -> tuple[bytes, _Kept] | None:
    """What it answers, or None when that is what is kept."""
    marks = {"If-None-Match": kept.etag, "If-Modified-Since": kept.last_modified} if kept else {}
    request = Request(url, headers={name: mark for name, mark in marks.items() if mark})  # noqa: S310 - http or https
    try:
        with urlopen(request, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - likewise
            content = answer.read(_MAX_BYTES + 1)
            told = answer.headers
    except HTTPError as error:
        error.close()
        if error.code == _NOT_MODIFIED:
            return None
        raise
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES} bytes")
    return content, _Kept(_digest(content), told.get("ETag", ""), told.get("Last-Modified", ""))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"it answers {error.code} {error.reason}"
    return str(getattr(error, "reason", "") or error)


def _refusal(where: str, found: str) -> ConfigError:
    remedy = "Correct `registry` in the settings, or --registry: the path or the URL of a registry file."
    return ConfigError(f"opening the connector registry {where}", found, remedy=remedy)
