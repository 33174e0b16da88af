"""What connectors offer, kept between runs: a sync need not ask for a spec or a catalog that it has seen.

`cached/` holds answers, each with the identity (and config) it belongs to; throw them away at will. Beside it,
`<connection>.json` is the catalog that a user saved, the one that assets are made from. All of it is JSON to be
read by a person, replaced atomically. A file that cannot be read counts as absent, with a warning.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.errors import InternalError, StagingError
from dagster_airbyte_proto.model import Catalog, FieldPath, Stream
from dagster_airbyte_proto.whole_files import write_whole


class Offer(NamedTuple):
    """A message as the connector gave it, white space aside; None when there is none. A bad file is a `warning`."""

    message: bytes | None
    warning: str = ""


def keep_message(path: Path, message: bytes) -> None:
    """Writes what a connector offers to a file of one's own, as `Offers` does to its."""
    _replace(path, _raw(message))


class _Kept(msgspec.Struct, frozen=True):
    identity: str
    message: msgspec.Raw
    config_digest: str = ""


# Made here, in one thread: two that use a type for the first time at once can crash msgspec.
_KEPT = msgspec.json.Decoder(_Kept)


class Offers:
    """The offers under one folder, which is made when something is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def spec(self, identity: str) -> Offer:
        """The spec of the very connector that `identity` names."""
        return _cached(self._cache("spec", identity), identity)

    def keep_spec(self, identity: str, message: bytes) -> None:
        _keep(self._cache("spec", identity), _Kept(identity, _raw(message)))

    def catalog(self, connection: str, identity: str, config_digest: str) -> Offer:
        """What the very connector offered with the very config. One is kept per connection, the last."""
        return _cached(self._cache("catalog", connection), identity, config_digest)

    def keep_catalog(self, connection: str, identity: str, config_digest: str, message: bytes) -> None:
        _keep(self._cache("catalog", connection), _Kept(identity, _raw(message), config_digest))

    def told(self, connection: str, identity: str, config_digest: str) -> Offer:
        """What the very connector told of its streams while it read with the very config, the last time."""
        return _cached(self._cache("told", connection), identity, config_digest)

    def keep_told(self, connection: str, identity: str, config_digest: str, message: bytes) -> None:
        _keep(self._cache("told", connection), _Kept(identity, _raw(message), config_digest))

    def saved_catalog(self, connection: str) -> Offer:
        """The catalog that a user saved for the connection."""
        path = self._saved(connection)
        try:
            return Offer(_one_line(path.read_bytes()))
        except FileNotFoundError:
            return Offer(None)
        except (OSError, msgspec.DecodeError) as error:
            return _unreadable(path, error)

    def save_catalog(self, connection: str, message: bytes) -> Path:
        """Keeps it as `<connection>.json`; tells where."""
        path = self._saved(connection)
        keep_message(path, message)
        return path

    def _cache(self, kind: str, key: str) -> Path:
        return self._folder / "cached" / f"{kind}-{_safe_name(key)}.json"

    def _saved(self, connection: str) -> Path:
        if not re.fullmatch("[a-z0-9_]+", connection):
            raise InternalError("naming a saved catalog", f"{connection!r} is no connection's name")
        return self._folder / f"{connection}.json"


def _safe_name(key: str) -> str:
    """A file name that a person can guess the key from, and that no two keys share."""
    readable = re.sub("[^a-z0-9]+", "-", key.lower()).strip("-")[-60:]
    return f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _cached(path: Path, identity: str, config_digest: str = "") -> Offer:
    try:
        kept = _KEPT.decode(path.read_bytes())
    except FileNotFoundError:
        return Offer(None)
    except (OSError, msgspec.DecodeError) as error:
        return _unreadable(path, error)
    is_same = (kept.identity, kept.config_digest) == (identity, config_digest)
    return Offer(_one_line(bytes(kept.message)) if is_same else None)


def _unreadable(path: Path, error: OSError | msgspec.DecodeError) -> Offer:
    reason = error.strerror if isinstance(error, OSError) else "it is not the JSON that was kept"
    return Offer(None, f"{path} cannot be used ({reason}); the connector is asked again")


def _one_line(message: bytes) -> bytes:
    """The message as a protocol reads it. Decoding checks all of it, which formatting does not."""
    msgspec.json.decode(message)
    return msgspec.json.format(message, indent=-1)


def _raw(message: bytes) -> msgspec.Raw:
    try:
        return msgspec.Raw(_one_line(message))
    except msgspec.DecodeError as error:
        raise InternalError("keeping what a connector offers", "it is not JSON") from error


def _keep(path: Path, kept: _Kept) -> None:
    _replace(path, msgspec.Raw(msgspec.json.encode(kept)))


def _replace(path: Path, content: msgspec.Raw) -> None:
    """Whoever reads at the same time, or after a crash, finds the old file or the new one, whole."""
    pretty = msgspec.json.format(bytes(content), indent=2) + b"\n"
    try:
        write_whole(path, pretty)
    except OSError as error:
        raise StagingError(f"writing {path}", error.strerror or str(error), remedy="Is the disk full?") from error


def catalog_changes(old: Catalog, new: Catalog) -> list[str]:
    """What a person should know about the difference: one line each, streams in the order of their names."""
    before = {str(stream.id): stream for stream in old.streams}
    after = {str(stream.id): stream for stream in new.streams}
    lines: list[str] = []
    for name in sorted(before | after):
        if name not in before:
            lines.append(f"{name}: new stream ({len(_columns(after[name].json_schema))} columns)")
        elif name not in after:
            lines.append(f"{name}: the stream is gone")
        else:
            lines.extend(f"{name}: {change}" for change in _stream_changes(before[name], after[name]))
    return lines


def _stream_changes(old: Stream, new: Stream) -> Iterator[str]:
    yield from _column_changes(dict(_deep_columns(old.json_schema)), dict(_deep_columns(new.json_schema)))
    if set(old.primary_key) != set(new.primary_key):
        yield f"primary key was {_paths_text(old.primary_key)}, is {_paths_text(new.primary_key)}"
    if old.cursor != new.cursor:
        yield f"cursor was {_paths_text((old.cursor,))}, is {_paths_text((new.cursor,))}"
    yield from (f"{mode.value} reads are new" for mode in sorted(set(new.read_modes) - set(old.read_modes)))
    yield from (f"{mode.value} reads are gone" for mode in sorted(set(old.read_modes) - set(new.read_modes)))


def _column_changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for column in dict.fromkeys((*before, *after)):
        if column not in before:
            yield f"column {column} is new ({after[column]})"
        elif column not in after:
            yield f"column {column} is gone"
        elif before[column] != after[column]:
            yield f"column {column} was {before[column]}, is {after[column]}"


def _paths_text(paths: tuple[FieldPath, ...]) -> str:
    return ", ".join(".".join(path) for path in paths if path) or "none"


def _columns(schema: Any) -> Mapping[str, Any]:
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _deep_columns(schema: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each column with its type in words; the fields of an object follow it, by their paths."""
    for name, rule in _columns(schema).items():
        yield prefix + name, _type_words(rule)
        yield from _deep_columns(rule, f"{prefix}{name}.")


def _type_words(rule: Any) -> str:
    """`text (date-time)`: what matters to a table; whether null is allowed does not."""
    if not isinstance(rule, Mapping):
        return "anything"
    written = rule.get("type", [])
    names = sorted({written} if isinstance(written, str) else {str(name) for name in written})
    unions = [each for key in ("oneOf", "anyOf") for each in rule.get(key) or ()]
    words = [name for name in names if name != "null"] + [_type_words(each) for each in unions]
    if names == ["array"] or names == ["array", "null"]:
        words = [f"array of {_type_words(rule['items'])}" if isinstance(rule.get("items"), Mapping) else "array"]
    notes = [str(rule[key]) for key in ("format", "airbyte_type") if key in rule]
    return " or ".join(dict.fromkeys(words) or ["anything"]) + (f" ({', '.join(notes)})" if notes else "")
