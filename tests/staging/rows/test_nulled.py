"""Values that did not fit their column are counted by column, and only those of rows that land."""

from collections.abc import Callable

import msgspec
import pytest

from dagster_airbyte_proto.model import ObjectsAs, PlannedStream, TypeChoices, WriteMode
from dagster_airbyte_proto.schema.columns import EXTRACTED_AT
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.stage import Stage
from tests.staging.conftest import SHAPE, parse, plan, record

Inputs = Callable[[PlannedStream], StreamInput]

_NUMBER = {"type": "number"}
_ORDERS = plan(
    {
        "id": {"type": "integer"},
        "amount": _NUMBER,
        "paid at": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": _NUMBER},
    },
    name="orders",
)


def _nulled(stage_input: StreamInput, *lines: bytes) -> dict[str, int]:
    stage = Stage([stage_input], RunInput(SHAPE, "r1", sync_id=1))
    for line in lines:
        stage.add_line(stage_input.planned.id, line)
    stage.mark(stage_input.planned.id)
    part = stage.cut(stage_input.planned.id)
    assert part is not None
    return dict(part.nulled)


def _order(data: str, rest: str = ',"emitted_at":1700000000000') -> bytes:
    return record(data, stream="orders", rest=rest)


def test_values_are_counted_by_column_at_any_depth(stream_input: Inputs) -> None:
    found = _nulled(
        stream_input(_ORDERS),
        _order('{"id":1,"amount":"much","paid at":"yesterday","tags":[1,"a",2,"b"]}'),
        _order('{"id":2,"amount":2.5,"paid at":"2026-11-26","tags":[]}'),
        _order('{"id":3,"amount":[],"paid at":null}'),
    )
    assert found == {"amount": 2, "paid at": 1, "tags": 2}


def test_values_that_fit_make_no_entry_and_are_not_counted(stream_input: Inputs) -> None:
    assert _nulled(stream_input(_ORDERS), _order('{"id":1,"amount":1}')) == {}
    assert parse(_ORDERS, _order('{"id":1,"amount":1}')).nulled == {}


def test_a_bad_time_of_emission_and_what_the_source_nulled_are_not_ours(stream_input: Inputs) -> None:
    theirs = '[{"field":"amount","change":"NULLED","reason":"SOURCE_RETRIEVAL_ERROR"}]'
    lines = (
        _order('{"id":1,"amount":null}', f',"emitted_at":1700000000000,"meta":{{"changes":{theirs}}}'),
        _order('{"id":2}', ',"emitted_at":1e300'),
        _order('{"id":"x"}'),
    )
    assert _nulled(stream_input(_ORDERS), *lines) == {"id": 1}


@pytest.mark.parametrize(
    ("name", "shown"), [("emitted_at", "emitted_at"), (EXTRACTED_AT, f'"{EXTRACTED_AT}"')], ids=["envelope", "table"]
)
def test_a_bad_time_of_emission_is_no_value_of_a_field_with_that_name(
    stream_input: Inputs, name: str, shown: str
) -> None:
    planned = plan({name: _NUMBER}, name="orders")
    lines = (
        _order(f'{{"{name}":1}}', ""),
        _order(f'{{"{name}":2}}', ',"emitted_at":1e300'),
        _order(f'{{"{name}":"x"}}'),
    )
    [column] = table_columns(planned).all
    assert _nulled(stream_input(planned), *lines) == {column.name: 1}
    parsed = parse(planned, *lines)
    fields = [[each["field"] for each in row["changes"]] for row in parsed.batch.column("_airbyte_meta").to_pylist()]
    assert fields == [[EXTRACTED_AT], [EXTRACTED_AT], [shown]]


def test_a_field_with_a_dot_is_not_counted_for_the_part_of_another_one(stream_input: Inputs) -> None:
    inside = {"type": "object", "properties": {"b": _NUMBER, "c": {"type": "array", "items": _NUMBER}}}
    fields = {"a.b": _NUMBER, "a.c": {"type": "array", "items": _NUMBER}, "d.e": _NUMBER, "a": inside}
    planned = msgspec.structs.replace(plan(fields, name="orders"), types=TypeChoices(objects=ObjectsAs.STRUCT))
    line = _order('{"a.b":"x","a.c":[1,"x"],"d.e":"x","a":{"b":"x","c":["x",2,"x"]}}')
    assert _nulled(stream_input(planned), line) == {"a.b": 1, "a.c": 1, "d.e": 1, "a": 3}
    [row] = parse(planned, line).batch.column("_airbyte_meta").to_pylist()
    assert sorted(each["field"] for each in row["changes"]) == ['"a.b"', '"a.c".1', "a.b", "a.c.0", "a.c.2", "d.e"]


def test_rejected_rows_have_no_values_in_the_table(stream_input: Inputs) -> None:
    users = plan({"id": {"type": "integer"}, "age": _NUMBER}, write=WriteMode.APPEND_DEDUP, key=[("id",)])
    lines = [record('{"id":"none","age":"old"}'), record('{"id":1,"age":"young"}')]
    assert _nulled(stream_input(users), *lines) == {"age": 1}


def test_digits_that_are_cut_are_no_null(stream_input: Inputs) -> None:
    times = plan({"at": {"type": "string", "format": "date-time"}})
    assert _nulled(stream_input(times), record('{"at":"2026-11-26T11:00:00.123456789Z"}')) == {}
