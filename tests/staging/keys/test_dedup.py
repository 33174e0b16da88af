"""Inside one cut each key's latest row stays; the others are named by position, the keys by value."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.loads.load import FileContent, StagedRows
from dagster_airbyte_proto.model import FieldPath, PlannedStream, Shaping, WriteMode
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.rows.shaping import FILTERED
from dagster_airbyte_proto.staging.stage import Stage, StageLimits
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.staging.conftest import SHAPE, landed, plan, record, rows_of

_PROPERTIES = {
    "id": {"type": "integer"},
    "part": {"type": "string"},
    "at": {"type": "integer"},
    "n": {"type": "integer"},
    "o": {"type": "object", "properties": {"id": {"type": "string"}, "at": {}}},
    "any": {"type": ["string", "number"]},
    "_ab_cdc_deleted_at": {"type": "string"},
}

Inputs = Callable[[PlannedStream], StreamInput]


def _cut(
    inputs: Inputs,
    rows: Sequence[tuple[str, int]],
    key: Sequence[FieldPath],
    cursor: FieldPath = (),
    *,
    keeps_deleted: bool = False,
    filtered: str = "",
) -> StagedRows:
    """The rows, as JSON text and `emitted_at`, in files of one segment each."""
    planned = plan(_PROPERTIES, write=WriteMode.APPEND_DEDUP, key=key, cursor=cursor)
    planned = msgspec.structs.replace(planned, keeps_deleted=keeps_deleted, shaping=Shaping(filter=filtered))
    limits = StageLimits(segment_bytes=300, file_bytes=1)
    stage = Stage([inputs(planned)], RunInput(SHAPE, "r1", sync_id=1), limits=limits)
    for data, emitted_at in rows:
        stage.add_line(planned.id, record(data, rest=f',"emitted_at":{emitted_at}'))
    stage.mark(planned.id)
    part = stage.cut(planned.id)
    assert part is not None
    return part


def _keys(part: StagedRows) -> list[dict[str, Any]]:
    (file,) = (file for file in part.files if file.content is FileContent.EQUALITY_DELETES)
    return list(pq.ParquetFile(file.path).read().to_pylist())


def _numbers(part: StagedRows) -> list[int]:
    return [row["n"] for row in rows_of(part)]


def test_without_duplicates_there_are_no_position_deletes(stream_input: Inputs) -> None:
    part = _cut(stream_input, [(f'{{"id":{n},"n":{n}}}', 1) for n in range(20)], [("id",)])
    assert [file.content for file in part.files].count(FileContent.POSITION_DELETES) == 0
    assert (_numbers(part), part.duplicates) == (list(range(20)), 0)
    assert sorted(row["id"] for row in _keys(part)) == list(range(20))


@pytest.mark.parametrize(
    ("rows", "cursor", "winner"),
    [
        ([('{"id":1,"at":5,"n":0}', 1), ('{"id":1,"at":4,"n":1}', 9)], ("at",), 0),
        ([('{"id":1,"at":5,"n":0}', 9), ('{"id":1,"at":5,"n":1}', 1)], ("at",), 0),
        ([('{"id":1,"at":5,"n":0}', 1), ('{"id":1,"at":5,"n":1}', 1)], ("at",), 1),
        ([('{"id":1,"at":-5,"n":0}', 1), ('{"id":1,"n":1}', 9)], ("at",), 0),
        ([('{"id":1,"n":0}', 2), ('{"id":1,"n":1}', 1)], (), 0),
        ([('{"id":1,"o":{"at":10},"n":0}', 1), ('{"id":1,"o":{"at":9},"n":1}', 1)], ("o", "at"), 0),
        ([('{"id":1,"o":{"at":"a"},"n":0}', 1), ('{"id":1,"o":{"at":9},"n":1}', 1)], ("o", "at"), 0),
        ([('{"id":1,"o":{"at":0},"n":0}', 1), ('{"id":1,"o":[],"n":1}', 1)], ("o", "at"), 0),
        ([('{"id":1,"any":"2021","n":0}', 1), ('{"id":1,"any":"2020","n":1}', 1)], ("any",), 0),
        ([('{"id":1,"any":"2024-01-01 10:00","n":0}', 1), ('{"id":1,"any":"2024-01-01","n":1}', 1)], ("any",), 0),
        ([('{"id":1,"any":"\\u0062","n":0}', 1), ('{"id":1,"any":"a","n":1}', 1)], ("any",), 0),
        ([('{"id":1,"o":{"at":"a!"},"n":0}', 1), ('{"id":1,"o":{"at":"a"},"n":1}', 1)], ("o", "at"), 0),
        ([('{"id":1,"any":"","n":0}', 1), ('{"id":1,"any":9,"n":1}', 1)], ("any",), 0),
        ([('{"id":1,"any":"","n":0}', 1), ('{"id":1,"any":null,"n":1}', 9)], ("any",), 0),
        ([('{"id":1,"o":{"at":"\\ud800"},"n":0}', 1), ('{"id":1,"o":{"at":1},"n":1}', 1)], ("o", "at"), 0),
    ],
)
def test_the_latest_by_cursor_then_emission_then_arrival_stays(
    stream_input: Inputs, rows: Sequence[tuple[str, int]], cursor: FieldPath, winner: int
) -> None:
    part = _cut(stream_input, rows, [("id",)], cursor)
    assert (_numbers(part), part.duplicates, part.rows) == ([winner], 1, 2)


def test_null_is_a_value_in_a_key_of_several_parts(stream_input: Inputs) -> None:
    rows = ['{"id":1,"n":0}', '{"id":1,"part":"","n":1}', '{"id":1,"part":null,"n":2}', '{"part":"1","n":3}']
    part = _cut(stream_input, [(row, 1) for row in rows], [("id",), ("part",)])
    assert _numbers(part) == [1, 2, 3]
    assert len(_keys(part)) == 3


@pytest.mark.parametrize(("first", "second"), [("0.0", "-0.0"), ("-0.0", "0")])
def test_zeros_of_either_sign_are_one_key(tmp_path: Path, first: str, second: str) -> None:
    number = {"type": "number"}
    properties = {"k": number, "m": number, "at": {"type": "integer"}}
    planned = plan(properties, write=WriteMode.APPEND_DEDUP, key=[("k",), ("m",)], cursor=("at",))
    rows = [record(f'{{"k":{zero},"m":{zero},"at":{at}}}') for zero, at in ((first, 2), (second, 3), (first, 1))]
    one = landed(FolderTables(tmp_path / "one"), planned, [rows])
    assert (one[0].duplicates, rows_of(one[0])[0]["at"]) == (2, 3)
    keys = {(str(row["k"]), str(row["m"])) for row in _keys(one[0])}
    assert keys == {(k, m) for k in ("0.0", "-0.0") for m in ("0.0", "-0.0")}
    tables = FolderTables(tmp_path / "three")
    assert [part.duplicates for part in landed(tables, planned, [[row] for row in rows])] == [0, 0, 1]
    [row] = tables.rows(planned.table).to_pylist()
    assert (row["at"], str(row["k"])) == (3, str(float(second)))


def test_a_key_inside_an_object_finds_its_duplicates(stream_input: Inputs) -> None:
    rows = ['{"o":{"id":"a"},"n":0}', '{"o":{"id":"b"},"n":1}', '{"n":2,"o":{"x":1,"id":"a"}}']
    part = _cut(stream_input, [(row, 1) for row in rows], [("o", "id")])
    assert _numbers(part) == [1, 2]
    assert part.keys == ("_airbyte_key_o_id",)
    assert sorted(row["_airbyte_key_o_id"] for row in _keys(part)) == ["a", "b"]


def test_delete_files_have_the_field_ids_that_iceberg_looks_for(stream_input: Inputs) -> None:
    part = _cut(stream_input, [('{"id":1}', 1)] * 30, [("id",)])
    by_content = {file.content: file for file in part.files}
    positions = pq.ParquetFile(by_content[FileContent.POSITION_DELETES].path)
    assert [positions.schema.column(at).max_definition_level for at in (0, 1)] == [0, 0]
    ids = [field.metadata[b"PARQUET:field_id"] for field in positions.schema_arrow]
    assert ids == [b"2147483546", b"2147483545"]
    rows = [(row["file_path"], row["pos"]) for row in positions.read().to_pylist()]
    assert rows == sorted(rows)
    assert {path for path, _ in rows} <= {file.path for file in part.files if file.content is FileContent.ROWS}
    keys = pq.ParquetFile(by_content[FileContent.EQUALITY_DELETES].path).schema_arrow
    assert [(field.name, field.metadata[b"PARQUET:field_id"]) for field in keys] == [("id", b"1")]


class _Told(NamedTuple):
    """A record as a source may tell it."""

    id: int | None
    part: str | None
    at: int | None
    emitted_at: int
    deletes: bool

    @property
    def key(self) -> tuple[int | None, str | None]:
        return self.id, self.part


_TOLD = st.builds(
    _Told,
    st.none() | st.integers(0, 2),
    st.none() | st.sampled_from("ab"),
    st.none() | st.integers(0, 2),
    st.integers(1, 3),
    st.booleans(),
).filter(lambda told: told.key != (None, None))


def _latest(rows: Sequence[_Told]) -> list[int]:
    best: dict[tuple[Any, Any], tuple[int, int, int]] = {}
    for number, told in enumerate(rows):
        order = (-1 if told.at is None else told.at, told.emitted_at, number)
        best[told.key] = max(best.get(told.key, order), order)
    return sorted(number for _, _, number in best.values())


def _text(told: _Told, number: int) -> str:
    deleted_at = "2024" if told.deletes else None
    return json.dumps({"id": told.id, "part": told.part, "at": told.at, "n": number, "_ab_cdc_deleted_at": deleted_at})


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_TOLD, min_size=1, max_size=25), st.booleans())
def test_of_any_rows_the_latest_of_each_key_stays_unless_it_is_a_deletion(
    stream_input: Inputs, rows: Sequence[_Told], keeps_deleted: bool
) -> None:
    texts = [(_text(told, number), told.emitted_at) for number, told in enumerate(rows)]
    part = _cut(stream_input, texts, [("id",), ("part",)], ("at",), keeps_deleted=keeps_deleted)
    latest = _latest(rows)
    deleting = [number for number in latest if rows[number].deletes]
    assert _numbers(part) == [number for number in latest if keeps_deleted or number not in deleting]
    assert part.deleted == len(deleting)
    assert part.duplicates == len(rows) - len(_numbers(part))
    assert {(row["id"], row["part"]) for row in _keys(part)} == {told.key for told in rows}


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_TOLD, min_size=1, max_size=25), st.booleans())
def test_a_row_that_a_filter_leaves_out_is_in_no_file_and_leaves_none_of_its_key(
    stream_input: Inputs, rows: Sequence[_Told], keeps_deleted: bool
) -> None:
    texts = [(_text(told, number), told.emitted_at) for number, told in enumerate(rows)]
    key, filtered = [("id",), ("part",)], "at is null or not at = 1"
    part = _cut(stream_input, texts, key, ("at",), keeps_deleted=keeps_deleted, filtered=filtered)
    gone = {number for number, told in enumerate(rows) if told.at == 1 and not told.deletes}
    deleted = {number for number in _latest(rows) if rows[number].deletes}
    left = [number for number in _latest(rows) if number not in gone and (keeps_deleted or number not in deleted)]
    assert (_numbers(part), part.deleted) == (left, len(deleted))
    assert (part.rows, part.rejected.get(FILTERED, 0)) == (len(rows) - len(gone), len(gone))
    assert part.duplicates == part.rows - len(left)
    assert {(row["id"], row["part"]) for row in _keys(part)} == {told.key for told in rows}
