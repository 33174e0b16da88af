"""A low-code manifest as it stands in its file, and all that can be told of it with nothing started.

It is read as its interpreter reads it: YAML 1.1 with merge keys, unlike the files that are ours. What an interpreter
would run as code of the manifest's own is looked for wherever it may stand, in definitions that nothing refers to as
well: references, parameters and mappings bring such places into components in more ways than could be followed here.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from dagster_airbyte_proto.connection.document import syntax_fault
from dagster_airbyte_proto.connection.faults import Fault, KeyPath, kind_of, refusal
from dagster_airbyte_proto.references import pointed_at

_TYPE = "DeclarativeSource"
_CUSTOM, _CLASS = "Custom", "class_name"
_ANSWERED = (("documentation_url", "documentationUrl"), ("advanced_auth", "advanced_auth"))
_CODE_REMEDY = (
    "Such a component is Python code that runs with all that the connector may do. If you trust it, write "
    "`custom_components: true` beside `path`; a components.py beside the manifest is taken with it."
)


class Manifest(NamedTuple):
    """Its content, with no references left in its spec. `spec` is what the connector would answer when asked for its
    spec. `digest` tells one content from another."""

    content: dict[str, Any]
    spec: dict[str, Any]
    digest: str


def read_manifest(path: Path, *, allows_code: bool) -> Manifest:
    """Raises one ConfigError with every fault that the file has, each with its line."""
    where = f"manifest {path}"
    raw = _read(path, where)
    node, content = _parsed(raw, where)
    lines = _Places(node)
    faults = [*_lacking(content), *_spec_faults(content)]
    if faults:
        raise refusal(where, [fault._replace(line=lines.line(fault.path)) for fault in faults])
    code = [] if allows_code else list(lines.code())
    if code:
        raise refusal(where, code, remedy=_CODE_REMEDY)
    spec = _resolved(content["spec"], content, ())
    answer = {"connectionSpecification": spec["connection_specification"]}
    answer |= {told: spec[name] for name, told in _ANSWERED if spec.get(name)}
    return Manifest({**content, "spec": spec}, answer, hashlib.sha256(raw).hexdigest())


def _read(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        problem = "there is no such file"
        raise refusal(where, [Fault((), problem)], remedy="`path` starts at the connection file's folder.") from None
    except OSError as error:
        raise refusal(where, [Fault((), f"cannot be read: {error.strerror}")]) from error


def _parsed(raw: bytes, where: str) -> tuple[yaml.Node, dict[str, Any]]:
    try:
        loader = yaml.SafeLoader(raw)  # libyaml's, five times as fast, crashes on what is nested deeply enough
        node = loader.get_single_node()
        content = node and msgspec.to_builtins(loader.construct_document(node), str_keys=True)
    except yaml.MarkedYAMLError as error:
        raise refusal(where, [syntax_fault(error)]) from None
    except yaml.YAMLError:
        raise refusal(where, [Fault((), "is not YAML: it holds characters that YAML does not allow")]) from None
    except RecursionError:
        raise refusal(where, [Fault((), "is nested too deeply, or holds itself by an alias")]) from None
    if node is None or not isinstance(content, dict):
        found = "is empty" if content is None else f"must be a mapping of keys to values; found {kind_of(content)}"
        raise refusal(where, [Fault((), found)])
    return node, content


def _lacking(content: Mapping[str, Any]) -> Iterator[Fault]:
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
        spec = _resolved(content.get("spec"), content, ())
    except LookupError as error:
        yield Fault(("spec",), f"refers to {error.args[0]}, which is not there")
        return
    if not isinstance(spec, Mapping):
        yield Fault(("spec",), "is missing: what config it takes has to be known before it is started")
    elif not isinstance(spec.get("connection_specification"), Mapping):
        yield Fault(("spec", "connection_specification"), "is missing: it says what config the connector takes")


def _resolved(value: Any, root: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    """The value with its references replaced, as the interpreter does it. LookupError names one that leads nowhere."""
    if isinstance(value, list):
        return [_resolved(item, root, within) for item in value]
    if not isinstance(value, Mapping):
        return value
    own = {key: _resolved(item, root, within) for key, item in value.items() if key != "$ref"}
    reference = value.get("$ref")
    if not isinstance(reference, str):
        return own
    if reference in within:
        raise LookupError(f"{reference} within itself")
    found = _resolved(pointed_at(root, reference), root, (*within, reference))
    return {**found, **own} if isinstance(found, Mapping) else found


class _Places:
    """Where in the file things stand. A part that an alias repeats is looked at once, where its anchor is."""

    def __init__(self, root: yaml.Node) -> None:
        self._root = root

    def line(self, path: KeyPath) -> int | None:
        """The line of a key, or of the nearest thing around it; None for one at the top that is missing."""
        node, line = self._root, None
        for part in path:
            found = next(((key, value) for key, value, name in _members(node) if name == part), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        return line

    def code(self) -> Iterator[Fault]:
        """Each place at which the manifest names code that is not the interpreter's own."""
        todo: list[tuple[KeyPath, yaml.Node]] = [((), self._root)]
        seen = set[int]()
        while todo:
            path, node = todo.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            members = list(_members(node))
            named = _named_code(members) if isinstance(node, yaml.MappingNode) else _mapped_code(path, members)
            if named:
                yield Fault(path, named, node.start_mark.line + 1)
            todo += [((*path, name), value) for _, value, name in reversed(members)]


def _members(node: yaml.Node) -> Iterator[tuple[yaml.Node, yaml.Node, str | int]]:
    if isinstance(node, yaml.MappingNode):
        yield from ((key, value, str(key.value)) for key, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from ((item, item, number) for number, item in enumerate(node.value))


def _named_code(members: list[tuple[yaml.Node, yaml.Node, str | int]]) -> str:
    """What a component says that it is of code of its own. A field of a schema may be called `class_name` too: what
    stands behind that is a mapping, and no reference to a text."""
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


def _mapped_code(path: KeyPath, members: list[tuple[yaml.Node, yaml.Node, str | int]]) -> str:
    """Dynamic streams write values from elsewhere to such paths."""
    is_path = path[-1:] == ("field_path",) and any(value.value == _CLASS for _, value, _ in members)
    return f"writes a {_CLASS}" if is_path else ""
