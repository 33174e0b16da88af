import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema, columns_of, key_ids

EVERY_TYPE = pa.schema(
    [
        ("a", pa.bool_()),
        ("b", pa.int64()),
        ("c", pa.float64()),
        ("d", pa.string()),
        ("e", pa.binary()),
        ("f", pa.date32()),
        ("g", pa.timestamp("us")),
        ("h", pa.timestamp("us", "UTC")),
        ("i", pa.decimal128(38, 9)),
        ("j", pa.list_(pa.struct([("x", pa.string())]))),
        ("k", pa.map_(pa.string(), pa.int64())),
        ("l", pa.struct([("y", pa.struct([("z", pa.int64())]))])),
    ]
)


def test_every_type_goes_there_and_back() -> None:
    back = arrow_schema(columns_of(EVERY_TYPE))
    assert back.names == EVERY_TYPE.names
    assert [str(kind) for kind in back.types] == [str(kind) for kind in arrow_schema(columns_of(back)).types]
    assert back.field("h").type == pa.timestamp("us", "UTC")
    assert back.field("j").type.value_type.field("x").type == pa.string()


def test_an_optional_column_that_parquet_lacks_is_left_out() -> None:
    columns = columns_of(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    columns["fields"][1]["type"] = "geometry"
    assert arrow_schema(columns).names == ["a"]
    columns["fields"][1]["required"] = True
    with pytest.raises(TableError, match="geometry"):
        arrow_schema(columns)


def test_a_type_that_no_table_has_is_refused() -> None:
    with pytest.raises(TableError, match="column a"):
        columns_of(pa.schema([("a", pa.duration("s"))]))


def test_keys_are_found_without_case() -> None:
    columns = columns_of(pa.schema([("Id", pa.int64()), ("b", pa.int64())]))
    assert key_ids(columns, ("b", "id")) == [2, 1]
