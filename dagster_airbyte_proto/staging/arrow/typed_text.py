"""Text of an Arrow batch that stands for values of another type, as the SDK of Rapidbyte sends JSON and decimals."""

import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.staging.values.changes import Changes, ValueLocations, true_positions

_NUMBER = r"^-?\d+(\.\d+)?([eE][+-]?\d+)?$"
_WIDE = pa.decimal256(76, 38)


class DecimalText(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """Decimals as text. Only within this process: no file has it."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "airbyte_proto.decimal_text")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> "DecimalText":
        return cls()


TEXT_FORMS = {"Json": pa.json_(), "Decimal128": DecimalText()}
"""The types of text in columns of these types of Rapidbyte."""


def decimals_of_text(text: pa.Array, locations: ValueLocations, changes: Changes) -> pa.Array:
    """Returns the decimals, with more digits than any column has. Other text is null, with an entry."""
    plain = pc.if_else(pc.match_substring_regex(text, _NUMBER), text, pa.scalar(None, pa.string()))
    try:
        found = plain.cast(_WIDE)
    except pa.ArrowInvalid:  # A number of more digits than a Decimal128 has.
        found = pa.array([_decimal_or_none(each) for each in plain], _WIDE)
    changes.note_nulled(locations, true_positions(pc.and_(text.is_valid(), found.is_null())))
    return found


def _decimal_or_none(scalar: pa.Scalar) -> object:
    try:
        return scalar.cast(_WIDE).as_py()
    except pa.ArrowInvalid:
        return None
