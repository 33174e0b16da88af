"""From arrays as the JSON parser reads them to arrays as the table wants them, whole columns at a time.

Arrow's JSON parser takes a plain date for a timestamp, shifts a local time by an offset, and lets NaN pass. So times
are read as text and cast here (`times.py`), where each rule is ours. Both roads end here, which is why they agree.
"""

import base64
import binascii
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.columns import Column, Kind, ValueType, nulls
from dagster_airbyte_proto.staging.rows.changes import SIZE_LIMITATION, TYPECAST_ERROR, Changes, Slots
from dagster_airbyte_proto.staging.rows.times import (
    Coerced,
    dates,
    is_out_of_range,
    local_timestamps,
    times,
    timestamps,
)
from dagster_airbyte_proto.staging.rows.variants import variants

_Positions = np.ndarray[tuple[int], np.dtype[np.int64]]


def coerced(column: Column, wire: pa.Array, changes: Changes) -> pa.Array:
    """The column's values as its table has them. What does not fit is null and has its entry in `changes`."""
    return _coerced(column.type, wire, Slots(column.path), changes)


def _coerced(kind: ValueType, wire: pa.Array, slots: Slots, changes: Changes) -> pa.Array:
    if kind.kind not in _COERCIONS and kind.kind not in (Kind.STRUCT, Kind.VARIANT):
        return wire
    if wire.null_count == len(wire):
        return nulls(len(wire), kind.in_table)
    if kind.depth:
        inner = _coerced(kind.item, wire.values, slots.elements(wire.offsets.to_numpy()), changes)
        return pa.ListArray.from_arrays(wire.offsets, inner, mask=wire.is_null())
    if kind.kind is Kind.STRUCT:
        return _struct(kind, wire, slots, changes)
    if kind.kind is Kind.VARIANT:
        return variants(wire, slots, changes)
    return _leaf(kind.kind, wire, slots, changes)


def _struct(kind: ValueType, wire: pa.StructArray, slots: Slots, changes: Changes) -> pa.Array:
    inside = [
        _coerced(member.type, wire.field(number), slots.member(member.source), changes)
        for number, member in enumerate(kind.members)
    ]
    mask = wire.is_null() if wire.null_count else None
    return pa.StructArray.from_arrays(inside, fields=list(kind.in_table), mask=mask)


def _leaf(kind: Kind, wire: pa.Array, slots: Slots, changes: Changes) -> pa.Array:
    values, is_cut = _COERCIONS[kind](wire)
    if values.null_count != wire.null_count:
        misfits = _hits(pc.and_(wire.is_valid(), values.is_null()))
        is_size = is_out_of_range(kind, wire.take(pa.array(misfits)))
        changes.nulled(slots, misfits[~is_size], TYPECAST_ERROR)
        changes.nulled(slots, misfits[is_size], SIZE_LIMITATION)
    if is_cut is not None:
        changes.truncated(slots, _hits(pc.and_(is_cut, values.is_valid())))
    return values


def _hits(claims: pa.Array) -> _Positions:
    """Where it is true; null is not."""
    return np.flatnonzero(pc.fill_null(claims, False).to_numpy(zero_copy_only=False))


def _finite(values: pa.Array) -> Coerced:
    # The slots of nulls may hold anything, so that a hit is looked at again with the nulls known.
    if np.isfinite(values.to_numpy(zero_copy_only=False)).all():
        return Coerced(values)
    return Coerced(pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64())))


def _bytes(text: pa.Array) -> Coerced:
    return Coerced(pa.array([None if value is None else _decoded(value) for value in text.to_pylist()], pa.binary()))


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


_COERCIONS: dict[Kind, Callable[[pa.Array], Coerced]] = {
    Kind.NUMBER: _finite,
    Kind.DATE: dates,
    Kind.TIME: times,
    Kind.TIMESTAMP: timestamps,
    Kind.LOCAL_TIMESTAMP: local_timestamps,
    Kind.BINARY: _bytes,
}
