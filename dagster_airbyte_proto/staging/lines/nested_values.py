"""Reads values inside the objects of a batch: members of structs as arrays, and members of JSON text as raw text."""

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.model import FieldPath
from dagster_airbyte_proto.schema.columns import ValueType, member_at
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw, members
from dagster_airbyte_proto.staging.values.changes import Changes


def member_array(array: pa.Array, kind: ValueType, path: FieldPath) -> tuple[pa.Array, ValueType, FieldPath]:
    """Returns the array at the path, as far as it goes through structs, its type, and the rest of the path."""
    found, beyond = member_at(kind, path)
    for step in path[: len(path) - len(beyond)]:
        number = next(number for number, member in enumerate(kind.members) if member.source == step)
        array, kind = pc.struct_field(array, [number]), kind.members[number].type
    return array, found, beyond


def raw_texts_at(array: pa.Array, kind: ValueType, path: FieldPath) -> list[Raw]:
    """Returns the raw text at the path in each row's JSON text; `MISSING` for all if the array is no JSON text."""
    if not kind.is_json_text:
        return [MISSING] * len(array)
    return [_inside(text, path) for text in array.to_pylist()]


def _inside(text: str | None, path: FieldPath) -> Raw:
    raw = MISSING if text is None else Raw(text.encode())
    for step in path:
        try:
            raw = members(raw).get(step, MISSING)
        except ValueError:
            return MISSING
    return raw


def are_around_misfits(path: FieldPath, changes: Changes) -> bool:
    """True if in some row an object on the way to the path became null."""
    return any(changes.rows_unreadable(around) for around in paths_around(path))


def texts_in_misfits(path: FieldPath, raws: Sequence[Raw], changes: Changes) -> dict[int, Raw]:
    """Returns the raw text at the path in each row where an object on the way to it became null, as NaN beside a key
    does it. `raws` are the texts of the path's first step. A row is left out if the path leads to no object there."""
    found: dict[int, Raw] = {}
    for row in {row for around in paths_around(path) for row in changes.rows_unreadable(around)}:
        raw = raws[row]
        with suppress(ValueError):
            for step in path[1:]:
                raw = members(raw).get(step, MISSING)
            found[row] = raw
    return found


def paths_around(path: FieldPath) -> list[FieldPath]:
    """Returns the paths of the objects on the way to a value, the outermost first."""
    return [path[:length] for length in range(1, len(path))]
