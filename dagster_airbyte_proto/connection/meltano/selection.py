"""Converts the selection rules of a Meltano tap to a connection's `streams`.

Meltano's rules are patterns over a catalog: `users.*`, `public-*.id`, `!*.email`. A connection names streams and
columns, so the patterns are expanded on the tap's catalog. Without a catalog, only patterns that are literal, or that
match everything, are imported. The others are listed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from dagster_airbyte_proto.connection.meltano.project import Plugin
from dagster_airbyte_proto.connection.streams import OTHERS

_DOT = re.compile(r"(?<!\\)\.")
_WILD = re.compile(r"[*?\[]")
_READS = {"FULL_TABLE": "full_refresh", "INCREMENTAL": "incremental", "LOG_BASED": "incremental"}
_NEEDS_CATALOG = "it needs the tap's catalog"
_KEYS = ("table-key-properties", "view-key-properties")

CatalogColumns = Mapping[str, Sequence[str]]
"""The top-level columns of each stream of a catalog."""


class StreamSelection(NamedTuple):
    """The selected streams. `streams` is None if every stream is taken with its defaults.

    `not_imported` lists the rules that could not be imported. With `needs_catalog`, the tap's catalog
    would help with some of them.
    """

    streams: Mapping[str, Mapping[str, Any]] | None
    not_imported: tuple[str, ...]
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
    def needs_catalog(self) -> bool:
        """True if the rule is a pattern that only a catalog can resolve."""
        return bool(_WILD.search(self.stream)) and self.stream != "*"

    def matches(self, stream: str) -> bool:
        return self.stream == "*" if stream == OTHERS else fnmatchcase(stream, self.stream)


def selected_streams(tap: Plugin, columns: CatalogColumns | None) -> StreamSelection:
    """Returns the streams that the tap's rules select. `columns` are the catalog's, if it is known."""
    rules = [_Rule.of(text) for text in (*(tap.select or ("*.*",)), *_metadata_rules(tap.metadata))]
    filters = [_Rule.of(text) for text in tap.select_filter]
    options_by_pattern, not_imported = _metadata_options(tap.metadata)
    without_remedy = len(not_imported)
    if columns is None:
        patterns = [name for name in options_by_pattern if name != "*" and _WILD.search(name)]
        not_imported += [f"select {rule.text}: {_NEEDS_CATALOG}" for rule in rules if rule.needs_catalog]
        not_imported += [f"select_filter {rule.text}: {_NEEDS_CATALOG}" for rule in filters if rule.needs_catalog]
        not_imported += [f"metadata {name}: {_NEEDS_CATALOG}" for name in patterns]
        rules = [rule for rule in rules if not rule.needs_catalog]
        filters = [rule for rule in filters if not rule.needs_catalog]
    names = list(columns) if columns is not None else _literal_streams([*rules, *filters], options_by_pattern)
    streams: dict[str, Mapping[str, Any]] = {}
    for name in names:
        known = None if columns is None else columns[name]
        if not _is_selected(name, rules, filters):
            if OTHERS in names and name != OTHERS:
                found = f"{name} is excluded from all streams, which are not known without the tap's catalog"
                not_imported.append(f"select: {found}")
            continue
        options = _options_of(name, rules, known, not_imported)
        if options.get("select") == []:
            continue
        streams[name] = {**_options_for(options_by_pattern, name), **options}
    is_complete = list(streams) == names and not any(streams.values())
    takes_all = is_complete and (columns is not None or OTHERS in names)
    needs_catalog = columns is None and len(not_imported) > without_remedy
    return StreamSelection(None if takes_all else streams, tuple(dict.fromkeys(not_imported)), needs_catalog)


def _literal_streams(rules: Iterable[_Rule], options_by_pattern: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns the streams that are named literally, and `OTHERS` last if a rule matches every stream."""
    literal = (name for name in options_by_pattern if not _WILD.search(name))
    found = dict.fromkeys([*(rule.stream for rule in rules), *literal])
    return [name for name in found if name != OTHERS] + [OTHERS] * (OTHERS in found)


