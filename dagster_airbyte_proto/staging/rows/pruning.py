"""Members cut out of objects that land as JSON text. What is left of an object stays as it came, value by value.

Objects are read many at once, and only as deep as a member is named; no value is looked into.
"""

import json
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.model import FieldPath
from dagster_airbyte_proto.schema.columns import Pruning
from dagster_airbyte_proto.staging.lines.raw_members import Raw, members

_Object = dict[str, Raw]
_OBJECTS = msgspec.json.Decoder(list[_Object | None])
_ENCODER = msgspec.json.Encoder()
_NULL = b"null"


def pruned(texts: pa.Array, pruning: Pruning) -> pa.Array:
    """The texts with what the pruning leaves of them. A value that is no object has no members: it stays where members
    are dropped, and is null where some were to be kept."""
    raws = [_NULL if text is None else text.encode() for text in texts.to_pylist()]
    if pruning.keep:
        raws = _kept(raws, pruning.keep)
    if pruning.drop:
        raws = _dropped(raws, pruning.drop)
    return pa.array([None if raw == _NULL else raw.decode() for raw in raws], pa.string())


def _kept(raws: Sequence[bytes], paths: Sequence[FieldPath]) -> list[bytes]:
    rows = _objects(raws)
    left: list[_Object] = [{} for _ in rows]
    for name, inner in _by_first(paths).items():
        holders = [number for number, row in enumerate(rows) if row is not None and name in row]
        found = [bytes((rows[number] or {})[name]) for number in holders]
        for number, raw in zip(holders, found if () in inner else _kept(found, inner), strict=True):
            left[number][name] = Raw(raw)
    return [_NULL if row is None else _written(kept) for row, kept in zip(rows, left, strict=True)]


def _dropped(raws: Sequence[bytes], paths: Sequence[FieldPath]) -> list[bytes]:
    """Objects that have none of the members stay letter by letter."""
    rows = _objects(raws)
    touched: set[int] = set()
    for name, inner in _by_first(paths).items():
        holders = [(number, row) for number, row in enumerate(rows) if row is not None and name in row]
        touched.update(number for number, _ in holders)
        if () in inner:
            for _, row in holders:
                del row[name]
        else:
            left = _dropped([bytes(row[name]) for _, row in holders], inner)
            for (_, row), raw in zip(holders, left, strict=True):
                row[name] = Raw(raw)
    return [_written(rows[number] or {}) if number in touched else raw for number, raw in enumerate(raws)]


def _by_first(paths: Sequence[FieldPath]) -> Mapping[str, list[FieldPath]]:
    found: dict[str, list[FieldPath]] = {}
    for path in paths:
        found.setdefault(path[0], []).append(path[1:])
    return found


def _objects(raws: Sequence[bytes]) -> list[_Object | None]:
    """None for what is no object."""
    try:
        rows = _OBJECTS.decode(b"[" + b",".join(raws) + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [_object(raw) for raw in raws]
    return rows if len(rows) == len(raws) else [_object(raw) for raw in raws]


def _object(raw: bytes) -> _Object | None:
    try:
        return dict(members(raw))
    except ValueError:
        return None


def _written(row: _Object) -> bytes:
    try:
        return _ENCODER.encode(row)
    except UnicodeEncodeError:  # A name has half a surrogate pair.
        return b"{" + b",".join(json.dumps(name).encode() + b":" + bytes(raw) for name, raw in row.items()) + b"}"
