"""Opens a connector registry from a file or a URL. A URL's answer is cached and downloaded again only if it changed.

Messages show only the scheme, host and path of a URL: the rest may hold a password or a token.
"""

import hashlib
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from socket import gaierror
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import msgspec

from dagster_airbyte_proto.atomic_files import write_atomically
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.registry.connectors import ConnectorRegistry, read_registry
from dagster_airbyte_proto.project_folder import expanded

PUBLIC_REGISTRY = "https://connectors.airbyte.com/files/registries/v0/oss_registry.json"
"""Airbyte's own list of its connectors."""

_TIMEOUT_SECONDS = 30.0
_MAX_BYTES = 256 << 20
_NOT_MODIFIED = 304


class _CachedAnswer(msgspec.Struct):
    """The headers of a cached answer. `digest` is that of the content: the two files are not written in one step."""

    digest: str
    etag: str = ""
    last_modified: str = ""


_ANSWER_DECODER = msgspec.json.Decoder(_CachedAnswer)


class _CacheFiles(NamedTuple):
    """The cache files of one URL."""

    content: Path
    about: Path

    @classmethod
    def of(cls, url: str, folder: Path) -> "_CacheFiles":
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        return cls(folder / f"{name}.json", folder / f"{name}.about.json")

    def read(self) -> tuple[bytes, _CachedAnswer] | None:
        try:
            content, about = self.content.read_bytes(), _ANSWER_DECODER.decode(self.about.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        return (content, about) if about.digest == hashlib.sha256(content).hexdigest() else None

    def write(self, content: bytes, about: _CachedAnswer) -> None:
        write_atomically(self.content, content)
        write_atomically(self.about, msgspec.json.encode(about))


def open_registry(place: str, *, cache: Path, on_warning: Callable[[str], None]) -> ConnectorRegistry:
    """Opens the registry at a path or a URL. Raises ConfigError if there is none, or it cannot be read.

    If a URL does not answer but its last answer is cached, that is used, with a warning.
    """
    if urlsplit(place).scheme in ("http", "https"):
        return _fetch(place, _CacheFiles.of(place, cache), on_warning)
    try:
        content = expanded(place).read_bytes()
    except OSError as error:
        raise _open_error(place, error.strerror or str(error)) from error
    return read_registry(content, where=place)


def _fetch(url: str, cached: _CacheFiles, on_warning: Callable[[str], None]) -> ConnectorRegistry:
    cached_answer = cached.read()
    where = _without_credentials(url)
    try:
        answer = _request(url, cached_answer[1] if cached_answer else None)
    except (OSError, HTTPException, ValueError) as error:
        if cached_answer is None:
            raise _open_error(where, _reason(error)) from None
        on_warning(f"the connector registry {where} cannot be reached ({_reason(error)}): its last answer is used")
        answer = None
    if answer is None and cached_answer is not None:
        return read_registry(cached_answer[0], where=where)
    if answer is None:
        raise _open_error(where, "it says that nothing changed, but no earlier answer is cached")
    registry = read_registry(answer[0], where=where)
    try:
        cached.write(*answer)
    except OSError as error:  # On a read-only disk, or a full one: the next call downloads it again.
        on_warning(f"the connector registry is not kept in {cached.content.parent}: {error.strerror or error}")
    return registry


def _request(url: str, cached_answer: _CachedAnswer | None) -> tuple[bytes, _CachedAnswer] | None:
    """Downloads the registry; None if the cached answer is still current."""
    validators = (
        {"If-None-Match": cached_answer.etag, "If-Modified-Since": cached_answer.last_modified} if cached_answer else {}
    )
    place, login = _without_login(url)
    marks = {name: mark for name, mark in validators.items() if mark}
    request = Request(place, headers=marks)  # noqa: S310 - http or https
    if login:
        request.add_unredirected_header("Authorization", login)
    try:
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - likewise
            content = answer.read(_MAX_BYTES + 1)
            headers = answer.headers
    except HTTPError as error:
        error.close()
        if error.code == _NOT_MODIFIED:
            return None
        raise
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES} bytes")
    digest = hashlib.sha256(content).hexdigest()
    return content, _CachedAnswer(digest, headers.get("ETag", ""), headers.get("Last-Modified", ""))


def _without_login(url: str) -> tuple[str, str]:
    """The URL as urllib takes it, which knows no login in one, and the header for that login; empty for none."""
    parts = urlsplit(url)
    login, is_there, host = parts.netloc.rpartition("@")
    if not is_there:
        return url, ""
    name, _, password = login.partition(":")
    encoded = b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    return parts._replace(netloc=host).geturl(), f"Basic {encoded}"


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"it answers {error.code} {error.reason}"
    reason = getattr(error, "reason", "") or error
    if isinstance(reason, gaierror):
        return "the host cannot be found; check the network"
    return str(reason)


def _open_error(where: str, found: str) -> ConfigError:
    remedy = (
        "Name the path or the URL of another with --registry, or as `registry` in the settings. A package, an image, a "
        "manifest or a command needs no registry."
    )
    return ConfigError(f"opening the connector registry {where}", found, remedy=remedy)