def _is_selected(name: str, rules: Sequence[_Rule], filters: Sequence[_Rule]) -> bool:
    matching = [rule for rule in rules if rule.matches(name)]
    if all(rule.excludes for rule in matching) or any(rule.excludes and rule.column == "*" for rule in matching):
        return False
    wanted = [rule for rule in filters if not rule.excludes]
    if wanted and not any(rule.matches(name) for rule in wanted):
        return False
    return not any(rule.excludes and rule.matches(name) for rule in filters)


def _options_of(
    name: str, rules: Sequence[_Rule], columns: Sequence[str] | None, not_imported: list[str]
) -> dict[str, Any]:
    """Returns the `select` or `exclude` option of a stream, if not all columns are selected."""
    matching = [rule for rule in rules if rule.matches(name)]
    excluded = [path for rule in matching if rule.excludes for path in _paths(rule, columns, not_imported)]
    if any(rule.column == "*" for rule in matching if not rule.excludes):
        return {"exclude": list(dict.fromkeys(map(_option_value, excluded)))} if excluded else {}
    included = [path for rule in matching if not rule.excludes for path in _paths(rule, columns, not_imported)]
    return {"select": [_option_value(path) for path in dict.fromkeys(included) if path not in excluded]}


def _paths(rule: _Rule, columns: Sequence[str] | None, not_imported: list[str]) -> list[tuple[str, ...]]:
    """Returns the paths of the columns that a rule matches."""
    path = tuple(part.replace("\\.", ".") for part in _DOT.split(rule.column))
    if path[-1] == "*":
        path = path[:-1]
    if not any(map(_WILD.search, path)):
        return [path] if columns is None or path[0] in columns else []
    if columns is None or any(map(_WILD.search, path[1:])):
        not_imported.append(f"select {rule.text}: {_NEEDS_CATALOG}" if columns is None else f"select {rule.text}")
        return []
    return [(column, *path[1:]) for column in columns if fnmatchcase(column, path[0])]


def _option_value(path: tuple[str, ...]) -> str | list[str]:
    return path[0] if len(path) == 1 else list(path)


def _metadata_options(metadata: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Returns the stream options that the project's metadata sets, by name pattern, and the metadata not imported."""
    options_by_pattern: dict[str, dict[str, Any]] = {}
    not_imported: list[str] = []
    for pattern, values in metadata.items():
        found = options_by_pattern.setdefault(pattern, {})
        for key, value in (values if isinstance(values, Mapping) else {}).items():
            if key == "replication-method" and value in _READS:
                found["read"] = _READS[value]
            elif key == "replication-key" and isinstance(value, str):
                found["cursor"] = value
            elif key in _KEYS and isinstance(value, list) and value:
                found["primary_key"] = value
            elif key != "selected":
                not_imported.append(f"metadata {pattern}.{key}: connections have nothing like it")
    return options_by_pattern, not_imported


def _metadata_rules(metadata: Mapping[str, Any]) -> list[str]:
    """Returns the selection rules in a project's metadata."""
    values = {
        pattern.replace(".", "\\."): inner["selected"]
        for pattern, inner in metadata.items()
        if isinstance(inner, Mapping) and "selected" in inner
    }
    return [pattern if selected else f"!{pattern}" for pattern, selected in values.items()]


def _options_for(options_by_pattern: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Returns the options of all patterns that match a stream. A later pattern wins."""
    found: dict[str, Any] = {}
    for pattern, values in options_by_pattern.items():
        if pattern == "*" or (name != OTHERS and fnmatchcase(name, pattern)):
            found |= values
    return found


def _split(text: str) -> tuple[str, str, str]:
    parts = _DOT.split(text, maxsplit=1)
    return parts[0].replace("\\.", "."), ".", parts[1] if len(parts) > 1 else ""
