"""`{{ partition.start }}` in a config: what a run that is of one partition puts there.

1. Templates are filled before `${env:NAME}` is, and what fills them stays as it is: a partition's key may come from
   anywhere, so one that reads `${env:PASSWORD}` must not become the password.
2. Only words of `partition` are templates. Other braces are the connector's own: configs hold Jinja of theirs.
3. What tells one config from another is its digest before templates are filled. A connector that rewrites its config
   (it rotates tokens) thus hands it on from partition to partition; `renewed` then puts this partition's words into it.
"""

import re
from collections.abc import Mapping
from typing import Any

from dagster_airbyte_proto.connection.connection import Connection
from dagster_airbyte_proto.connection.faults import Fault, KeyPath, nearest, refusal
from dagster_airbyte_proto.connection.filling import with_texts

_BRACES = re.compile(r"\{\{\s*(?P<head>[A-Za-z_]+)\s*\.\s*(?P<name>[^{}]*?)\s*\}\}")
_HEAD = "partition"
_REFERENCE = "${env:"


def templated(connection: Connection, window: Mapping[str, str]) -> Connection:
    """The connection of one partition, whose `window` has `key`, and `start` and `end` or the names of dimensions.

    With an empty window, a connection that has templates is refused. Raises one ConfigError with every name that is
    not known.
    """
    written = connection.written_config()
    if not is_template(written):
        return connection
    filling = _Filling(window)
    config = with_texts(written, () if connection.config_file else ("config",), filling.filled)
    if filling.faults:
        raise refusal(_place(connection), filling.faults, remedy=_remedy(window))
    return connection.model_copy(update={"config": config, "config_file": None})


def is_template(written: Any) -> bool:
    """Whether a config, or a part of one, has a template anywhere; also one that is misspelt."""
    if isinstance(written, str):
        return any(_is_meant(match) for match in _BRACES.finditer(written))
    if isinstance(written, Mapping):
        return any(is_template(inner) for inner in written.values())
    return isinstance(written, list | tuple) and any(is_template(inner) for inner in written)


def renewed(kept: Any, written: Any, filled: Any) -> Any:
    """A config that the connector rewrote, perhaps in another partition, with this one's words where templates stand.

    `written` is the user's config, `filled` the same for this partition. A list is taken whole if its length changed.
    """
    if isinstance(written, Mapping) and isinstance(kept, Mapping):
        places = [key for key, inner in written.items() if is_template(inner)]
        return {**kept, **{key: renewed(kept.get(key), written[key], filled[key]) for key in places}}
    if isinstance(written, list | tuple) and isinstance(kept, list | tuple) and len(kept) == len(written):
        return [renewed(*each) for each in zip(kept, written, filled, strict=True)]
    return filled if is_template(written) else kept


def _is_meant(match: re.Match[str]) -> bool:
    # Low-code manifests have `stream_partition` and `partition_key`: those are far enough from ours.
    return match["head"] == _HEAD or _is_misspelt(match["head"])


def _is_misspelt(head: str) -> bool:
    return "_" not in head and nearest(head, [_HEAD]) is not None


class _Filling:
    """One pass over a config. `faults` are the names that the window does not have."""

    def __init__(self, window: Mapping[str, str]) -> None:
        self._window = window
        self.faults: list[Fault] = []

    def filled(self, text: str, path: KeyPath) -> str:
        return _BRACES.sub(lambda match: self._replacement(match, path), text)

    def _replacement(self, match: re.Match[str], path: KeyPath) -> str:
        name = match["name"]
        if not _is_meant(match):
            return match[0]
        if match["head"] == _HEAD and name in self._window:
            return self._window[name].replace(_REFERENCE, f"${_REFERENCE}")
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


def _place(connection: Connection) -> str:
    origin = connection.config_file or connection.origin
    return f"config in {origin}" if origin else f"config of connection {connection.name}"
