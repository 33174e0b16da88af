"""The table of types in `docs/types.md`, made from the code; `python -m tests.support.types_table` writes it anew."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from dagster_airbyte_proto.model import IntegersAs, NumbersAs, ObjectsAs, TypeChoices
from dagster_airbyte_proto.schema.columns import column_type
from dagster_airbyte_proto.schema.value_types import value_type

PAGE = Path(__file__).parents[2] / "docs" / "types.md"
BEGIN, END = "<!-- the table: python -m tests.support.types_table -->\n", "<!-- its end -->\n"
CHOICES = (
    TypeChoices(),
    TypeChoices(ObjectsAs.STRUCT, IntegersAs.DECIMAL, NumbersAs.DECIMAL),
)


class Row(NamedTuple):
    """`lands` are JSON texts that a column of the schema holds, with what Spark shows of them as text (with one choice
    after the other, as far as that differs from the one before); `nulled` are those that it does not."""

    name: str
    schema: dict[str, Any]
    lands: tuple[tuple[str, str], ...]
    nulled: tuple[str, ...]


_MOMENT = {"type": "string", "format": "date-time"}
_LOCAL = {**_MOMENT, "airbyte_type": "timestamp_without_timezone"}
_WHOLE = {"type": "integer"}
ROWS = (
    Row("string", {"type": "string"}, (('"Zoë"', "Zoë"), ("1.50", "1.50")), ('"\\ud800"',)),
    Row("boolean", {"type": "boolean"}, (("true", "true"),), ("1", '"true"')),
    Row("integer", _WHOLE, (("-9223372036854775808", "-9223372036854775808"), ("1e3", "1000")), ("1.5", "true")),
    Row("big_integer", {"type": "integer", "airbyte_type": "big_integer"}, (("9" * 38, "9" * 38),), ("1" + "0" * 38,)),
    Row("number", {"type": "number"}, (("0.5", "0.5|0.500000000"),), ("NaN", "1e309")),
    Row("number of digits", {"type": "number", "multipleOf": 0.01}, (("0.10", "0.100000000"),), ("NaN", "1e30")),
    Row("date", {"type": "string", "format": "date"},
        (('"0001-01-01"', "0001-01-01"), ('"1582-10-10"', "1582-10-10"), ('"9999-12-31"', "9999-12-31")),
        ('"0000-12-31"', '"10000-01-01"', '"2023-02-29"')),
    Row("timestamp", _MOMENT,
        (('"0001-01-01T00:00:00Z"', "0001-01-01 00:00:00"), ('"1582-10-10T00:00:00.5Z"', "1582-10-10 00:00:00.5"),
         ('"9999-12-31T23:59:59.999999Z"', "9999-12-31 23:59:59.999999"),
         ('"2024-01-01T00:00:00+05:30"', "2023-12-31 18:30:00")),
        ('"2024-01-01"', '"9999-12-31T23:59:59-01:00"', '"2016-12-31T23:59:60Z"')),
    Row("timestamp without zone", _LOCAL,
        (('"0001-01-01T00:00:00"', "0001-01-01 00:00:00"), ('"1582-10-10T00:00:00"', "1582-10-10 00:00:00"),
         ('"9999-12-31T23:59:59"', "9999-12-31 23:59:59")),
        ('"2024-01-01T00:00:00+02:00"',)),
    Row("time", {"type": "string", "format": "time"}, (('"23:59:59.5Z"', "23:59:59.5Z"),), ('"24:00"',)),
    Row("binary", {"type": "string", "contentEncoding": "base64"}, (('"aGk="', "hi"),), ('"a"',)),
    Row("object", {"type": "object"},
        (('{"b": 1.50,"a":[]}', '{"b": 1.50,"a":[]}'),), ('{"a": NaN}',)),
    Row("object with properties", {"type": "object", "properties": {"city": {"type": "string"}, "since": _MOMENT}},
        (('{"city":"Bern","since":"1191-01-01T00:00:00Z"}',
          ('{"city":"Bern","since":"1191-01-01T00:00:00Z"}|{Bern, 1191-01-01 00:00:00}')),), ()),
    Row("array of integers", {"type": "array", "items": _WHOLE}, (("[1, null]", "[1, null]"),), ("1",)),
    Row("array of arrays", {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        (('[["a"],[]]', "[[a], []]"),), ("{}",)),
    Row("array of objects", {"type": "array", "items": {"type": "object"}},
        (('[{"a": 1}]', '[{"a": 1}]'),), ("1", "[NaN]")),
    Row("array of anything", {"type": "array"}, (('[1, "a"]', '[1, "a"]'),), ("[NaN]",)),
    Row("union", {"oneOf": [{"type": "string"}, _WHOLE]}, (('"a"', '"a"'), ("1", "1")), ("NaN",)),
    Row("integer or null", {"oneOf": [{"type": "null"}, _WHOLE]}, (("null", "NULL"), ("1", "1")), ('"a"',)),
    Row("anything", {}, (("{}", "{}"), ("null", "NULL")), ("NaN",)),
)  # fmt: skip


def table() -> str:
    lines = ["| values | schema | column | with every other choice of `types` |", "|---|---|---|---|"]
    for row in ROWS:
        usual, *others = dict.fromkeys(
            column_type(value_type(row.schema, {}, choices).table_type) for choices in CHOICES
        )
        other = " or ".join(f"`{each}`" for each in others)
        cells = (row.name, f"`{json.dumps(row.schema)}`", f"`{usual}`", other)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with its table as it should be."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
