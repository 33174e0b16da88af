"""The files of a part are held against its table before Spark reads them by the names of their columns."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema, columns_of
from dagster_airbyte_proto.loads.load import FileContent, StagedFile
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.schema.evolution import IcebergSchema
from dagster_airbyte_proto.tables.part_checks import check_staged_files

_SCHEMA = pa.schema([("key", pa.int64()), ("things", pa.list_(pa.struct([("label", pa.string())]))), ("x", pa.bool_())])
_COLUMNS = columns_of(_SCHEMA)


def _called(old: str, new: str) -> IcebergSchema:
    """The table's columns once somebody has renamed one."""
    renamed: IcebergSchema = json.loads(json.dumps(_COLUMNS).replace(f'"name": "{old}"', f'"name": "{new}"'))
    assert renamed != _COLUMNS
    return renamed


@pytest.fixture
def staged(tmp_path: Path) -> StagedFile:
    path = tmp_path / "rows.parquet"
    rows = pa.Table.from_pylist([{"key": 1, "things": [{"label": "a"}]}], schema=arrow_schema(_COLUMNS))
    pq.write_table(rows, path)
    return StagedFile(str(path), FileContent.ROWS, 1, path.stat().st_size)


def test_columns_may_come_and_go_and_change_in_case(staged: StagedFile) -> None:
    fewer = {**_COLUMNS, "fields": _COLUMNS["fields"][:2]}
    more = {**_COLUMNS, "fields": [*_COLUMNS["fields"], {"id": 9, "name": "y", "required": False, "type": "long"}]}
    for columns in (_COLUMNS, fewer, more, _called("key", "KEY"), _called("label", "Label")):
        check_staged_files([staged], LOCAL, columns)


@pytest.mark.parametrize(("old", "new"), [("key", "id"), ("label", "title"), ("x", "key_x")])
def test_a_column_that_was_renamed_since_is_refused(staged: StagedFile, old: str, new: str) -> None:
    with pytest.raises(TableError, match=f"column {old} was renamed to {new} after its rows were staged"):
        check_staged_files([staged], LOCAL, _called(old, new))


def test_a_file_that_was_cut_off_is_refused(staged: StagedFile) -> None:
    path = Path(staged.path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TableError, match=path.name):
        check_staged_files([staged], LOCAL, _COLUMNS)
