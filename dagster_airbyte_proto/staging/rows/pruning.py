"""Keeps or drops members of objects that land as JSON text. The remaining values keep their text.

Many objects are decoded in one call, and only as deep as the paths go. Values are not parsed.
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


def prune(texts: pa.Array, pruning: Pruning) -> pa.Array:
    """Returns the texts with the pruning applied.

    A value that is not an object has no members: it stays if members are dropped, and is null if members are kept.
    """
    raws = [_NULL if text is None else text.encode() for text in texts.to_pylist()]
    if pruning.keep:
        raws = _keep_members(raws, pruning.keep)
    if pruning.drop:
        raws = _drop_members(raws, pruning.drop)
    return pa.array([None if raw == _NULL else raw.decode() for raw in raws], pa.string())


def _keep_members(raws: Sequence[bytes], paths: Sequence[FieldPath]) -> list[bytes]:
    rows = _objects(raws)
    left: list[_Object] = [{} for _ in rows]
    for name, inner in _group_by_first_step(paths).items():
        holders = [number for number, row in enumerate(rows) if row is not None and name in row]
        found = [bytes((rows[number] or {})[name]) for number in holders]
        for number, raw in zip(holders, found if () in inner else _keep_members(found, inner), strict=True):
            left[number][name] = Raw(raw)
    return [_NULL if row is None else _encode(kept) for row, kept in zip(rows, left, strict=True)]


def _drop_members(raws: Sequence[bytes], paths: Sequence[FieldPath]) -> list[bytes]:
    """Drops members. The text of an object that has none of them is not changed."""
    rows = _objects(raws)
    touched: set[int] = set()
    for name, inner in _group_by_first_step(paths).items():
        holders = [(number, row) for number, row in enumerate(rows) if row is not None and name in row]
        touched.update(number for number, _ in holders)
        if () in inner:
            for _, row in holders:
                del row[name]
        else:
            left = _drop_members([bytes(row[name]) for _, row in holders], inner)
            for (_, row), raw in zip(holders, left, strict=True):
                row[name] = Raw(raw)
    return [_encode(rows[number] or {}) if number in touched else raw for number, raw in enumerate(raws)]


def _group_by_first_step(paths: Sequence[FieldPath]) -> Mapping[str, list[FieldPath]]:
    found: dict[str, list[FieldPath]] = {}
    for path in paths:
        found.setdefault(path[0], []).append(path[1:])
    return found


def _objects(raws: Sequence[bytes]) -> list[_Object | None]:
    """Decodes objects; None for any other value."""
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


def _encode(row: _Object) -> bytes:
    try:
        return _ENCODER.encode(row)
    except UnicodeEncodeError:  # A name with half a surrogate pair, which only the standard library encodes.
        return b"{" + b",".join(json.dumps(name).encode() + b":" + bytes(raw) for name, raw in row.items()) + b"}"
