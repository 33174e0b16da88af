"""Values of each kind: those that fit their column, with what lands, and those that do not."""

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

INTEGER = {"type": ["null", "integer"]}
NUMBER = {"type": "number"}
STRING = {"type": "string"}
BOOLEAN = {"type": "boolean"}
BIG = {"type": "string", "airbyte_type": "big_integer"}
DATE = {"type": "string", "format": "date"}
TIME = {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"}
INSTANT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
LOCAL = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"}
BINARY = {"type": "string", "contentEncoding": "base64"}
OBJECT = {"type": "object"}
UNION = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
INTEGERS = {"type": "array", "items": {"type": "integer"}}
INSTANTS = {"type": "array", "items": INSTANT}
OBJECTS = {"type": "array", "items": {"type": "object"}}
GRID = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}

UTC = dt.UTC
TYPECAST = "DESTINATION_TYPECAST_ERROR"
SIZE = "DESTINATION_FIELD_SIZE_LIMITATION"
DEEP = "[" * 10_000 + "]" * 10_000

LANDED: list[tuple[Mapping[str, Any], str, Any]] = [
    (INTEGER, "1", 1),
    (INTEGER, "-9223372036854775808", -(1 << 63)),
    (INTEGER, "1.0", 1),
    (INTEGER, "1e3", 1000),
    (INTEGER, "-7.000", -7),
    (INTEGER, "-0.0", 0),
    (INTEGER, "9223372036854775807.0", (1 << 63) - 1),
    (INTEGER, "null", None),
    (NUMBER, "1", 1.0),
    (NUMBER, "123456789012345678901234567890", 1.2345678901234568e29),
    (NUMBER, "1e-999", 0.0),
    (NUMBER, "1e-99999999999", 0.0),
    (BIG, '"\\u0031"', Decimal(1)),
    (BIG, '"1e+0000000000002"', Decimal(100)),
    (STRING, '"a\\u0000b"', "a\x00b"),
    (STRING, '"\\ud83d\\ude00"', "😀"),
    (STRING, "12.50", "12.50"),
    (STRING, "true", "true"),
    (STRING, '{"a": [1, 2]}', '{"a": [1, 2]}'),
    (BOOLEAN, "false", False),
    (BIG, "12345678901234567890123456789012345678", Decimal("12345678901234567890123456789012345678")),
    (BIG, '"-12"', Decimal(-12)),
    (BIG, "1e37", Decimal(10) ** 37),
    (BIG, "120e-1", Decimal(12)),
    (BIG, "0e39", Decimal(0)),
    (BIG, "-0E+999999999", Decimal(0)),
    (BIG, "12345678901234567890123456789012345678.0", Decimal("12345678901234567890123456789012345678")),
    (DATE, '"2008-08-20"', dt.date(2008, 8, 20)),
    (DATE, '"2008-08-20T00:00:00+00:00"', dt.date(2008, 8, 20)),
    (TIME, '"23:59:59.5"', "23:59:59.5"),
    (TIME, '"8:30:00"', "08:30:00"),
    (INSTANT, '"2008-08-20T10:00:00Z"', dt.datetime(2008, 8, 20, 10, tzinfo=UTC)),
    (INSTANT, '"2008-08-20t10:00:00z"', dt.datetime(2008, 8, 20, 10, tzinfo=UTC)),
    (INSTANT, '"2008-08-20T10:00:00"', dt.datetime(2008, 8, 20, 10, tzinfo=UTC)),
    (INSTANT, '"2008-08-20 10:00:00.25+02:00"', dt.datetime(2008, 8, 20, 8, 0, 0, 250_000, tzinfo=UTC)),
    (INSTANT, '"2008-08-20T10:00:00.1234560Z"', dt.datetime(2008, 8, 20, 10, 0, 0, 123_456, tzinfo=UTC)),
    (INSTANT, '"9999-08-20T10:00:00.123456000Z"', dt.datetime(9999, 8, 20, 10, 0, 0, 123_456, tzinfo=UTC)),
    (LOCAL, '"2008-08-20T10:00:00"', dt.datetime(2008, 8, 20, 10)),
    (LOCAL, '"2008-08-20T10:00:00Z"', dt.datetime(2008, 8, 20, 10)),
    (BINARY, '"aGk="', b"hi"),
    (BINARY, '"aG\\r\\nk=\\n"', b"hi"),
    (OBJECT, '{"b": 1,  "a":null}', '{"b": 1,  "a":null}'),
    (OBJECT, '"text"', '"text"'),
    (OBJECT, "true", "true"),
    (OBJECT, "null", None),
    (OBJECT, DEEP, DEEP),
    (OBJECT, '{"a":"\\ud800"}', '{"a":"\\ud800"}'),
    (UNION, '"x"', '"x"'),
    (UNION, "1", "1"),
    (INTEGERS, "[1, null, 3]", [1, None, 3]),
    (INTEGERS, "[]", []),
    (INSTANTS, '["2008-08-20T10:00:00Z"]', [dt.datetime(2008, 8, 20, 10, tzinfo=UTC)]),
    (OBJECTS, '[{"a": 1}, null]', ['{"a": 1}', None]),
    (GRID, "[[1, 2.5], null, []]", [[1.0, 2.5], None, []]),
]

