"""Fills `{{ partition.start }}` in a config, for a run of one partition.

1. Templates are filled before references such as `${env:NAME}`, and their values are not searched for references: a
   partition's key may come from anywhere, so a key `${env:PASSWORD}` must not become the password.
2. Only names of `partition` are templates. Other braces belong to the connector: configs may hold Jinja of its own.
3. A config is identified by its digest before templates are filled. So a connector that rewrites its config (to rotate
   tokens) hands it on from partition to partition. `refresh_templates` then puts this partition's values into it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dagster_airbyte_proto.connection.connection import Connection
from dagster_airbyte_proto.connection.faults import Fault, KeyPath, config_error, nearest
from dagster_airbyte_proto.connection.references import escaped, map_strings

_BRACES = re.compile(r"\{\{\s*(?P<head>[A-Za-z_]+)\s*\.\s*(?P<name>[^{}]*?)\s*\}\}")
_HEAD = "partition"


def fill_templates(connection: Connection, window: Mapping[str, str]) -> Connection:
    """Returns the connection of one partition.

    The `window` has `key`, and `start` and `end` or the names of dimensions.
    Raises one ConfigError with every unknown name, and for a connection that has templates if the window is empty.
    """
    written = connection.written_config()
    if not has_template(written):
        return connection
    filler = _TemplateFiller(window)
    config = map_strings(written, () if connection.config_file else ("config",), filler.filled)
    if filler.faults:
        raise config_error(_source(connection), filler.faults, remedy=_remedy(window))
    return connection.model_copy(update={"config": config, "config_file": None})


def fill_sql_templates(sql: str, window: Mapping[str, str]) -> str:
    """Returns the query of one partition. Raises ConfigError for a name that the `window` does not have.

    The values are put in as they are: the caller escapes them.
    """
    filler = _TemplateFiller(window, escape=lambda value: value)
    filled = filler.filled(sql, ("sql",))
    if filler.faults:
        raise config_error("query of a push", filler.faults, remedy=_remedy(window))
    return filled


def has_template(written: Any) -> bool:
    """True if a config, or a part of one, has a template anywhere. A misspelt one counts too."""
    return any(_is_meant(match) for match in _templates(written))


def has_window(written: Any) -> bool:
    """True if a config has the start or the end of a time window anywhere."""
    return any(match["head"] == _HEAD and match["name"] in ("start", "end") for match in _templates(written))


def _templates(written: Any) -> Iterator[re.Match[str]]:
    if isinstance(written, str):
        yield from _BRACES.finditer(written)
    elif isinstance(written, Mapping):
        for inner in written.values():
            yield from _templates(inner)
    elif isinstance(written, list | tuple):
        for inner in written:
            yield from _templates(inner)


def refresh_templates(rewritten: Any, written: Any, filled: Any) -> Any:
    """Puts this partition's values into a config that the connector rewrote, perhaps in another partition.

    `written` is the user's config, and `filled` is that config for this partition. A list whose length changed is
    replaced as a whole.
    """
    if isinstance(written, Mapping) and isinstance(rewritten, Mapping):
        places = [key for key, inner in written.items() if has_template(inner)]
        return {
            **rewritten,
            **{key: refresh_templates(rewritten.get(key), written[key], filled[key]) for key in places},
        }
    if isinstance(written, list | tuple) and isinstance(rewritten, list | tuple) and len(rewritten) == len(written):
        return [refresh_templates(*each) for each in zip(rewritten, written, filled, strict=True)]
    return filled if has_template(written) else rewritten


def _is_meant(match: re.Match[str]) -> bool:
    # Low-code manifests use `stream_partition` and `partition_key`. These are no misspellings of `partition`.
    return match["head"] == _HEAD or _is_misspelt(match["head"])


def _is_misspelt(head: str) -> bool:
    return "_" not in head and nearest(head, [_HEAD]) is not None


class _TemplateFiller:
    """Fills the templates of one config. `faults` are the names that the window does not have."""

    def __init__(self, window: Mapping[str, str], escape: Callable[[str], str] = escaped) -> None:
        self._window, self._escape = window, escape
        self.faults: list[Fault] = []

    def filled(self, text: str, path: KeyPath) -> str:
        return _BRACES.sub(lambda match: self._replacement(match, path), text)

    def _replacement(self, match: re.Match[str], path: KeyPath) -> str:
        name = match["name"]
        if not _is_meant(match):
            return match[0]
        if match["head"] == _HEAD and name in self._window:
            return self._escape(self._window[name])
        self.faults.append(Fault(path, f'"{match[0]}" {self._problem(match["head"], name)}'))
        return ""

    def _problem(self, head: str, name: str) -> str:
        if head != _HEAD:
            return f'is not known; did you mean "{{{{ {_HEAD}.{name} }}}}"?'
        if not self._window:
            return "needs a run of a partition"
        meant = nearest(name, self._window)
        return f'is not known; did you mean "{{{{ {_HEAD}.{meant} }}}}"?' if meant else "is not known"


def _remedy(window: Mapping[str, str]) -> str:
    if window:
        return f"This partition has: {', '.join(f'{_HEAD}.{name}' for name in window)}"
    return "Sync one partition: --partition KEY, or assets with a partitions_def. Or write the value itself."


def _source(connection: Connection) -> str:
    origin = connection.config_file or connection.origin
    return f"config in {origin}" if origin else f"config of connection {connection.name}"
