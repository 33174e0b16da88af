"""The rows of keys are found in Parquet files by the ids of their columns."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.column_ids import FIELD_ID
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.tables.iceberg.positions.key_columns import (
    SearchKeys,
    UnreadableFile,
    find_rows,
    read_keys,
)
from dagster_airbyte_proto.tables.iceberg.positions.planned_files import PlannedFile


def _field(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: str(field_id)})


def _written(path: Path, columns: dict[pa.Field, list[Any]], file_format: str = "parquet") -> PlannedFile:
    table = pa.table(list(columns.values()), schema=pa.schema(list(columns)))
    pq.write_table(table, path, row_group_size=2)
    return PlannedFile(0, str(path), file_format, table.num_rows, msgspec.Raw(b"[]"))


def _sought(ids: dict[int, list[Any]]) -> SearchKeys:
    return SearchKeys(pa.table({str(each): values for each, values in ids.items()}), tuple(ids))


def _found(files: list[PlannedFile], sought: SearchKeys) -> dict[str, list[int]]:
    return {Path(path).name: rows.tolist() for path, rows in find_rows(LOCAL, files, sought).items()}


def test_rows_of_every_row_group_are_found_and_files_without_any_left_out(tmp_path: Path) -> None:
    key = _field("id", pa.int64(), 1)
    files = [_written(tmp_path / str(number), {key: list(range(number, number + 5))}) for number in (0, 3, 90)]
    assert _found(files, _sought({1: [4, 0, 7]})) == {"0": [0, 4], "3": [1, 4]}


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_row_groups_beyond_the_keys_change_no_position(kind: pa.DataType, tmp_path: Path) -> None:
    values = pa.array([5, 6, 1, 9, 7, 8, 5, 5]).cast(kind).to_pylist()
    file = _written(tmp_path / "sorted", {_field("id", kind, 1): values})
    assert _found([file], _sought({1: [values[0]]})) == {"sorted": [0, 6, 7]}
    assert _found([file], _sought({1: [values[4], values[5]]})) == {"sorted": [4, 5]}
    assert _found([file], _sought({1: [values[0], None]})) == {"sorted": [0, 6, 7]}
    # The name alone does not tell which column the statistics are of.
    inside = pa.field("id", pa.struct([_field("id", kind, 8)]), metadata={FIELD_ID: "7"})
    nested = _written(tmp_path / "nested", {inside: [{"id": values[1]}], _field("x", kind, 1): values[:1]})
    assert _found([nested], _sought({1: values[:1]})) == {"nested": [0]}


def test_columns_are_known_by_their_ids_whatever_they_were_called(tmp_path: Path) -> None:
    other = _field("id", pa.int64(), 5)
    renamed = _written(tmp_path / "renamed", {other: [1, 2, 3], _field("old", pa.int32(), 1): [3, 2, 1]})
    lacking = _written(tmp_path / "lacking", {other: [1, 1, 1]})
    assert _found([renamed, lacking], _sought({1: [1]})) == {"renamed": [2]}
    both = _sought({1: [3, None], 5: [1, 1]})
    assert _found([renamed, lacking], both) == {"renamed": [0], "lacking": [0, 1, 2]}


def test_a_name_with_a_dot_is_no_field_of_a_struct(tmp_path: Path) -> None:
    inside = pa.field("a", pa.struct([_field("b", pa.int64(), 8)]), metadata={FIELD_ID: "7"})
    file = _written(tmp_path / "dots", {inside: [{"b": 1}, {"b": 2}], _field("a.b", pa.int64(), 1): [2, 1]})
    assert _found([file], _sought({1: [1]})) == {"dots": [1]}


def test_what_this_process_cannot_read_is_left_to_spark(tmp_path: Path) -> None:
    unmarked = _written(tmp_path / "unmarked", {pa.field("id", pa.int64()): [1]})
    text = _written(tmp_path / "text", {_field("id", pa.string(), 1): ["x"]})
    orc = _written(tmp_path / "orc", {_field("id", pa.int64(), 1): [1]}, "orc")
    (tmp_path / "text2").write_text("no Parquet")
    broken = PlannedFile(0, str(tmp_path / "text2"), "parquet", 1, msgspec.Raw(b"[]"))
    for file in (unmarked, text, orc, broken):
        with pytest.raises(UnreadableFile):
            _found([file], _sought({1: [1]}))
    gone = PlannedFile(0, str(tmp_path / "gone"), "parquet", 1, msgspec.Raw(b"[]"))
    with pytest.raises(FileNotFoundError):
        _found([gone], _sought({1: [1]}))


def test_staged_keys_get_the_types_of_the_table(tmp_path: Path) -> None:
    for name, values in (("one", [1, None]), ("two", [2, 3])):
        _written(tmp_path / name, {_field("n", pa.int32(), 2): values, _field("id", pa.string(), 1): ["a", "b"]})
    fields = [_field("id", pa.string(), 1), _field("m", pa.int64(), 2)]
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    [sought] = read_keys(LOCAL, paths, fields, at_once=100)
    assert sought.ids == (1, 2)
    assert sought.keys.to_pydict() == {"1": ["a", "b", "a", "b"], "2": [1, None, 2, 3]}
    assert sought.keys.schema.field("2").type == pa.int64()
    few = [each.keys.to_pydict() for each in read_keys(LOCAL, paths, fields, at_once=2)]
    assert few == [{"1": ["a", "b"], "2": [1, None]}, {"1": ["a", "b"], "2": [2, 3]}]


def test_keys_that_were_staged_for_another_column_of_the_same_name_are_refused(tmp_path: Path) -> None:
    staged = _written(tmp_path / "keys", {_field("id", pa.int64(), 1): [1, 2]})
    with pytest.raises(TableError, match="column id was dropped and added again"):
        list(read_keys(LOCAL, [staged.file_path], [_field("id", pa.int64(), 7)], at_once=100))
