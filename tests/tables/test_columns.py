import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.tables.columns import arrow_schema, columns_of, differences, key_ids, united

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


def test_a_table_of_the_same_columns_lacks_nothing() -> None:
    columns = columns_of(EVERY_TYPE)
    reordered = columns_of(pa.schema(list(reversed(list(EVERY_TYPE)))))
    assert list(differences(columns, reordered)) == []
    assert united(columns, reordered, 99) == (columns, 99)


def test_what_is_added_gets_new_ids_and_what_was_there_keeps_its_own() -> None:
    old = columns_of(pa.schema([("a", pa.list_(pa.struct([("x", pa.int32())])))]))
    new = columns_of(pa.schema([("b", pa.list_(pa.int64())), ("A", pa.list_(pa.struct([("y", pa.int64())])))]))
    columns, last_id = united(old, new, 3)
    first, second = columns["fields"]
    assert (first["id"], first["type"]["element-id"]) == (1, 2)
    assert [(field["name"], field["id"]) for field in first["type"]["element"]["fields"]] == [("x", 3), ("y", 4)]
    assert (second["name"], second["id"], second["type"]["element-id"], last_id) == ("b", 5, 6, 6)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (pa.int64(), pa.string(), [("c", "bigint", "string")]),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), [("c", "timestamp_ntz", "timestamp")]),
        (pa.date32(), pa.timestamp("us", "UTC"), [("c", "date", "timestamp")]),
        (pa.list_(pa.int64()), pa.string(), [("c", "array<bigint>", "string")]),
        (pa.list_(pa.int64()), pa.list_(pa.bool_()), [("c.element", "bigint", "boolean")]),
        (pa.decimal128(9, 2), pa.decimal128(9, 3), [("c", "decimal(9, 2)", "decimal(9, 3)")]),
        (pa.decimal128(9, 2), pa.decimal128(38, 2), []),
        (pa.int64(), pa.int32(), []),
        (pa.float32(), pa.float64(), []),
        (pa.int64(), pa.float64(), [("c", "bigint", "double")]),
    ],
)
def test_types_that_do_not_widen_differ(old: pa.DataType, new: pa.DataType, told: list[tuple[str, str, str]]) -> None:
    found = differences(columns_of(pa.schema([("c", old)])), columns_of(pa.schema([("c", new)])))
    assert [tuple(difference) for difference in found] == told


def test_a_required_column_that_the_stream_lacks_differs() -> None:
    old = columns_of(pa.schema([("a", pa.int64())]))
    old["fields"][0]["required"] = True
    assert [d.column for d in differences(old, columns_of(pa.schema([("b", pa.int64())])))] == ["a"]


def test_an_optional_column_that_parquet_lacks_is_left_out() -> None:
    columns = columns_of(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    columns["fields"][1]["type"] = "variant"
    assert arrow_schema(columns).names == ["a"]
    columns["fields"][1]["required"] = True
    with pytest.raises(TableError, match="variant"):
        arrow_schema(columns)


def test_a_type_that_no_table_has_is_refused() -> None:
    with pytest.raises(TableError, match="column a"):
        columns_of(pa.schema([("a", pa.duration("s"))]))


def test_keys_are_found_without_case() -> None:
    columns = columns_of(pa.schema([("Id", pa.int64()), ("b", pa.int64())]))
    assert key_ids(columns, ("b", "id")) == [2, 1]
