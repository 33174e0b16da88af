"""The asset keys of streams: a path that Dagster allows for each stream, and the check of what a translator made."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import asset_error_context
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.schema.names import unique_names

# Dagster makes the name of an output from an asset's key, and allows only these characters there.
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_LEGIBLE = re.compile("[A-Za-z0-9]")


def allowed_in_keys(part: str) -> str:
    """Returns a part of a name with "_" for the characters that Dagster does not allow."""
    return _UNSAFE.sub("_", part)


def key_paths(streams: Sequence[StreamId]) -> list[tuple[str, ...]]:
    """Each stream's namespace and name in characters that Dagster allows. Equal results get a suffix, and so does a
    name of which no letter or digit is left."""
    written = [tuple(part for part in (each.namespace, each.name) if part) for each in streams]
    paths = [tuple(map(allowed_in_keys, parts)) or ("_",) for parts in written]
    preferred = [_dagster_name(path) for path in paths]
    # Not in the order of the catalog: another stream in it must not pass the key of one to the other, whose table the
    # assets downstream would then read. Names that are keys as they are come first.
    order = sorted(range(len(streams)), key=lambda place: (paths[place] != written[place], str(streams[place])))
    taken = [name for name, path in zip(preferred, paths, strict=True) if not _LEGIBLE.search(path[-1])]
    names = unique_names([(preferred[place], str(streams[place])) for place in order], taken=taken)
    suffixes = {place: name[len(preferred[place]) :] for place, name in zip(order, names, strict=True)}
    return [(*path[:-1], path[-1] + suffixes[place]) for place, path in enumerate(paths)]


def check_keys(connection: Connection, keys: Sequence[dg.AssetKey], streams: Sequence[StreamId]) -> None:
    """Raises ConfigError if a translator made the key of one of these streams twice, or an invalid one."""
    taken: dict[str, StreamId] = {}
    for key, stream in zip(keys, streams, strict=True):
        name = _dagster_name(key.path)
        if name in taken:
            raise _invalid_key(connection, key, stream, f"that of stream {taken[name]}, or too similar to it")
        if not re.fullmatch("[A-Za-z0-9_]+", name):
            raise _invalid_key(connection, key, stream, 'not of letters, digits, "_", "-" and "." alone')
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


def check_lists(doing: str, option: str, given: Mapping[str, Sequence[Any]]) -> None:
    """Raises ConfigError for a text in the place of a list: each of its letters would be a name."""
    if texts := [name for name, each in given.items() if isinstance(each, str)]:
        name = texts[0]
        found = f"`{option}` has a text for {name}, where a list belongs"
        raise ConfigError(doing, found, remedy=f'Write {option}={{"{name}": ["{given[name]}"]}}.')
