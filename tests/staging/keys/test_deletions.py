"""A mark of a deleted row counts wherever the record has it, whatever else its stream declares."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.model import PlannedStream, Shaping, WriteMode
from dagster_airbyte_proto.schema.columns import WHOLE_RECORD
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.stage import Stage
from tests.staging.conftest import SHAPE, plan, record, rows_of

_ID = {"type": "integer"}
_TEXT = {"type": "string"}
_BOTH = {"id": _ID, "_ab_cdc_deleted_at": _TEXT, "_sdc_deleted_at": _TEXT}

Inputs = Callable[[PlannedStream], StreamInput]


def _keyed(properties: Mapping[str, Any], *, keeps_deleted: bool = False) -> PlannedStream:
    planned = plan(properties, write=WriteMode.APPEND_DEDUP, key=[("id",)])
    return msgspec.structs.replace(planned, keeps_deleted=keeps_deleted)


def _cut(stream_input: Inputs, planned: PlannedStream, *rows: str) -> StagedRows:
    stage = Stage([stream_input(planned)], RunInput(SHAPE, "r1", sync_id=1))
    for row in rows:
        stage.add_line(planned.id, record(row))
    stage.mark(planned.id)
    part = stage.cut(planned.id)
    assert part is not None
    return part


@pytest.mark.parametrize("mark", ["_ab_cdc_deleted_at", "_sdc_deleted_at"])
@pytest.mark.parametrize("properties", [_BOTH, {"id": _ID}, {}], ids=["both declared", "undeclared", "no fields"])
@pytest.mark.parametrize("value", ['"2024"', "false", "{}", '"\\ud800"'])
def test_any_mark_deletes_its_key(stream_input: Inputs, mark: str, properties: Mapping[str, Any], value: str) -> None:
    rows = ['{"id":1}', '{"id":2}', f'{{"id":1,"{mark}":{value}}}', f'{{"id":2,"{mark}":null}}']
    part = _cut(stream_input, _keyed(properties), *rows)
    assert (part.deleted, part.ignored_fields) == (1, {})
    assert [row.get("id") or row[WHOLE_RECORD] for row in rows_of(part)] == [2 if properties else rows[3]]


def test_a_field_that_only_marks_deletions_gets_no_column_and_takes_no_name(stream_input: Inputs) -> None:
    planned = _keyed({"id": _ID, "x": _TEXT})
    renamed = msgspec.structs.replace(planned, shaping=Shaping(renames=(("x", "_sdc_deleted_at"),)))
    part = _cut(stream_input, renamed, '{"id":1,"x":"a"}', '{"id":2,"x":"b"}', '{"id":2,"_sdc_deleted_at":"2024"}')
    [row] = rows_of(part)
    own = {name: value for name, value in row.items() if not name.startswith("_airbyte_")}
    assert own == {"id": 1, "_sdc_deleted_at": "a"}


def test_a_whole_record_is_searched_for_marks_of_its_own_alone(stream_input: Inputs) -> None:
    rows = [
        '{"id":1,"o":{"_ab_cdc_deleted_at":"2024"}}',
        '{"id":2,"text":"\\u005fab_cdc_deleted_at"}',
        '{"id":3,"\\u005fab_cdc_deleted_at":1}',
    ]
    planned = _keyed({})
    part = _cut(stream_input, planned, *rows)
    assert (part.deleted, [row[WHOLE_RECORD] for row in rows_of(part)]) == (1, rows[:2])
    excluded = Shaping(exclude=((WHOLE_RECORD, "_sdc_deleted_at"),))
    part = _cut(stream_input, msgspec.structs.replace(planned, shaping=excluded), '{"id":1,"_sdc_deleted_at":1}')
    assert (part.deleted, rows_of(part)) == (1, [])


def test_soft_deletes_keep_a_marked_row_and_count_a_mark_that_has_no_column(stream_input: Inputs) -> None:
    deletion = '{"id":1,"_sdc_deleted_at":"2024"}'
    declared = _cut(stream_input, _keyed(_BOTH, keeps_deleted=True), '{"id":1}', deletion)
    assert (declared.deleted, [row["_sdc_deleted_at"] for row in rows_of(declared)]) == (1, ["2024"])
    undeclared = _cut(stream_input, _keyed({"id": _ID}, keeps_deleted=True), '{"id":1}', deletion)
    assert (undeclared.deleted, undeclared.ignored_fields) == (0, {"_sdc_deleted_at": 1})
    whole = _cut(stream_input, _keyed({}, keeps_deleted=True), '{"id":1}', deletion)
    assert (whole.deleted, [row[WHOLE_RECORD] for row in rows_of(whole)]) == (1, [deletion])
