"""Reads the file of a low-code manifest, and finds everything that can be known without starting it.

1. The file is read as its interpreter reads it: YAML 1.1 with merge keys, unlike our own files.
2. Custom code (components of the manifest's own Python) is searched in the whole file, also in definitions that nothing
   refers to: references, parameters and mappings can bring them into components in more ways than we could follow.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from dagster_airbyte_proto.connection.document import syntax_fault
from dagster_airbyte_proto.connection.faults import Fault, KeyPath, config_error, kind_of
from dagster_airbyte_proto.json_references import referenced_value

_TYPE = "DeclarativeSource"
_CUSTOM, _CLASS = "Custom", "class_name"
_SPEC_MEMBERS = (("documentation_url", "documentationUrl"), ("advanced_auth", "advanced_auth"))
# Real manifests have some thousands. Ten aliases to a list of ten aliases, and so on, are a billion after nine levels.
_MAX_VALUES = 1_000_000
_CODE_REMEDY = (
    "Such a component is Python code that runs with all that the connector may do. If you trust it, write "
    "`custom_components: true` beside `path`; a components.py beside the manifest is taken with it."
)


class Manifest(NamedTuple):
    """A low-code manifest.

    `content` is the whole file, with the references in its spec resolved. `spec` is the specification that the
    connector would answer. `digest` is that of the file.
    """

    content: dict[str, Any]
    spec: dict[str, Any]
    digest: str


def read_manifest(path: Path, *, allows_code: bool, read_file: Callable[[Path], bytes] = Path.read_bytes) -> Manifest:
    """Reads a manifest. Raises one ConfigError with all faults of the file, each with its line."""
    where = f"manifest {path}"
    raw = _read(path, where, read_file)
    node, content = _parse(raw, where)
    lines = _ManifestLines(node)
    faults = [*_missing_keys(content), *_spec_faults(content)]
    if faults:
        raise config_error(where, [fault._replace(line=lines.line(fault.path)) for fault in faults])
    code = [] if allows_code else list(lines.custom_code())
    if code:
        raise config_error(where, code, remedy=_CODE_REMEDY)
    spec = _References(content).resolve(content["spec"], ())
    answer = {"connectionSpecification": spec["connection_specification"]}
    answer |= {spec_name: spec[name] for name, spec_name in _SPEC_MEMBERS if spec.get(name)}
    return Manifest({**content, "spec": spec}, answer, hashlib.sha256(raw).hexdigest())


def _read(path: Path, where: str, read_file: Callable[[Path], bytes]) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError:
        problem = "there is no such file"
        raise config_error(
            where, [Fault((), problem)], remedy="`path` starts at the connection file's folder."
        ) from None
    except OSError as error:
        raise config_error(where, [Fault((), f"cannot be read: {error.strerror}")]) from error


def _parse(raw: bytes, where: str) -> tuple[yaml.Node, dict[str, Any]]:
    try:
        loader = yaml.SafeLoader(raw)  # not libyaml's loader: it is five times as fast, but crashes on deep nesting
        node = loader.get_single_node()
        if node and _expanded_size(node, {}) > _MAX_VALUES:
            raise config_error(
                where, [Fault((), f"has more than {_MAX_VALUES} values, once its aliases are written out")]
            )
        content = node and msgspec.to_builtins(loader.construct_document(node), str_keys=True)
    except yaml.MarkedYAMLError as error:
        raise config_error(where, [syntax_fault(error)]) from None
    except yaml.YAMLError:
        raise config_error(where, [Fault((), "is not YAML: it holds characters that YAML does not allow")]) from None
    except RecursionError:
        raise config_error(where, [Fault((), "is nested too deeply, or holds itself by an alias")]) from None
    except (ValueError, TypeError) as error:  # A date that is none, such as 2024-02-30; a key that JSON cannot have.
        raise config_error(where, [Fault((), f"holds a value that is to be in quotes: {error}")]) from None
    if node is None or not isinstance(content, dict):
        found = "is empty" if content is None else f"must be a mapping of keys to values; found {kind_of(content)}"
        raise config_error(where, [Fault((), found)])
    return node, content


def _expanded_size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """The number of values below a node with each alias written out. Each node is counted once."""
    if id(node) not in sizes:
        parts = {id(part): part for member in _members(node) for part in member[:2]}
        below = [id(part) for member in _members(node) for part in dict.fromkeys(member[:2])]
        for part in parts.values():
            _expanded_size(part, sizes)
        sizes[id(node)] = 1 + sum(sizes[part] for part in below)
    return sizes[id(node)]


def _missing_keys(content: Mapping[str, Any]) -> Iterator[Fault]:
    if content.get("type") != _TYPE:
        lead = "must be" if "type" in content else "is missing; a low-code manifest has"
        yield Fault(("type",), f"{lead} {_TYPE}")
    for name in ("version", "check"):
        if not content.get(name):
            yield Fault((name,), "is missing")
    kinds = [name for name in ("streams", "dynamic_streams") if content.get(name)]
    if not kinds:
        yield Fault(("streams",), "is missing, and so is dynamic_streams: there is nothing to read")
    for name in kinds:
        if not isinstance(content[name], list):
            yield Fault((name,), f"must be a list; found {kind_of(content[name])}")


def _spec_faults(content: Mapping[str, Any]) -> Iterator[Fault]:
    try:
        spec = _References(content).resolve(content.get("spec"), ())
    except OverflowError:
        yield Fault(("spec",), f"has more than {_MAX_VALUES} values, once its references are written out")
        return
    except LookupError as error:
        yield Fault(("spec",), f"refers to {error.args[0]}, which does not exist")
        return
    if not isinstance(spec, Mapping):
        yield Fault(("spec",), "is missing: its config schema must be known before the start")
    elif not isinstance(spec.get("connection_specification"), Mapping):
        yield Fault(("spec", "connection_specification"), "is missing: it describes the config of the connector")


class _References:
    """Replaces the references of one value as the interpreter does, counting the values that come of it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._values_left = _MAX_VALUES

    def resolve(self, value: Any, within: tuple[str, ...]) -> Any:
        """Raises LookupError with a reference that leads nowhere, OverflowError for too many values."""
        self._values_left -= 1
        if self._values_left < 0:
            raise OverflowError
        if isinstance(value, list):
            return [self.resolve(item, within) for item in value]
        if not isinstance(value, Mapping):
            return value
        own = {key: self.resolve(item, within) for key, item in value.items() if key != "$ref"}
        reference = value.get("$ref")
        if not isinstance(reference, str):
            return own
        if reference in within:
            raise LookupError(f"{reference} within itself")
        found = self.resolve(referenced_value(self._root, reference), (*within, reference))
        return {**found, **own} if isinstance(found, Mapping) else found


