"""Reads YAML and JSON files, and remembers the line of each key.

- Plain YAML scalars are read as in JSON: `true`, `false`, `null`, JSON's numbers. Everything else is text.
- The reason: YAML 1.1, which pyyaml follows, has traps for a connector's config. A country code `NO` is false there,
  `2024-01-01` a date that JSON cannot hold, `22:30` the number 1350, `007` seven.
- A key given twice is refused, because pyyaml silently takes the last. Tags and merge keys are refused too.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from dagster_airbyte_proto.connection.faults import Fault, KeyPath, config_error, kind_of
from dagster_airbyte_proto.project_folder import working_folder


class Document(NamedTuple):
    """The contents of a file. `lines` has the line of each key and list item; it is empty for a JSON file."""

    where: str
    data: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def line(self, path: KeyPath) -> int | None:
        """Returns the line of the path, or of the nearest parent that has one: a missing key has no line of its own."""
        ends = range(len(path), 0, -1)
        return next((self.lines[path[:end]] for end in ends if path[:end] in self.lines), None)

    def error(self, faults: list[Fault]) -> Exception:
        """Returns the error for these faults, each with its line."""
        placed = [fault._replace(line=fault.line or self.line(fault.path)) for fault in faults]
        return config_error(self.where, sorted(placed, key=lambda fault: fault.line or 0))


def read_document(path: Path, *, what: str, may_be_empty: bool = False) -> Document:
    """Reads a file that holds a mapping: JSON if its name ends so, else YAML.

    Raises ConfigError with all its faults.
    """
    where = f"{what} {path}"
    text = _text(path, where)
    data, lines, faults = _parsed_json(text) if path.suffix == ".json" else _parsed_yaml(text)
    if not faults and data is None and not may_be_empty:
        faults.append(Fault((), "is empty"))
    elif not faults and data is not None and not isinstance(data, dict):
        faults.append(Fault((), f"must be a mapping of keys to values; found {kind_of(data)}"))
    if faults:
        raise config_error(where, faults)
    return Document(where, data or {}, lines)


def _text(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        remedy = "" if path.is_absolute() else f"Its path starts at the working directory, {working_folder()}."
        raise config_error(where, [Fault((), "there is no such file")], remedy=remedy) from None
    except OSError as error:
        raise config_error(where, [Fault((), f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        # Not chained: the error holds the file's bytes, and those may be secret.
        raise config_error(where, [Fault((), f"is not UTF-8 text (byte {error.start})")]) from None


_Parsed = tuple[Any, dict[KeyPath, int], list[Fault]]


def _parsed_json(text: str) -> _Parsed:
    faults: list[Fault] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        faults.extend(Fault((key,), "is given twice") for key in sorted({key for key in keys if keys.count(key) > 1}))
        return dict(pairs)

    def no_number(constant: str) -> None:
        faults.append(Fault((), f"{constant} is not a number in JSON"))

    if not text.strip():
        return None, {}, []
    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=no_number), {}, faults
    except json.JSONDecodeError as error:
        return None, {}, [Fault((), f"is not JSON: {error.msg} (column {error.colno})", error.lineno)]
    except RecursionError:
        return None, {}, [Fault((), "is nested too deeply")]
    except ValueError:  # Python's limit of 4300 digits
        return None, {}, [Fault((), "is not JSON that can be read: a number in it has too many digits")]


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars as JSON would; see the top of this file."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  pyyaml's own way: a class attribute that add_implicit_resolver fills


_NULL, _BOOL, _INT, _FLOAT, _TEXT = (f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str"))
_NUMBER_STARTS = list("-+.0123456789")
for _tag, _pattern, _first in (
    (_NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (_BOOL, r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (_INT, r"[-+]?(0|[1-9][0-9]*)", _NUMBER_STARTS),
    (_FLOAT, r"[-+]?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?|[-+]?\.[0-9]+([eE][-+]?[0-9]+)?", _NUMBER_STARTS),
):
    _Loader.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), _first)


def _parsed_yaml(text: str) -> _Parsed:
    conversion = _YamlConversion()
    try:
        node = yaml.compose(text, Loader=_Loader)
        data = None if node is None else conversion.value(node, ())
    except yaml.MarkedYAMLError as error:
        return None, {}, [syntax_fault(error)]
    except yaml.YAMLError:
        return None, {}, [Fault((), "is not YAML: it holds characters that YAML does not allow")]
    except RecursionError:
        return None, {}, [Fault((), "is nested too deeply, or holds itself by an alias")]
    return data, conversion.lines, conversion.faults


def syntax_fault(error: yaml.MarkedYAMLError) -> Fault:
    """Returns a YAML error as a fault. Leaves out the source lines and quoted words, which may be secret: to YAML,
    `password: *hunter2` is an undefined alias, which its message quotes.
    """
    problem = re.sub(r"""\s*(['"])[^'"<>]{4,}\1""", "", error.problem or "cannot be read")
    mark = error.problem_mark or error.context_mark
    column = f" (column {mark.column + 1})" if mark else ""
    return Fault((), f"is not YAML: {problem}{column}", mark.line + 1 if mark else None)


class _YamlConversion:
    """Converts a YAML tree to values, and collects lines and faults."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.faults: list[Fault] = []

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        if isinstance(node, yaml.MappingNode):
            self._expect(node, path, "tag:yaml.org,2002:map")
            return dict(self._pairs(node, path))
        if isinstance(node, yaml.SequenceNode):
            self._expect(node, path, "tag:yaml.org,2002:seq")
            return [self._at(item, (*path, number)) for number, item in enumerate(node.value)]
        self._expect(node, path, _NULL, _BOOL, _INT, _FLOAT, _TEXT)
        return self._scalar(node, path)

    def _at(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        return self.value(node, path)

    def _pairs(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[str, Any]]:
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.faults.append(Fault(path, "a key must be text", line))
                continue
            key = str(key_node.value)
            if (*path, key) in self.lines:
                first = self.lines[*path, key]
                self.faults.append(Fault((*path, key), f"is given twice (first on line {first})", line))
            elif key == "<<" and key_node.style is None:
                self.faults.append(Fault(path, 'merge keys ("<<") are not read: write the keys out', line))
            else:
                self.lines[*path, key] = line
                yield key, self.value(value_node, (*path, key))

    def _expect(self, node: yaml.Node, path: KeyPath, *tags: str) -> None:
        if node.tag not in tags:
            problem = "has a tag, and tags are not read: put text that begins with ! in quotes"
            self.faults.append(Fault(path, problem, node.start_mark.line + 1))

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        text = str(node.value)
        if node.tag == _NULL:
            return None
        if node.tag == _BOOL:
            return text.lower() == "true"
        if node.tag not in (_INT, _FLOAT):
            return text
        try:
            return int(text) if node.tag == _INT else float(text)
        except ValueError:
            self.faults.append(Fault(path, "is not a number", node.start_mark.line + 1))
            return None
