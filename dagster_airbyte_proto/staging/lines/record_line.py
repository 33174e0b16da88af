"""Splits record lines into the members of the envelope and the record's fields, each as its raw text.

msgspec decodes all lines of a segment in one call if none is odd. It refuses the whole segment for one odd line (NaN,
half a surrogate pair, nesting of thousands of levels); then each line is decoded alone, and the odd ones by the slower
scanner of `raw_members`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.model import FieldPath
from dagster_airbyte_proto.protocols.wire import RecordWire
from dagster_airbyte_proto.schema.columns import WHOLE_RECORD
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw, members

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NOWHERE = ("",)


class RecordParts(NamedTuple):
    """The parts of a record line as raw texts; empty where the line has none. `data` is None if it is not an object."""

    data: Mapping[str, Raw] | None
    namespace: Raw
    emitted_at: Raw
    changes: Raw
    version: Raw


class Envelope:
    """The members of a line by path. Each object is split once, however many of its members are read."""

    __slots__ = ("_levels",)

    def __init__(self, line: bytes) -> None:
        self._levels: dict[FieldPath, Mapping[str, Raw]] = {(): members(line)}

    def at(self, path: FieldPath) -> Raw:
        """Returns the raw text at `path`; empty where there is none."""
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


def split_lines(segment: bytes, record_wire: RecordWire, *, is_whole: bool = False) -> Iterator[RecordParts | None]:
    """Yields the parts of each line; None for a line that is not a JSON object.

    With `is_whole` the data is one field, WHOLE_RECORD, that holds its whole text.
    """
    decoder, get_parts = _line_decoder(record_wire, is_whole=is_whole)
    make = _whole_parts if is_whole else RecordParts._make
    lines = segment.split(b"\n")[:-1]
    with suppress(*DECODE_ERRORS):
        found = decoder.decode_lines(segment)
        if len(found) == len(lines):
            yield from map(make, map(get_parts, found))
            return
    for line in lines:
        try:
            yield make(get_parts(decoder.decode(line)))
        except DECODE_ERRORS:
            yield _odd_line_parts(line, record_wire, is_whole=is_whole)


def _whole_parts(found: Sequence[Any]) -> RecordParts:
    data, *others = found
    return RecordParts({WHOLE_RECORD: data} if bytes(data).startswith(b"{") else None, *others)


def _odd_line_parts(line: bytes, record_wire: RecordWire, *, is_whole: bool) -> RecordParts | None:
    try:
        envelope = Envelope(line)
    except ValueError:
        return None
    try:
        data = members(envelope.at(record_wire.data))
    except ValueError:
        data = None
    if is_whole and data is not None:
        data = {WHOLE_RECORD: envelope.at(record_wire.data)}
    return RecordParts(data, *map(envelope.at, _paths(record_wire)))


def _paths(record_wire: RecordWire) -> tuple[FieldPath, ...]:
    return (record_wire.namespace, record_wire.emitted_at, record_wire.changes, record_wire.version)


@cache
def _line_decoder(
    record_wire: RecordWire, *, is_whole: bool
) -> tuple[msgspec.json.Decoder[Any], Callable[[Any], tuple[Any, ...]]]:
    """Returns a decoder that refuses a line without data, or with another value where an object must be."""
    tree: dict[str, Any] = {}
    paths = [path or _NOWHERE for path in _paths(record_wire)]
    for path, leaf in ((record_wire.data, Raw if is_whole else dict[str, Raw]), *((path, Raw) for path in paths)):
        level = tree
        for step in path[:-1]:
            level = level.setdefault(step, {})
        level[path[-1]] = leaf
    getter = attrgetter(*(".".join(map(_attribute, path)) for path in (record_wire.data, *paths)))
    return msgspec.json.Decoder(_line_struct(tree, record_wire.data)), getter


def _line_struct(tree: Mapping[str, Any], needed: FieldPath) -> Any:
    """Builds the struct of a line. Only the members on the path to the data are required."""
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
