"""Keeps a certification off the objects of the user, before anything is written.

A free-form destination makes an object of any stream's name. Three things lead rows of certify to an object that is not
its own: a name that the connection pushes to, a config that fixes where all rows go, and a destination with objects
whose discover has failed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagster_airbyte_proto.certification.evidence import Reply
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.protocols.destination import DestinationOperation

# docs/certify.md lists them. `__alias__` stands in the `stream_maps` of targets on Meltano's SDK.
_NAMING = frozenset({
    "__alias__", "collection", "collection_name", "custom_name", "file_name", "file_naming_scheme", "filename",
    "index", "index_name", "key_naming_convention", "naming_convention", "sheet_name", "table", "table_name", "topic",
    "topic_name", "topic_pattern",
})  # fmt: skip
# The stream's name has a place in it: `{stream_name}.csv`, `${STREAM_NAME}/…`, `__stream_name__ + '_v2'`.
_HAS_STREAM = re.compile(r"\{[^}]*stream|__stream_name__", re.IGNORECASE)
# A destination that does not know the request, and not one that failed in it. The last is the word of Airbyte's Java
# base, whose destinations have no source to discover.
_NO_SUCH_REQUEST = re.compile(
    r"\busage\b|invalid choice|unrecogni[sz]ed|unknown (command|option|argument)|no such (command|option)|unmatched"
    r"|not (supported|implemented)|unsupported|NotImplementedError|source\" is null",
    re.IGNORECASE,
)


def fixed_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the paths of what in a config names where rows go, whatever their stream."""
    return tuple(".".join(path) for path in _fixed(config, ()))


def check_config(connection: Connection, config: Mapping[str, Any]) -> None:
    """Raises ConfigError if the config fixes where rows go."""
    found = fixed_names(config)
    if found:
        raise ConfigError(
            _doing(connection),
            f"its config names the place of all rows, whatever their stream, by {', '.join(found)}: certify would "
            "write over what is there",
            remedy="Certify with a config of its own that leaves this out, or has the stream's name in it; --scratch "
            "if that place is one that may be overwritten.",
        )


def check_names(connection: Connection, names: Sequence[str]) -> None:
    """Raises ConfigError if one of these names is one that the connection pushes to."""
    pushed = {_plain(stream): stream for stream in connection.push or {}}
    for name in names:
        if _plain(name) in pushed:
            raise ConfigError(
                _doing(connection),
                f"it pushes to {pushed[_plain(name)]}, and certify would write rows of its own to {name}",
                remedy="Name another object by --object, which the destination does not have.",
            )


def check_discover(connection: Connection, discover: Reply[tuple[DestinationOperation, ...]], mask: Mask) -> None:
    """Raises ConnectorError if the discover failed, and not for want of such a request: the destination may have
    objects of its own, and nobody knows which."""
    run = next((each for each in reversed(discover.runs) if each.verb is Verb.DISCOVER), None)
    if discover.answer or run is None or (run.report is not None and run.report.ended_cleanly):
        return
    words = "" if run.report is None else "\n".join(run.report.stderr_tail)
    if not run.was_stopped and _NO_SUCH_REQUEST.search(words + run.output.decode(errors="replace")):
        return
    last = next((line for line in reversed(words.splitlines()) if line.strip()), "")
    raise ConnectorError(
        _doing(connection),
        f"its discover {run.how_it_ended}{f': {mask.text(last)}' if last else ''}; it may have objects of its own, and "
        "nothing was written",
        remedy="Try again when it answers; --scratch if it lists no objects, or all of them may be overwritten.",
    )


def _doing(connection: Connection) -> str:
    return f"certifying connection {connection.name}"


def _fixed(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _fixed(item, path)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            place = (*path, str(name))
            if isinstance(item, str) and name in _NAMING and item and not _HAS_STREAM.search(item):
                yield place
            yield from _fixed(item, place)


def _plain(name: str) -> str:
    """The name as far as destinations tell names apart: many change case and signs, and `main.users` may be `users`."""
    last = name.rpartition(".")[2] or name
    return "".join(letter for letter in last.casefold() if letter.isalnum())
