"""What a Meltano project selects of a tap, as a connection's `streams`.

Meltano's rules are patterns over a catalog: `users.*`, `public-*.id`, `!*.email`. A connection names streams and
columns, so patterns are worked out on the tap's catalog; where that is not known, those that name something literally,
or everything, are carried over, and the others are named.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from dagster_airbyte_proto.connection.meltano.project import Tap
from dagster_airbyte_proto.connection.streams import OTHERS

_DOT = re.compile(r"(?<!\\)\.")
_WILD = re.compile(r"[*?\[]")
_READS = {"FULL_TABLE": "full_refresh", "INCREMENTAL": "incremental", "LOG_BASED": "incremental"}
_KEYS = ("table-key-properties", "view-key-properties")

Columns = Mapping[str, Sequence[str]]
"""A catalog as far as it matters here: the top columns of each stream."""


class Chosen(NamedTuple):
    """`streams` is None where every stream is taken as it is. `left` tells the rules that could not be carried over;
    with the tap's catalog some of them could, where that is what it needs."""

    streams: Mapping[str, Mapping[str, Any]] | None
    left: tuple[str, ...]
    needs_catalog: bool = False


class _Rule(NamedTuple):
    text: str
    stream: str
    column: str
    excludes: bool

    @classmethod
    def of(cls, text: str) -> "_Rule":
        stream, _, column = _split(text.removeprefix("!"))
        return cls(text, stream, column or "*", text.startswith("!"))

    @property
    def is_certain(self) -> bool:
        """Whether it says something also where no catalog is known."""
        return not _WILD.search(self.stream) or self.stream == "*"

    def is_about(self, stream: str) -> bool:
        return self.stream == "*" if stream == OTHERS else fnmatchcase(stream, self.stream)


def chosen_streams(tap: Tap, columns: Columns | None) -> Chosen:
    """The streams that the tap's rules select, by the catalog's columns where they are known."""
    rules = [_Rule.of(text) for text in (*(tap.select or ("*.*",)), *_said_in(tap.metadata))]
    filters = [_Rule.of(text) for text in tap.select_filter]
    facts, left = _facts(tap.metadata)
    unheard_of = len(left)
    if columns is None:
        left += [f"select {rule.text}: it needs the tap's catalog" for rule in rules if not rule.is_certain]
        left += [f"select_filter {rule.text}: it needs the tap's catalog" for rule in filters if not rule.is_certain]
        left += [f"metadata {name}: it needs the tap's catalog" for name in facts if name != "*" and _WILD.search(name)]
        rules, filters = [each for each in rules if each.is_certain], [each for each in filters if each.is_certain]
    names = list(columns) if columns is not None else _literal([*rules, *filters], facts)
    streams: dict[str, Mapping[str, Any]] = {}
    for name in names:
        known = None if columns is None else columns[name]
        if not _is_selected(name, rules, filters):
            if OTHERS in names and name != OTHERS:
                left.append(f"select: {name} is not to be read, but all others are, and these are not known")
            continue
        options = _options_of(name, rules, known, left)
        if options.get("select") == []:
            continue
        streams[name] = {**_fitting(facts, name), **options}
    whole = list(streams) == names and not any(streams.values())
    takes_all = whole and (columns is not None or OTHERS in names)
    needs_catalog = columns is None and len(left) > unheard_of
    return Chosen(None if takes_all else streams, tuple(dict.fromkeys(left)), needs_catalog)


def _literal(rules: Iterable[_Rule], facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The streams that are named, and those that are not where a rule is about all."""
    found = dict.fromkeys([*(rule.stream for rule in rules), *(name for name in facts if not _WILD.search(name))])
    return [name for name in found if name != OTHERS] + [OTHERS] * (OTHERS in found)


def _is_selected(name: str, rules: Sequence[_Rule], filters: Sequence[_Rule]) -> bool:
    about = [rule for rule in rules if rule.is_about(name)]
    if all(rule.excludes for rule in about) or any(rule.excludes and rule.column == "*" for rule in about):
        return False
    wanted = [rule for rule in filters if not rule.excludes]
    if wanted and not any(rule.is_about(name) for rule in wanted):
        return False
    return not any(rule.excludes and rule.is_about(name) for rule in filters)


def _options_of(name: str, rules: Sequence[_Rule], columns: Sequence[str] | None, left: list[str]) -> dict[str, Any]:
    """Its columns as far as not all of them are wanted."""
    about = [rule for rule in rules if rule.is_about(name)]
    excluded = [path for rule in about if rule.excludes for path in _paths(rule, columns, left)]
    if any(rule.column == "*" for rule in about if not rule.excludes):
        return {"exclude": list(dict.fromkeys(map(_written, excluded)))} if excluded else {}
    included = [path for rule in about if not rule.excludes for path in _paths(rule, columns, left)]
    return {"select": [_written(path) for path in dict.fromkeys(included) if path not in excluded]}


def _paths(rule: _Rule, columns: Sequence[str] | None, left: list[str]) -> list[tuple[str, ...]]:
    """The columns that it is about: of a nested one, the way to it."""
    path = tuple(part.replace("\\.", ".") for part in _DOT.split(rule.column))
    if path[-1] == "*":
        path = path[:-1]
    if not any(map(_WILD.search, path)):
        return [path] if columns is None or path[0] in columns else []
    if columns is None or any(map(_WILD.search, path[1:])):
        left.append(f"select {rule.text}: it needs the tap's catalog" if columns is None else f"select {rule.text}")
        return []
    return [(column, *path[1:]) for column in columns if fnmatchcase(column, path[0])]


def _written(path: tuple[str, ...]) -> str | list[str]:
    return path[0] if len(path) == 1 else list(path)


def _facts(metadata: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What the project says of streams' keys and ways to be read, by the pattern of their names."""
    facts: dict[str, dict[str, Any]] = {}
    left: list[str] = []
    for pattern, said in metadata.items():
        found = facts.setdefault(pattern, {})
        for key, value in (said if isinstance(said, Mapping) else {}).items():
            if key == "replication-method" and value in _READS:
                found["read"] = _READS[value]
            elif key == "replication-key" and isinstance(value, str):
                found["cursor"] = value
            elif key in _KEYS and isinstance(value, list) and value:
                found["primary_key"] = value
            elif key != "selected":
                left.append(f"metadata {pattern}.{key}: there is nothing like it")
    return facts, left


def _said_in(metadata: Mapping[str, Any]) -> list[str]:
    """The rules of selection that stand there."""
    said = {pattern: inner["selected"] for pattern, inner in metadata.items() if "selected" in (inner or {})}
    return [pattern if selected else f"!{pattern}" for pattern, selected in said.items()]


def _fitting(facts: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Of several patterns, what a later one says stands."""
    found: dict[str, Any] = {}
    for pattern, said in facts.items():
        if pattern == "*" or (name != OTHERS and fnmatchcase(name, pattern)):
            found |= said
    return found


def _split(text: str) -> tuple[str, str, str]:
    parts = _DOT.split(text, maxsplit=1)
    return parts[0].replace("\\.", "."), ".", parts[1] if len(parts) > 1 else ""
