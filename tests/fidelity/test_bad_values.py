"""52 kinds of bad values through one sync: each row lands, the value is null with its reason, no other is touched."""

from collections.abc import Mapping
from typing import Any

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest, planned_streams
from tests.fidelity.lines import offer_lines, record_line
from tests.fidelity.report import compare
from tests.fidelity.sent import sent_records
from tests.sync.conftest import OpenShop

_TYPE, _SIZE = "DESTINATION_TYPECAST_ERROR", "DESTINATION_FIELD_SIZE_LIMITATION"
_WHOLE = {"type": "integer"}
_INNER = {"type": "object", "properties": {"q": _WHOLE}}
_SCHEMA: Mapping[str, Any] = {
    "id": _WHOLE,
    "whole": _WHOLE,
    "real": {"type": "number"},
    "flag": {"type": "boolean"},
    "text": {"type": "string"},
    "day": {"type": "string", "format": "date"},
    "at": {"type": "string", "format": "date-time"},
    "local": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
    "clock": {"type": "string", "format": "time"},
    "blob": {"type": "string", "contentEncoding": "base64"},
    "free": {"type": "object"},
    "list": {"type": "array", "items": _WHOLE},
    "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    "thing": {"type": "object", "properties": {"p": _INNER, "w": {"type": "array", "items": _INNER}}},
}
_GOOD: Mapping[str, str] = {
    "whole": "7", "real": "1.5", "flag": "true", "text": '"Zoë \\u0000"', "day": '"2024-02-29"',
    "at": '"2024-02-29T12:00:00+01:00"', "local": '"2024-02-29T12:00:00"', "clock": '"12:00:00Z"', "blob": '"aGk="',
    "free": '{"b": 1,"a":[]}', "list": "[1,null]", "grid": "[[1.5],[]]", "thing": '{"p":{"q":1},"w":[{"q":2},null]}',
}  # fmt: skip
_BAD: list[tuple[str, str, str, str]] = [
    ("whole", "9223372036854775808", "whole", _SIZE),
    ("whole", "-9223372036854775809", "whole", _SIZE),
    ("whole", "1" * 400, "whole", _SIZE),
    ("whole", "1e400", "whole", _SIZE),
    ("whole", "1.5", "whole", _TYPE),
    ("whole", '"1"', "whole", _TYPE),
    ("whole", "true", "whole", _TYPE),
    ("whole", "NaN", "whole", _TYPE),
    ("whole", "[]", "whole", _TYPE),
    ("whole", "{}", "whole", _TYPE),
    ("real", "1e309", "real", _SIZE),
    ("real", "-1e309", "real", _SIZE),
    ("real", '"1.5"', "real", _TYPE),
    ("real", "NaN", "real", _TYPE),
    ("real", "Infinity", "real", _TYPE),
    ("real", "-Infinity", "real", _TYPE),
    ("real", "false", "real", _TYPE),
    ("flag", "1", "flag", _TYPE),
    ("flag", "0", "flag", _TYPE),
    ("flag", '"true"', "flag", _TYPE),
    ("flag", '""', "flag", _TYPE),
    ("text", '"\\ud800"', "text", _TYPE),
    ("text", '"\udcff"', "text", _TYPE),
    ("text", "NaN", "text", _TYPE),
    ("day", '"2023-02-29"', "day", _TYPE),
    ("day", '"2024-13-01"', "day", _TYPE),
    ("day", '"0000-01-01"', "day", _SIZE),
    ("day", '"10000-01-01"', "day", _SIZE),
    ("day", '"0044-03-15 BC"', "day", _SIZE),
    ("day", '"2024-01-01T10:00:00Z"', "day", _TYPE),
    ("day", '"01/02/2024"', "day", _TYPE),
    ("day", "20240101", "day", _TYPE),
    ("day", '""', "day", _TYPE),
    ("at", '"2024-01-01"', "at", _TYPE),
    ("at", '"2016-12-31T23:59:60Z"', "at", _TYPE),
    ("at", '"2024-01-01T25:00:00Z"', "at", _TYPE),
    ("at", '"9999-12-31T23:59:59-01:00"', "at", _SIZE),
    ("at", '"0001-01-01T00:00:00+01:00"', "at", _SIZE),
    ("at", "1704067200", "at", _TYPE),
    ("at", '"2024-01-01T00:00:00+99:00"', "at", _TYPE),
    ("at", '"yesterday, around noon"', "at", _TYPE),
    ("local", '"2024-01-01T00:00:00+02:00"', "local", _TYPE),
    ("clock", '"24:00:00"', "clock", _TYPE),
    ("clock", '"noon"', "clock", _TYPE),
    ("blob", '"!!"', "blob", _TYPE),
    ("free", '{"a": NaN}', "free", _TYPE),
    ("list", "1", "list", _TYPE),
    ("list", '[1,"x"]', "list.1", _TYPE),
    ("grid", '[[1],[2,null,"x"]]', "grid.1.2", _TYPE),
    ("thing", "[]", "thing", _TYPE),
    ("thing", '{"p":{"q":"x"}}', "thing.p.q", _TYPE),
    ("thing", '{"w":[{"q":1.5}]}', "thing.w.0.q", _TYPE),
]


def test_each_bad_value_is_null_with_its_reason_and_its_neighbours_are_untouched(shop: OpenShop) -> None:
    assert len({(field, text) for field, text, _, _ in _BAD}) == 52
    rows = [row for field, text, _, _ in _BAD for row in (_GOOD, {**_GOOD, field: text})]
    output = b"".join(record_line("odd", {"id": str(number), **values}) for number, values in enumerate(rows))
    place = shop(read="full_refresh")
    catalog = offer_lines(place, "odd", _SCHEMA, output, types={"objects": "struct"})

    told = place.sync().streams["odd"]

    assert (told.emitted, told.committed, told.changed, told.error) == (104, 104, 52, None)
    table = place.tables.rows(TableName("shop", "odd"))
    landed = sorted(table.to_pylist(), key=lambda row: int(row["id"]))
    noted = [[(entry["field"], entry["reason"]) for entry in row["_airbyte_meta"]["changes"]] for row in landed]
    assert noted[::2] == [[]] * 52
    assert noted[1::2] == [[(path, reason)] for _, _, path, reason in _BAD]
    [planned] = planned_streams(Connection.from_file(place.connection_file), catalog, SyncRequest())
    report = compare(planned, sent_records(output)[planned.id], table)
    assert report.wrong == []
    assert sum(report.accounted.values()) == 52