NULLED: list[tuple[Mapping[str, Any], str, str]] = [
    (INTEGER, "9223372036854775808", SIZE),
    (INTEGER, "1" * 5000, SIZE),
    (INTEGER, "1e999999999", SIZE),
    (INTEGER, "9223372036854775808.0", SIZE),
    (INTEGER, "1.5", TYPECAST),
    (INTEGER, "1.00000000000000000000000001", TYPECAST),
    (INTEGER, '"\udcff"', TYPECAST),
    (INTEGER, '"1"', TYPECAST),
    (INTEGER, "NaN", TYPECAST),
    (NUMBER, "NaN", TYPECAST),
    (NUMBER, "-Infinity", TYPECAST),
    (NUMBER, "1e999", SIZE),
    (NUMBER, '"1"', TYPECAST),
    (STRING, '"\\ud800"', TYPECAST),
    (STRING, '"\udcff"', TYPECAST),
    (STRING, "NaN", TYPECAST),
    (BOOLEAN, "1", TYPECAST),
    (BOOLEAN, '"true"', TYPECAST),
    (BIG, "1" * 39, SIZE),
    (BIG, "1.5", TYPECAST),
    (BIG, '"\udcff"', TYPECAST),
    (BIG, "1e-99", TYPECAST),
    (BIG, "1e-999999999", TYPECAST),
    (BIG, "1e999999999", SIZE),
    (BIG, "1e99999999999", SIZE),
    (BIG, '"1e"', TYPECAST),
    (BIG, '"\\"1\\""', TYPECAST),
    (INTEGER, "1e-99999999999", TYPECAST),
    (BIG, '"abc"', TYPECAST),
    (DATE, '"2008-08-20T10:00:00Z"', TYPECAST),
    (DATE, '"2008-02-30"', TYPECAST),
    (DATE, "20080820", TYPECAST),
    (TIME, '"24:00"', TYPECAST),
    (INSTANT, '"2008-08-20"', TYPECAST),
    (INSTANT, '"2008-08-20T25:00:00Z"', TYPECAST),
    (INSTANT, '"yesterday, at about ten"', TYPECAST),
    (INSTANT, "1219226400", TYPECAST),
    (LOCAL, '"2008-08-20T10:00:00+02:00"', TYPECAST),
    (BINARY, '"a"', TYPECAST),
    (OBJECT, "NaN", TYPECAST),
    (OBJECT, '{"a": NaN}', TYPECAST),
    (OBJECT, '{"a": "\udcff"}', TYPECAST),
    (INTEGERS, "1", TYPECAST),
    (OBJECTS, '{"a": 1}', TYPECAST),
]
