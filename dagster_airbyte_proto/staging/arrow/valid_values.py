"""Takes from Arrow arrays the values to which Arrow gives no meaning, one by one. A component may send them: the
libraries that write Arrow do not look at each value either.

What can be read without doubt is kept: a decimal of more digits than its type says has its value.
"""

import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.schema.arrow_schema import is_text, layout_of, with_widest_decimals
from dagster_airbyte_proto.staging.values.changes import (
    SIZE_LIMITATION,
    TYPECAST_ERROR,
    Changes,
    ValueLocations,
    true_positions,
)

_DAY_SECONDS = 86_400
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def valid_values(array: pa.Array, locations: ValueLocations, changes: Changes) -> pa.Array:
    """Returns an array without the values that are invalid: bytes that are no text, decimals beyond what their bytes
    may say, a Date64 off midnight, and times that are not of one day (PostgreSQL has 24:00). Of an array that has
    parts, the parts are to be looked at."""
    kind = with_widest_decimals(array.type)
    array = array if kind == array.type else array.view(kind)
    values = array.storage if isinstance(array, pa.ExtensionArray) else array
    has_parts = pa.types.is_nested(values.type) or pa.types.is_run_end_encoded(values.type)
    if has_parts or layout_of(values.type) == values.type or is_valid(values):
        return array
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.string())
    is_misfit = _invalid(values)
    is_decimal = pa.types.is_decimal(values.type)
    changes.note_nulled(locations, true_positions(is_misfit), SIZE_LIMITATION if is_decimal else TYPECAST_ERROR)
    plain = values.view(layout_of(values.type))  # Arrow has no choice among small decimals, and refuses invalid ones.
    valid = pc.if_else(is_misfit, pa.scalar(None, plain.type), plain).view(values.type)
    return pa.ExtensionArray.from_storage(array.type, valid) if isinstance(array, pa.ExtensionArray) else valid


def is_valid(array: pa.Array) -> bool:
    """True if Arrow calls all values valid, those of parts too."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _invalid(array: pa.Array) -> pa.BooleanArray:
    kind = array.type
    if is_text(kind):
        return pa.array([not _is_utf8(each) for each in array.view(layout_of(kind)).to_pylist()], pa.bool_())
    if pa.types.is_decimal(kind):
        most = pa.scalar(10**kind.precision - 1, _whole(kind))
        digits = array.view(_whole(kind))
        return pc.or_(pc.greater(digits, most), pc.less(digits, pc.negate(most)))
    numbers = array.view(layout_of(kind))
    if pa.types.is_date64(kind):
        day = _DAY_SECONDS * 1000
        return pc.not_equal(pc.multiply(pc.divide(numbers, day), day), numbers)
    return pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, _DAY_SECONDS * _UNITS[kind.unit]))


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _whole(kind: pa.DataType) -> pa.DataType:
    """The type of the digits of a decimal, without its point."""
    whole: dict[int, pa.DataType] = {4: pa.int32(), 8: pa.int64(), 16: pa.decimal128(38), 32: pa.decimal256(76)}
    return whole[kind.byte_width]
