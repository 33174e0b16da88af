"""The asset keys of streams: a path that Dagster allows for each stream, and the check of what a translator made."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import dagster as dg
from dagster._core.definitions.utils import is_valid_name

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import asset_error_context
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.schema.names import unique_names
from dagster_airbyte_proto.sync.connector.catalog_changes import UNSAFE_IN_KEYS

_LEGIBLE = re.compile("[A-Za-z0-9]")


def allowed_in_keys(part: str) -> str:
    """Returns a part of a name with "_" for the characters that Dagster does not allow."""
    return UNSAFE_IN_KEYS.sub("_", part)


def key_paths(streams: Sequence[StreamId]) -> list[tuple[str, ...]]:
    """Each stream's namespace and name in characters that Dagster allows. Of equal results all but the first get a
    suffix, and so does a name of which no letter or digit is left.

    The order of the streams has to be the one in which they came, as in a saved catalog: a stream that took over the
    key of another would have assets downstream read its table.
    """
    paths = [tuple(allowed_in_keys(part) for part in (each.namespace, each.name) if part) or ("_",) for each in streams]
    preferred = [_dagster_name(path) for path in paths]
    taken = [name for name, path in zip(preferred, paths, strict=True) if not _LEGIBLE.search(path[-1])]
    names = unique_names(zip(preferred, map(str, streams), strict=True), taken=taken)
    suffixes = [name[len(plain) :] for name, plain in zip(names, preferred, strict=True)]
    return [(*path[:-1], path[-1] + suffix) for path, suffix in zip(paths, suffixes, strict=True)]


class _TranslatorData(Protocol):
    @property
    def connection(self) -> Connection: ...


_Data = TypeVar("_Data", bound=_TranslatorData)


def translated_spec(get_asset_spec: Callable[[_Data], dg.AssetSpec], data: _Data, stream: StreamId) -> dg.AssetSpec:
    """Returns the spec that a translator makes of a stream. Raises ConfigError, which names the stream, if it fails."""
    try:
        spec = get_asset_spec(data)
    except ProtoError:
        raise
    except Exception as error:  # It is the user's own code.
        raise _untranslated(data, stream, f"raised {type(error).__name__}: {error}") from error
    if not isinstance(spec, dg.AssetSpec):
        raise _untranslated(data, stream, f"returned {spec!r}, which is no AssetSpec")
    return spec


def _untranslated(data: _TranslatorData, stream: StreamId, found: str) -> ConfigError:
    return ConfigError(
        asset_error_context(data.connection),
        f"its translator {found}",
        remedy="Mend the translator's get_asset_spec, or `translation`, for this stream.",
        stream=str(stream),
    )


def check_keys(connection: Connection, keys: Sequence[dg.AssetKey], streams: Sequence[StreamId]) -> None:
    """Raises ConfigError if a translator made the key of one of these streams twice, or an invalid one."""
    taken: dict[str, StreamId] = {}
    for key, stream in zip(keys, streams, strict=True):
        name = _dagster_name(key.path)
        if name in taken:
            raise _invalid_key(connection, key, stream, f"that of stream {taken[name]}, or too similar to it")
        if not re.fullmatch("[A-Za-z0-9_]+", name):
            raise _invalid_key(connection, key, stream, 'not of letters, digits, "_", "-" and "." alone')
        if not is_valid_name(name):
            raise _invalid_key(connection, key, stream, "a word that Dagster or Python reserves")
        taken[name] = stream


def _dagster_name(path: Sequence[str]) -> str:
    """The name that Dagster derives from an asset key, for example for an output."""
    return re.sub("[-.]", "_", "__".join(path))


def _invalid_key(connection: Connection, key: dg.AssetKey, stream: StreamId, found: str) -> ConfigError:
    return ConfigError(
        asset_error_context(connection),
        f"its asset key {key.to_user_string()} is {found}",
        remedy="Give it another key in the translator's get_asset_spec, or in `translation`.",
        stream=str(stream),
    )


def named_asset(key: Any) -> Any:
    """Returns the key that a text means, written as Dagster's web server shows it (`shop/users`). Dagster itself has a
    text be a key of one part. What is no text stays as it is."""
    return dg.AssetKey.from_user_string(key) if isinstance(key, str) else key


def check_lists(doing: str, option: str, given: Mapping[str, Sequence[Any]]) -> None:
    """Raises ConfigError for a text in the place of a list: each of its letters would be a name."""
    if texts := [name for name, each in given.items() if isinstance(each, str)]:
        name = texts[0]
        found = f"`{option}` has a text for {name}, where a list belongs"
        raise ConfigError(doing, found, remedy=f'Write {option}={{"{name}": ["{given[name]}"]}}.')
