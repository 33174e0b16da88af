"""What the parser is told to expect."""

import pyarrow as pa
import pytest

from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.lines.envelope import line_schema
from tests.staging.conftest import SHAPE, parse, plan, record

_STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("first", "order"),
    [
        (record('{"c":"1","a":"2","d":"3"}'), ["c", "a", "b"]),
        (record('{"a":"1","b":"2","c":"3"}'), ["a", "b", "c"]),
        (record("[]"), ["a", "b", "c"]),
        (b"no JSON\n", ["a", "b", "c"]),
    ],
)
def test_columns_are_declared_in_the_order_of_the_first_line(first: bytes, order: list[str]) -> None:
    columns = table_columns(plan(dict.fromkeys("abc", _STRING)))
    schema = line_schema(SHAPE, columns.parsed_columns, first)
    assert [field.name for field in schema.field("record").type.field("data").type] == order
    assert schema.field("record").type.field("emitted_at").type == pa.float64()


def test_whatever_the_order_of_a_line_its_values_get_into_their_columns() -> None:
    lines = [record('{"c":"c1","a":"a1","b":"b1"}'), record('{"a":"a2","b":"b2","c":"c2"}'), record('{"b":"b3"}')]
    batch = parse(plan(dict.fromkeys("abc", _STRING)), *lines).batch
    assert batch.schema.names[:3] == ["a", "b", "c"]
    assert {name: batch.column(name).to_pylist() for name in "abc"} == {
        "a": ["a1", "a2", None],
        "b": ["b1", "b2", "b3"],
        "c": ["c1", "c2", None],
    }
