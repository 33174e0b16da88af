"""From a stream's JSON Schema to the columns of its table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import (
    ColumnName,
    FieldPath,
    NamingPolicy,
    ObjectsAs,
    PlannedStream,
    ReadMode,
    Stream,
    StreamId,
    TableName,
    TypeChoices,
    WriteMode,
)
from dagster_airbyte_proto.schema.columns import METADATA
from dagster_airbyte_proto.schema.json_schema import source_key_fault, table_columns

_INSTANT = pa.timestamp("us", "UTC")


def _plan(schema: Mapping[str, Any], key: Sequence[FieldPath] = (), cursor: FieldPath = ()) -> PlannedStream:
    stream = Stream(StreamId.of("users"), schema)
    return PlannedStream(stream, TableName("shop", "users"), ReadMode.INCREMENTAL, WriteMode.APPEND, tuple(key), cursor)


def _of(properties: Mapping[str, Any], key: Sequence[FieldPath] = (), cursor: FieldPath = ()) -> PlannedStream:
    return _plan({"type": "object", "properties": properties}, key, cursor)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, pa.string()),
        ({"type": ["null", "string"]}, pa.string()),
        ({"type": "boolean"}, pa.bool_()),
        ({"type": "integer"}, pa.int64()),
        ({"type": "number"}, pa.float64()),
        ({"type": ["integer", "number", "null"]}, pa.float64()),
        ({"type": "number", "airbyte_type": "integer"}, pa.int64()),
        ({"type": "string", "airbyte_type": "big_integer"}, pa.decimal128(38, 0)),
        ({"type": "integer", "airbyte_type": "big_integer"}, pa.decimal128(38, 0)),
        ({"type": "string", "format": "date"}, pa.date32()),
        ({"type": "string", "format": "date-time"}, _INSTANT),
        ({"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}, _INSTANT),
        ({"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"}, pa.timestamp("us")),
        ({"type": "string", "format": "time"}, pa.string()),
        ({"type": "string", "format": "email"}, pa.string()),
        ({"type": "string", "contentEncoding": "base64"}, pa.binary()),
        ({"type": "object", "properties": {"a": {}}}, pa.string()),
        ({"type": "array", "items": {"type": "integer"}}, pa.list_(pa.int64())),
        ({"type": "array", "items": {"type": "array", "items": {"type": "object"}}}, pa.list_(pa.list_(pa.string()))),
        ({"type": "array"}, pa.string()),
        ({"type": ["string", "object"]}, pa.string()),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, pa.int64()),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, pa.string()),
        ({"$ref": "#/definitions/whole"}, pa.int64()),
        ({"$ref": "#/definitions/loop"}, pa.string()),
        ({"$ref": "WellKnownTypes.json#/definitions/TimestampWithTimezone"}, _INSTANT),
        ({}, pa.string()),
        (True, pa.string()),
    ],
)
def test_each_type_has_its_column(schema: Any, expected: pa.DataType) -> None:
    definitions = {"whole": {"type": "integer"}, "loop": {"$ref": "#/definitions/loop"}}
    planned = _plan({"type": "object", "properties": {"a": schema}, "definitions": definitions})
    assert table_columns(planned).schema.field("a").type == expected


def test_metadata_columns_come_last_and_descriptions_are_comments() -> None:
    schema = table_columns(_of({"a": {"type": "string", "description": "the first letter"}})).schema
    assert schema.names == ["a", *METADATA.names]
    assert schema.field("a").metadata == {b"comment": b"the first letter"}
    assert all(field.metadata for field in METADATA)


def test_a_schema_without_properties_has_one_column_with_the_record_whole() -> None:
    columns = table_columns(_plan({}))
    assert columns.schema.names == ["_airbyte_data", *METADATA.names]
    assert columns.schema.field("_airbyte_data").type == pa.string()


@pytest.mark.parametrize("by", [{"allOf": [{"$ref": "#/definitions/row"}]}, {"$ref": "#/definitions/row"}])
def test_an_empty_list_of_properties_hides_none_that_a_schema_refers_to(by: dict[str, Any]) -> None:
    """So SCHEMA messages of taps come with those of the catalog over them, where that declares none."""
    definitions = {"row": {"properties": {"a": {"type": "integer"}}}}
    planned = _plan({"properties": {}, "definitions": definitions, **by})
    assert table_columns(planned).schema.names == ["a", *METADATA.names]


def test_the_key_of_a_record_that_lands_whole_lies_inside() -> None:
    users = msgspec.structs.replace(_plan({}).stream, primary_key=(("id",),))
    planned = PlannedStream(users, TableName("shop", "users"), ReadMode.INCREMENTAL, WriteMode.APPEND, (("id",),))
    assert table_columns(planned).keys == ()
    keyed = msgspec.structs.replace(planned, write=WriteMode.APPEND_DEDUP, cursor=("at",))
    assert table_columns(keyed).keys == ("_airbyte_key__airbyte_data_id",)
    assert table_columns(keyed).cursor_column == table_columns(keyed).all[0]


def test_names_that_a_table_cannot_tell_apart_are_marked_the_same_in_every_run() -> None:
    names = [column.name for column in table_columns(_of({"Foo": {}, "foo": {}, "": {}, "_airbyte_meta": {}})).all]
    assert names[0] == "Foo"
    assert names[2] == "_"
    assert [name[:-6] for name in (names[1], names[3])] == ["foo_", "_airbyte_meta_"]
    assert names == [
        column.name for column in table_columns(_of({"Foo": {}, "foo": {}, "": {}, "_airbyte_meta": {}})).all
    ]


def test_columns_in_snake_case_keep_the_names_that_they_had() -> None:
    plan = _of({"createdAt": {}, "Created-At": {}, "oldName": {}, "subThing": {"properties": {"inSub": {}}}})
    kept = (ColumnName(("oldName",), "oldName"),)
    columns = table_columns(msgspec.structs.replace(plan, naming=NamingPolicy.SNAKE, column_names=kept))
    first, second, third, fourth = (column.name for column in columns.all)
    assert (first, third, fourth) == ("created_at", "oldName", "sub_thing")
    assert second.startswith("created_at_")


def test_keys_are_names_of_columns_also_inside_objects() -> None:
    inner = {"type": "object", "properties": {"id": {"type": "integer"}}}
    columns = table_columns(_of({"a": inner, "b": {"type": "string"}}, key=[("a", "id"), ("b",)], cursor=("b",)))
    assert columns.keys == ("_airbyte_key_a_id", "b")
    assert columns.schema.field("_airbyte_key_a_id").type == pa.int64()
    assert columns.cursor == ("b",)


def test_an_object_that_declares_nothing_may_hold_a_key() -> None:
    assert table_columns(_of({"a": {"type": "object"}}, key=[("a", "id")])).keys == ("_airbyte_key_a_id",)


@pytest.mark.parametrize(
    ("key", "cursor", "found", "nearest"),
    [
        ([("idd",)], (), "idd", "id"),
        ([], ("updatedat",), "updatedat", "updated_at"),
        ([("a", "ib")], (), "a.ib", "id"),
        ([("id", "x")], (), "id.x", "no fields"),
    ],
)
def test_a_key_or_cursor_that_is_not_there_is_refused(
    key: Sequence[FieldPath], cursor: FieldPath, found: str, nearest: str
) -> None:
    inner = {"type": "object", "properties": {"id": {}}}
    with pytest.raises(ConfigError) as caught:
        table_columns(_of({"id": {"type": "string"}, "updated_at": {}, "a": inner}, key, cursor))
    assert found in caught.value.found
    assert nearest in caught.value.remedy
    assert caught.value.stream == "users"


def test_what_the_source_alone_names_and_its_schema_lacks_is_done_without() -> None:
    stream = Stream(StreamId.of("users"), {"properties": {"id": {}}}, primary_key=(("uid",),), cursor=("at",))
    planned = PlannedStream(
        stream, TableName("shop", "users"), ReadMode.INCREMENTAL, WriteMode.APPEND, (("uid",),), ("at",)
    )
    columns = table_columns(planned)
    assert (columns.keys, columns.cursor) == ((), ())
    keyed = msgspec.structs.replace(planned, write=WriteMode.APPEND_DEDUP)
    with pytest.raises(ConfigError, match="no field uid, which the source names as its key") as refused:
        table_columns(keyed)
    assert "Set `primary_key` for the stream. Or use write: append or overwrite" in refused.value.remedy
    assert str(source_key_fault(keyed)) == str(refused.value)
    assert source_key_fault(planned) is None
    assert source_key_fault(msgspec.structs.replace(keyed, is_key_configured=True)) is None


def test_an_array_is_no_key() -> None:
    with pytest.raises(ConfigError, match="is an array"):
        table_columns(_of({"a": {"type": "array", "items": {"type": "string"}}}, key=[("a",)]))


@pytest.mark.parametrize("key", [("tags",), ("place",), ("place", "tags")])
def test_a_key_of_the_source_that_can_be_none_is_refused_only_where_rows_are_merged_by_it(key: FieldPath) -> None:
    tags = {"type": "array", "items": {"type": "string"}}
    schema = {"properties": {"tags": tags, "place": {"type": "object", "properties": {"tags": tags}}}}
    stream = Stream(StreamId.of("users"), schema, primary_key=(key,))
    planned = PlannedStream(
        stream,
        TableName("shop", "users"),
        ReadMode.FULL_REFRESH,
        WriteMode.OVERWRITE,
        (key,),
        types=TypeChoices(objects=ObjectsAs.STRUCT),
    )
    assert [column.name for column in table_columns(planned).all] == ["tags", "place"]
    assert table_columns(planned).keys == ()
    with pytest.raises(ConfigError, match="which cannot be a key"):
        table_columns(msgspec.structs.replace(planned, write=WriteMode.OVERWRITE_DEDUP))
    with pytest.raises(ConfigError, match="which cannot be a key"):
        table_columns(msgspec.structs.replace(planned, stream=msgspec.structs.replace(stream, primary_key=())))


class _CountedNames(tuple[ColumnName, ...]):
    """Names that count how often they are read from the first to the last."""

    readings: list[int] = []  # noqa: RUF012

    def __iter__(self) -> Iterator[ColumnName]:
        self.readings.append(len(self))
        return super().__iter__()


def test_names_of_members_are_read_once_for_all_fields() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string"}}}
    planned = _of({f"field {number}": inner for number in range(20)})
    kept = _CountedNames(ColumnName((f"field {number}", "a"), f"A{number}") for number in range(20))
    columns = table_columns(
        msgspec.structs.replace(planned, types=TypeChoices(objects=ObjectsAs.STRUCT), member_names=kept)
    )
    assert [column.type.members[0].name for column in columns.all] == [f"A{number}" for number in range(20)]
    assert kept.readings == [20]
