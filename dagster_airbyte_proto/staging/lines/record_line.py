"""Record lines taken apart: the members of the envelope and the record's fields, each as its raw text.

All lines of a segment at once where none is odd. An odd one (NaN, half a surrogate pair, nesting of thousands of
levels) is taken apart by the slower means of `raw_json`, and the others as before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.model import FieldPath
from dagster_airbyte_proto.protocols.wire import RecordShape
from dagster_airbyte_proto.schema.columns import WHOLE_RECORD
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw, members

REFUSALS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NOWHERE = ("",)


class Parts(NamedTuple):
    """Raw texts; empty where there are none. `data` is None where the record has no object for it."""

    data: Mapping[str, Raw] | None
    namespace: Raw
    emitted_at: Raw
    changes: Raw
    version: Raw


class Envelope:
    """A line's members by path. Each level is cut once, however many of its members are asked for."""

    __slots__ = ("_levels",)

    def __init__(self, line: bytes) -> None:
        self._levels: dict[FieldPath, Mapping[str, Raw]] = {(): members(line)}

    def at(self, path: FieldPath) -> Raw:
        """The raw text at `path`; empty where there is none."""
        return self._level(path[:-1]).get(path[-1], MISSING) if path else MISSING

    def _level(self, path: FieldPath) -> Mapping[str, Raw]:
        level = self._levels.get(path)
        if level is None:
            raw = self._level(path[:-1]).get(path[-1], MISSING)
            try:
                level = members(raw) if len(raw) else {}
            except ValueError:
                level = {}
            self._levels[path] = level
        return level


def parts_of_lines(segment: bytes, shape: RecordShape, *, is_whole: bool = False) -> Iterator[Parts | None]:
    """The parts of each line; None for one that is no JSON object. The data of records that land whole is one field."""
    decoder, parts_of = _decoder(shape, is_whole=is_whole)
    made = _whole_parts if is_whole else Parts._make
    lines = segment.split(b"\n")[:-1]
    with suppress(*REFUSALS):
        found = decoder.decode_lines(segment)
        if len(found) == len(lines):
            yield from map(made, map(parts_of, found))
            return
    for line in lines:
        try:
            yield made(parts_of(decoder.decode(line)))
        except REFUSALS:
            yield _odd_parts(line, shape, is_whole=is_whole)


def _whole_parts(found: Sequence[Any]) -> Parts:
    data, *others = found
    return Parts({WHOLE_RECORD: data} if bytes(data).startswith(b"{") else None, *others)


def _odd_parts(line: bytes, shape: RecordShape, *, is_whole: bool) -> Parts | None:
    try:
        envelope = Envelope(line)
    except ValueError:
        return None
    try:
        data = members(envelope.at(shape.data))
    except ValueError:
        data = None
    if is_whole and data is not None:
        data = {WHOLE_RECORD: envelope.at(shape.data)}
    return Parts(data, *map(envelope.at, _paths(shape)))


def _paths(shape: RecordShape) -> tuple[FieldPath, ...]:
    return (shape.namespace, shape.emitted_at, shape.changes, shape.version)


@cache
def _decoder(
    shape: RecordShape, *, is_whole: bool
) -> tuple[msgspec.json.Decoder[Any], Callable[[Any], tuple[Any, ...]]]:
    """Refuses a line that has no data, or something else where an object should be."""
    tree: dict[str, Any] = {}
    paths = [path or _NOWHERE for path in _paths(shape)]
    for path, leaf in ((shape.data, Raw if is_whole else dict[str, Raw]), *((path, Raw) for path in paths)):
        level = tree
        for step in path[:-1]:
            level = level.setdefault(step, {})
        level[path[-1]] = leaf
    getter = attrgetter(*(".".join(map(_attribute, path)) for path in (shape.data, *paths)))
    return msgspec.json.Decoder(_line_struct(tree, shape.data)), getter


def _line_struct(tree: Mapping[str, Any], needed: FieldPath) -> Any:
    """Only what lies on the way to the data has to be there."""
    fields: list[Any] = []
    for name, inner in tree.items():
        is_needed = needed[:1] == (name,)
        kind = _line_struct(inner, needed[1:] if is_needed else ()) if isinstance(inner, dict) else inner
        if is_needed:
            fields.insert(0, (_attribute(name), kind))
        elif kind is Raw:
            fields.append((_attribute(name), Raw, MISSING))
        else:
            fields.append((_attribute(name), kind, msgspec.field(default_factory=kind)))
    return msgspec.defstruct("Line", fields, rename={_attribute(name): name for name in tree}, gc=False)


def _attribute(name: str) -> str:
    return f"of_{name}"
