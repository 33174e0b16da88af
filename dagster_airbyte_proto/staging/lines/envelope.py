"""Where a record's parts stand in its line, as an Arrow schema for the parser and as a msgspec decoder for raw text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.model import FieldPath
from dagster_airbyte_proto.protocols.wire import RecordShape
from dagster_airbyte_proto.schema.columns import CHANGES, Column
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw, members

_Tree = dict[str, Any]


def parse_schema(
    shape: RecordShape,
    columns: Sequence[Column],
    first_line: bytes,
    *,
    without: Sequence[FieldPath] = (),
    nulls: Sequence[FieldPath] = (),
) -> pa.Schema:
    """All that a line of this stream is known to hold. The JSON columns are left out: their raw text is cut elsewhere.

    Members of the envelope that we do not need are declared as the first line shows them where they are text or a whole
    number, so that the parser can be told to refuse what is not declared. The paths in `without` are left undeclared;
    lines where anything stands at those in `nulls` are refused. The columns stand as in the first line: the parser
    guesses the next member's column by the one before, and looks all of them up from its first wrong guess on.
    """
    places = {name: place for place, name in enumerate(data_members(first_line, shape.data))}
    columns = sorted(columns, key=lambda column: places.get(column.path[0], len(places)))
    tree: _Tree = {}
    for path in nulls:
        _put(tree, path[: len(shape.data)], pa.null())
    for path, kind in _plain_members(first_line, shape.data):
        _put(tree, path, kind)
    _put(tree, shape.data, pa.struct([(column.path[0], column.type.on_wire) for column in columns]))
    _put(tree, shape.emitted_at, emitted_type(shape))
    if shape.version not in without:
        _put(tree, shape.version, pa.int64())
    if shape.changes not in nulls:
        _put(tree, shape.changes, CHANGES)
    for path in (shape.type, shape.stream, shape.namespace):
        if path not in without and path not in nulls:
            _put(tree, path, pa.string())
    return pa.schema(list(_struct(tree)))


def emitted_type(shape: RecordShape) -> pa.DataType:
    """What it is on the wire that says when a record was emitted."""
    return pa.string() if shape.emitted_at_is_text else pa.float64()


def raw_decoder(
    shape: RecordShape, names: Sequence[str]
) -> tuple[msgspec.json.Decoder[Any], Sequence[Callable[[Any], Raw]]]:
    """A decoder of lines that cuts the raw text of the data's `names`, and for each a way to get at it."""
    fields = [(f"field{number}", Raw, MISSING) for number in range(len(names))]
    rename = {f"field{number}": name for number, name in enumerate(names)}
    data = msgspec.defstruct("Data", fields, rename=rename, gc=False)
    path = ".".join("inner" for _ in shape.data)
    return msgspec.json.Decoder(_wrapped(data, shape.data)), [
        attrgetter(f"{path}.field{number}") for number in range(len(names))
    ]


@cache
def whole_decoder(data: FieldPath) -> tuple[msgspec.json.Decoder[Any], Sequence[Callable[[Any], Raw]]]:
    """As `raw_decoder`, for the raw text of all the data at this path."""
    return msgspec.json.Decoder(_wrapped(Raw, data)), [attrgetter(".".join("inner" for _ in data))]


@cache
def names_decoder(data: FieldPath) -> tuple[msgspec.json.Decoder[Any], Callable[[Any], Mapping[str, Raw]]]:
    """A decoder of lines that tells all names in the data at this path. One for all streams: it is dear to make."""
    return msgspec.json.Decoder(_wrapped(dict[str, Raw], data)), attrgetter(".".join("inner" for _ in data))


def data_members(line: bytes, data: FieldPath) -> Mapping[str, Raw]:
    """What a line's data has, odd as the line may be; nothing where it is no record."""
    levels = list(_levels(line, data))
    return levels[-1] if len(levels) > len(data) else {}


def _wrapped(inner: Any, path: FieldPath) -> Any:
    for step in reversed(path):
        inner = msgspec.defstruct("Wrapper", [("inner", inner)], rename={"inner": step}, gc=False)
    return inner


def _put(tree: _Tree, path: FieldPath, value: pa.DataType) -> None:
    if not path:
        return
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
    tree[path[-1]] = value


def _struct(tree: _Tree) -> pa.StructType:
    return pa.struct([(name, _struct(inner) if isinstance(inner, dict) else inner) for name, inner in tree.items()])


def _levels(line: bytes, path: FieldPath) -> Iterator[Mapping[str, Raw]]:
    """The members of the line, of what stands at each step of the path, and of what stands at its end; as far as there
    are objects."""
    level: Raw = Raw(line)
    with suppress(ValueError):
        for step in path:
            inside = members(level)
            yield inside
            level = inside.get(step, MISSING)
        yield members(level)


def _plain_members(line: bytes, path: FieldPath) -> Iterator[tuple[FieldPath, pa.DataType]]:
    """The members on the way to the data that are strings or whole numbers."""
    for depth, inside in zip(range(len(path)), _levels(line, path), strict=False):
        for name, raw in inside.items():
            text = bytes(raw)
            if text.startswith(b'"'):
                yield (*path[:depth], name), pa.string()
            elif text.isdigit():
                yield (*path[:depth], name), pa.int64()
