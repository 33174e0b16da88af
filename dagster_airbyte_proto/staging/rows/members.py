"""What lies inside objects of a batch: members of structs as arrays, and what is beyond them in JSON text."""

import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.model import FieldPath
from dagster_airbyte_proto.schema.columns import ValueType, member_at
from dagster_airbyte_proto.staging.lines.raw_members import MISSING, Raw, members


def reached(array: pa.Array, kind: ValueType, path: FieldPath) -> tuple[pa.Array, ValueType, FieldPath]:
    """The array that the path leads to as far as it goes through structs, and the rest of the path."""
    found, beyond = member_at(kind, path)
    for step in path[: len(path) - len(beyond)]:
        number = next(number for number, member in enumerate(kind.members) if member.source == step)
        array, kind = pc.struct_field(array, [number]), kind.members[number].type
    return array, found, beyond


def texts_at(array: pa.Array, kind: ValueType, path: FieldPath) -> list[Raw]:
    """What each row's JSON text has at the path; nothing where the array is no JSON text."""
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
