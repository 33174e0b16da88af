"""Columns with every kind of value that is hard to write as JSON, and what each is there."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa


class Hazard(NamedTuple):
    """A column, and the JSON text of each of its values."""

    column: pa.Array
    texts: tuple[str, ...]


_KEYED = pa.map_(pa.string(), pa.int64())
_PRICED = pa.list_(pa.struct([("q", pa.decimal128(10, 2))]))


def _of(kind: pa.DataType | None, *values: tuple[Any, str]) -> Hazard:
    return Hazard(pa.array([value for value, _ in values], kind), tuple(text for _, text in values))


HAZARDS = {
    "floats": _of(pa.float64(), (0.1, "0.1"), (1e300, "1e+300"), (None, "null"), (-0.0, "-0"), (5e-324, "5e-324")),
    "halves": _of(pa.float32(), (0.1, "0.1"), (None, "null"), (16777216.0, "16777216"), (1.5, "1.5"), (0.0, "0")),
    "whole": _of(pa.int64(), (2**53 + 1, "9007199254740993"), (-(2**63), str(-(2**63))), (2**63 - 1, str(2**63 - 1)),
                 (None, "null"), (0, "0")),
    "decimals": _of(
        pa.decimal128(38, 9),
        (Decimal("12345678901234567890123456789.123456789"), "12345678901234567890123456789.123456789"),
        (Decimal("-99999999999999999999999999999.999999999"), "-99999999999999999999999999999.999999999"),
        (Decimal("0E-9"), "0E-9"), (Decimal("0.000000001"), "1E-9"), (None, "null"),
    ),
    "whole_decimals": _of(pa.decimal128(38, 0), (Decimal(10) ** 37, f"1{'0' * 37}"), (Decimal(-1), "-1"),
                          (None, "null"),
                          (Decimal(0), "0"), (Decimal("9" * 38), "9" * 38)),
    "instants": _of(
        pa.timestamp("us", "UTC"),
        (datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), '"1969-12-31T23:59:59.999999Z"'),
        (datetime(1, 1, 1, tzinfo=UTC), '"0001-01-01T00:00:00.000000Z"'),
        (datetime(9999, 12, 31, 23, 59, 59, 1, UTC), '"9999-12-31T23:59:59.000001Z"'),
        (None, "null"), (datetime(1582, 10, 10, tzinfo=UTC), '"1582-10-10T00:00:00.000000Z"'),
    ),
    "local_times": _of(
        pa.timestamp("us"), (datetime(1969, 12, 31, 23, 59, 59, 999999), '"1969-12-31T23:59:59.999999"'),
        (None, "null"), (datetime(1900, 1, 1), '"1900-01-01T00:00:00.000000"'),
        (datetime(2024, 2, 29, 12), '"2024-02-29T12:00:00.000000"'), (None, "null"),
    ),
    "days": _of(pa.date32(), (date(1, 1, 1), '"0001-01-01"'), (date(1969, 12, 31), '"1969-12-31"'), (None, "null"),
                (date(9999, 12, 31), '"9999-12-31"'), (date(2024, 2, 29), '"2024-02-29"')),
    "bytes": _of(pa.binary(), (b"\x00\xff\xfe", '"AP/+"'), (b"", '""'), (None, "null"), (b"abc", '"YWJj"'),
                (b"\n", '"Cg=="')),
    "texts": _of(
        pa.string(), ("\x00\x01\x1f\x7f tab\t nl\n cr\r", '"\\u0000\\u0001\\u001f\x7f tab\\t nl\\n cr\\r"'),
        ('quote" back\\ slash/', '"quote\\" back\\\\ slash/"'), ("\u2028 \U0001f600 é", '"\u2028 \U0001f600 é"'),
        (None, "null"), ("", '""'),
    ),
    "booleans": _of(pa.bool_(), (True, "true"), (False, "false"), (None, "null"), (True, "true"), (False, "false")),
    "lists": _of(pa.list_(pa.int64()), ([1, None, 2], "[1,null,2]"), ([], "[]"), (None, "null"), ([3], "[3]"),
                ([4], "[4]")),
    "structs": _of(
        pa.struct([("a", pa.int64()), ("b", pa.string())]), ({"a": 1, "b": None}, '{"a":1,"b":null}'), (None, "null"),
        ({"a": None, "b": 'x"y'}, '{"a":null,"b":"x\\"y"}'), ({"a": 2, "b": "z"}, '{"a":2,"b":"z"}'),
        ({"a": None, "b": None}, '{"a":null,"b":null}'),
    ),
    "maps": _of(_KEYED, ([('k"1', 1)], '{"k\\"1":1}'), ([], "{}"), (None, "null"), ([("a", None)], '{"a":null}'),
                ([("b", 2), ("c", 3)], '{"b":2,"c":3}')),
    "nested": _of(_PRICED, ([{"q": Decimal("1.10")}], '[{"q":1.10}]'), (None, "null"), ([None], "[null]"), ([], "[]"),
                  ([{"q": None}], '[{"q":null}]')),
    "nothing": _of(pa.null(), *[(None, "null")] * 5),
}  # fmt: skip