class _ManifestLines:
    """The line numbers of a manifest. A part that an alias repeats is visited once, at its anchor."""

    def __init__(self, root: yaml.Node) -> None:
        self._root = root

    def line(self, path: KeyPath) -> int | None:
        """The line of a key, or of its nearest existing parent; None if a top-level key is missing."""
        node, line = self._root, None
        for part in path:
            found = next(((key, value) for key, value, name in _members(node) if name == part), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        return line

    def custom_code(self) -> Iterator[Fault]:
        """Finds each place where the manifest names code that is not the interpreter's own."""
        todo: list[tuple[KeyPath, yaml.Node]] = [((), self._root)]
        seen = set[int]()
        while todo:
            path, node = todo.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            members = list(_members(node))
            named = (
                _custom_component(members) if isinstance(node, yaml.MappingNode) else _writes_class_name(path, members)
            )
            if named:
                yield Fault(path, named, node.start_mark.line + 1)
            todo += [((*path, name), value) for _, value, name in reversed(members)]


def _members(node: yaml.Node) -> Iterator[tuple[yaml.Node, yaml.Node, str | int]]:
    if isinstance(node, yaml.MappingNode):
        yield from ((key, value, str(key.value)) for key, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from ((item, item, number) for number, item in enumerate(node.value))


def _custom_component(members: list[tuple[yaml.Node, yaml.Node, str | int]]) -> str:
    """Describes the custom component that a mapping names; empty if it names none.

    A field of a JSON schema may also be called `class_name`: its value is a mapping without a reference, so it does not
    count.
    """
    kind = class_name = ""
    for _, value, name in members:
        is_text = isinstance(value, yaml.ScalarNode)
        if name == _CLASS and (is_text or any(key == "$ref" for _, _, key in _members(value))):
            class_name = str(value.value) if is_text else "what it refers to"
        elif name == "type" and is_text and str(value.value).startswith(_CUSTOM):
            kind = str(value.value)
    if not (kind or class_name):
        return ""
    return " ".join(filter(None, (f"is a {kind or 'component'}", class_name and f"of class {class_name}")))


def _writes_class_name(path: KeyPath, members: list[tuple[yaml.Node, yaml.Node, str | int]]) -> str:
    """Describes a `field_path` that ends in `class_name`: dynamic streams write values from elsewhere to such paths."""
    is_path = path[-1:] == ("field_path",) and any(value.value == _CLASS for _, value, _ in members)
    return f"writes a {_CLASS}" if is_path else ""
