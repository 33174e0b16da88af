"""The cache of connectors' answers: a sync need not start a connector for a spec or a catalog that it already has.

- `cached/` holds answers, each with the connector identity (and the digest of the config) that it belongs to. The
  folder may be deleted at any time.
- `<connection>.json` beside it is the catalog that a user saved. Assets are made from it.
- All files are JSON that a person can read, and are replaced atomically. A file that cannot be read counts as absent,
  with a warning.
"""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.atomic_files import write_atomically
from dagster_airbyte_proto.errors import InternalError, StagingError
from dagster_airbyte_proto.protocols.raw_json import MemberError, strict_json


class CachedAnswer(NamedTuple):
    """A message as the connector sent it, except for white space; None if there is none. A file that cannot be read
    gives a `warning`."""

    message: bytes | None
    warning: str = ""


def write_message(path: Path, message: bytes) -> None:
    """Writes a message to any file, in the format of the cache."""
    _write_pretty(path, _compact_raw(message))


class _CacheEntry(msgspec.Struct, frozen=True):
    identity: str
    message: msgspec.Raw
    config_digest: str = ""


_ENTRY_DECODER = msgspec.json.Decoder(_CacheEntry)


class AnswerCache:
    """The answers under one folder, which is created when the first is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def spec(self, identity: str) -> CachedAnswer:
        """The spec of the connector with this exact identity."""
        return _read_entry(self._entry_path("spec", identity), identity)

    def keep_spec(self, identity: str, message: bytes) -> None:
        _write_entry(self._entry_path("spec", identity), _CacheEntry(identity, _compact_raw(message)))

    def catalog(self, connection: str, identity: str, config_digest: str) -> CachedAnswer:
        """The catalog that exactly this connector offered with exactly this config. Only the newest catalog of a
        connection is kept."""
        return _read_entry(self._entry_path("catalog", connection), identity, config_digest)

    def keep_catalog(self, connection: str, identity: str, config_digest: str, message: bytes) -> None:
        _write_entry(
            self._entry_path("catalog", connection), _CacheEntry(identity, _compact_raw(message), config_digest)
        )

    def stream_schemas(self, connection: str, identity: str, config_digest: str) -> CachedAnswer:
        """The stream schemas that exactly this connector sent while it last read with exactly this config."""
        return _read_entry(self._entry_path("told", connection), identity, config_digest)

    def keep_stream_schemas(self, connection: str, identity: str, config_digest: str, message: bytes) -> None:
        _write_entry(self._entry_path("told", connection), _CacheEntry(identity, _compact_raw(message), config_digest))

    def saved_catalog(self, connection: str) -> CachedAnswer:
        """The catalog that a user saved for the connection."""
        path = self._saved_path(connection)
        try:
            return CachedAnswer(strict_json(path.read_bytes()))
        except FileNotFoundError:
            return CachedAnswer(None)
        except (OSError, MemberError) as error:
            return _unreadable(path, error)

    def save_catalog(self, connection: str, message: bytes) -> Path:
        """Saves the catalog as `<connection>.json`. Returns the path."""
        path = self._saved_path(connection)
        write_message(path, message)
        return path

    def _entry_path(self, kind: str, key: str) -> Path:
        return self._folder / "cached" / f"{kind}-{_safe_name(key)}.json"

    def _saved_path(self, connection: str) -> Path:
        if not re.fullmatch("[a-z0-9_]+", connection):
            raise InternalError("naming a saved catalog", f"{connection!r} is no connection's name")
        return self._folder / f"{connection}.json"


def _safe_name(key: str) -> str:
    """A file name from which a person can guess the key. Its hash keeps the names of any two keys apart."""
    readable = re.sub("[^a-z0-9]+", "-", key.lower()).strip("-")[-60:]
    return f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _read_entry(path: Path, identity: str, config_digest: str = "") -> CachedAnswer:
    try:
        entry = _ENTRY_DECODER.decode(path.read_bytes())
    except FileNotFoundError:
        return CachedAnswer(None)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        return _unreadable(path, error)
    is_same = (entry.identity, entry.config_digest) == (identity, config_digest)
    return CachedAnswer(strict_json(bytes(entry.message)) if is_same else None)


def _unreadable(path: Path, error: Exception) -> CachedAnswer:
    reason = error.strerror if isinstance(error, OSError) else "it is not the JSON that was written"
    return CachedAnswer(None, f"{path} cannot be used ({reason}); the connector is started again")


def _compact_raw(message: bytes) -> msgspec.Raw:
    try:
        return msgspec.Raw(strict_json(message))
    except MemberError as error:
        raise InternalError("writing a connector's answer to the cache", "it is not JSON") from error


def _write_entry(path: Path, entry: _CacheEntry) -> None:
    _write_pretty(path, msgspec.Raw(msgspec.json.encode(entry)))


def _write_pretty(path: Path, content: msgspec.Raw) -> None:
    """Writes indented JSON. Someone who reads at the same time, or after a crash, finds the old file or the new one."""
    pretty = msgspec.json.format(bytes(content), indent=2) + b"\n"
    try:
        write_atomically(path, pretty)
    except OSError as error:
        raise StagingError(f"writing {path}", error.strerror or str(error), remedy="Is the disk full?") from error
