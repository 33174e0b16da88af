"""Coerces arrays of wire types to arrays of the table's types, whole columns at a time.

Arrow's JSON parser takes a plain date for a timestamp, shifts a local time by an offset, and lets NaN pass. So times
are read as text and cast here by our own rules (`times.py`). The results of both parsers are coerced here, which is
why they agree.
"""

import base64
import binascii
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import Column, ValueKind, ValueType, null_array
from dagster_airbyte_proto.staging.values.changes import (
    SIZE_LIMITATION,
    TYPECAST_ERROR,
    Changes,
    ValueLocations,
    true_positions,
)
from dagster_airbyte_proto.staging.values.times import (
    Coerced,
    are_out_of_range,
    dates,
    local_timestamps,
    times,
    timestamps,
)


def coerce(column: Column, wire: pa.Array, changes: Changes) -> pa.Array:
    """Returns the values in the table's type. A value that does not fit is null, with an entry in `changes`."""
    return _coerce(column.type, wire, ValueLocations(column.path), changes)


def _coerce(kind: ValueType, wire: pa.Array, locations: ValueLocations, changes: Changes) -> pa.Array:
    if kind.kind not in _COERCIONS and kind.kind is not ValueKind.STRUCT:
        return wire
    if wire.null_count == len(wire):
        return null_array(len(wire), kind.table_type)
    if kind.depth:
        inner = _coerce(kind.element_type, wire.values, locations.elements(wire.offsets.to_numpy()), changes)
        return pa.ListArray.from_arrays(wire.offsets, inner, mask=wire.is_null())
    if kind.kind is ValueKind.STRUCT:
        return _coerce_struct(kind, wire, locations, changes)
    return _coerce_leaf(kind.kind, wire, locations, changes)


def _coerce_struct(kind: ValueType, wire: pa.StructArray, locations: ValueLocations, changes: Changes) -> pa.Array:
    inside = [
        _coerce(member.type, wire.field(number), locations.member(member.source), changes)
        for number, member in enumerate(kind.members)
    ]
    mask = wire.is_null() if wire.null_count else None
    return pa.StructArray.from_arrays(inside, fields=list(kind.table_type), mask=mask)


def _coerce_leaf(kind: ValueKind, wire: pa.Array, locations: ValueLocations, changes: Changes) -> pa.Array:
    values, is_cut = _COERCIONS[kind](wire)
    if values.null_count != wire.null_count:
        misfits = true_positions(pc.and_(wire.is_valid(), values.is_null()))
        is_size = are_out_of_range(kind, wire.take(pa.array(misfits)))
        changes.note_nulled(locations, misfits[~is_size], TYPECAST_ERROR)
        changes.note_nulled(locations, misfits[is_size], SIZE_LIMITATION)
    if is_cut is not None:
        changes.note_truncated(locations, true_positions(pc.and_(is_cut, values.is_valid())))
    return values


def _null_non_finite(values: pa.Array) -> Coerced:
    # In a null's place Arrow's buffer may hold anything, also NaN. So the fast check may fail for nulls alone, and the
    # exact one follows.
    if np.isfinite(values.to_numpy(zero_copy_only=False)).all():
        return Coerced(values)
    return Coerced(pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64())))


def _decode_base64(text: pa.Array) -> Coerced:
    return Coerced(
        pa.array([None if value is None else _base64_or_none(value) for value in text.to_pylist()], pa.binary())
    )


def _base64_or_none(text: str) -> bytes | None:
    # MIME (RFC 2045), from which JSON Schema has the word, breaks the text into lines. So does PostgreSQL's encode().
    try:
        return base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        return None


_COERCIONS: dict[ValueKind, Callable[[pa.Array], Coerced]] = {
    ValueKind.NUMBER: _null_non_finite,
    ValueKind.DATE: dates,
    ValueKind.TIME: times,
    ValueKind.TIMESTAMP: timestamps,
    ValueKind.LOCAL_TIMESTAMP: local_timestamps,
    ValueKind.BINARY: _decode_base64,
}
