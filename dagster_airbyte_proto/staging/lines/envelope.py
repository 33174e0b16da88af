"""The layout of a record line: as an Arrow schema for the JSON parser, and as msgspec decoders for raw text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.model import FieldPath
from dagster_airbyte_proto.protocols.wire import RecordWire
from dagster_airbyte_proto.schema.columns import CHANGES, Column
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw, members, members_struct

_Tree = dict[str, Any]


def line_schema(
    record_wire: RecordWire,
    columns: Sequence[Column],
    first_line: bytes,
    *,
    excluded: Sequence[FieldPath] = (),
    null_paths: Sequence[FieldPath] = (),
) -> pa.Schema:
    """Returns the Arrow schema of a line of this stream, for `columns` and the envelope.

    `columns` has no JSON columns: the caller cuts out their raw text itself. Members of the envelope that we do not
    need are declared too, where the first line shows them as text or a whole number: so the parser can reject members
    that are not declared. The paths in `excluded` are not declared. The paths in `null_paths` are declared as nulls:
    the parser rejects a line that has a value there.
    """
    # The columns keep the order of the first line: Arrow's parser guesses the column of a member by the member before
    # it, and after its first wrong guess it looks up every member.
    places = {name: place for place, name in enumerate(data_members(first_line, record_wire.data))}
    columns = sorted(columns, key=lambda column: places.get(column.path[0], len(places)))
    tree: _Tree = {}
    for path in null_paths:
        _put(tree, path[: len(record_wire.data)], pa.null())
    for path, kind in _plain_members(first_line, record_wire.data):
        _put(tree, path, kind)
    _put(tree, record_wire.data, pa.struct([(column.path[0], column.type.wire_type) for column in columns]))
    _put(tree, record_wire.emitted_at, emitted_at_type(record_wire))
    if record_wire.version not in excluded:
        _put(tree, record_wire.version, pa.int64())
    if record_wire.changes not in null_paths:
        _put(tree, record_wire.changes, CHANGES)
    for path in (record_wire.type, record_wire.stream, record_wire.namespace):
        if path not in excluded and path not in null_paths:
            _put(tree, path, pa.string())
    return pa.schema(list(_build_struct(tree)))


def emitted_at_type(record_wire: RecordWire) -> pa.DataType:
    """Returns the wire type of a record's time of emission."""
    return pa.string() if record_wire.emitted_at_is_text else pa.float64()


def raw_decoder(
    record_wire: RecordWire, names: Sequence[str]
) -> tuple[msgspec.json.Decoder[Any], Sequence[Callable[[Any], Raw]]]:
    """Returns a decoder of lines that cuts out the raw text of these members of the data, and a getter for each."""
    path, data = ".".join("inner" for _ in record_wire.data), members_struct(names)
    if data is None:
        decoder, members_of = member_names_decoder(record_wire.data)
        return decoder, [_member_getter(members_of, name) for name in names]
    return msgspec.json.Decoder(_wrapper_struct(data, record_wire.data)), [
        attrgetter(f"{path}.field{number}") for number in range(len(names))
    ]


@cache
def whole_record_decoder(data: FieldPath) -> tuple[msgspec.json.Decoder[Any], Sequence[Callable[[Any], Raw]]]:
    """Returns the same as `raw_decoder`, for the raw text of the whole data object at this path."""
    return msgspec.json.Decoder(_wrapper_struct(Raw, data)), [attrgetter(".".join("inner" for _ in data))]


@cache
def member_names_decoder(data: FieldPath) -> tuple[msgspec.json.Decoder[Any], Callable[[Any], Mapping[str, Raw]]]:
    """Returns a decoder of lines that keeps all members of the data at this path, and a getter for them."""
    # Cached, so that all streams share one: a decoder is expensive to make.
    return msgspec.json.Decoder(_wrapper_struct(dict[str, Raw], data)), attrgetter(".".join("inner" for _ in data))


def data_members(line: bytes, data: FieldPath) -> Mapping[str, Raw]:
    """Returns the members of a line's data; none where the line is not a record. Reads odd lines too."""
    levels = list(_levels(line, data))
    return levels[-1] if len(levels) > len(data) else {}


def _member_getter(members_of: Callable[[Any], Mapping[str, Raw]], name: str) -> Callable[[Any], Raw]:
    return lambda record: members_of(record).get(name, MISSING)


def _wrapper_struct(inner: Any, path: FieldPath) -> Any:
    for step in reversed(path):
        inner = msgspec.defstruct("Wrapper", [("inner", inner)], rename={"inner": step}, gc=False)
    return inner


def _put(tree: _Tree, path: FieldPath, value: pa.DataType) -> None:
    if not path:
        return
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
    tree[path[-1]] = value


def _build_struct(tree: _Tree) -> pa.StructType:
    return pa.struct(
        [(name, _build_struct(inner) if isinstance(inner, dict) else inner) for name, inner in tree.items()]
    )


def _levels(line: bytes, path: FieldPath) -> Iterator[Mapping[str, Raw]]:
    """Yields the members of the line, then of the object at each step of the path. Ends at the first other value."""
    level: Raw = Raw(line)
    with suppress(ValueError):
        for step in path:
            inside = members(level)
            yield inside
            level = inside.get(step, MISSING)
        yield members(level)


def _plain_members(line: bytes, path: FieldPath) -> Iterator[tuple[FieldPath, pa.DataType]]:
    """Yields the members of the envelope that are strings or whole numbers, down to the object that holds the data."""
    for depth, inside in zip(range(len(path)), _levels(line, path), strict=False):
        for name, raw in inside.items():
            text = bytes(raw)
            if text.startswith(b'"'):
                yield (*path[:depth], name), pa.string()
            elif text.isdigit():
                yield (*path[:depth], name), pa.int64()
