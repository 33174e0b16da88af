"""The statements for tables of a Connect server, without one."""

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.column_ids import columns_of
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import MergeMode, PartitionField, SortField, TableName
from dagster_airbyte_proto.tables.iceberg.connect.statements import change_columns, create_table, evolve, order_by
from dagster_airbyte_proto.tables.iceberg.log import TableLog
from dagster_airbyte_proto.tables.iceberg.preparation import RequestedTable

_NAME = TableName("shop", "t")


def test_a_table_is_created_with_comments_partitions_and_quoted_names() -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), metadata={"comment": "who's it"}),
            ("a `b`", pa.list_(pa.struct([("x y", pa.decimal128(10, 2))]))),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    fields = (PartitionField("identity", "id"), PartitionField("day", "at"), PartitionField("bucket", "id", 4))
    spec = TableSpec(_NAME, schema, comment="people", partitioning=fields, merge=MergeMode.POSITIONS)
    statement = create_table("lake.shop.t", RequestedTable.of(spec))
    assert statement.startswith(
        "create table lake.shop.t (id bigint comment 'who\\'s it', `a ``b``` array<struct<`x y`: decimal(10,2)>>, "
        "at timestamp) using iceberg partitioned by (id, day(at), bucket(4, id)) comment 'people' tblproperties ("
    )
    assert "'format-version' = '3'" in statement


def test_columns_are_added_and_widened_where_they_are() -> None:
    before = columns_of(pa.schema([("n", pa.int32()), ("a", pa.list_(pa.struct([("x", pa.string())])))]))
    after = columns_of(
        pa.schema(
            [("n", pa.int64()), ("a", pa.list_(pa.struct([("x", pa.string()), ("y", pa.bool_())]))), ("z", pa.date32())]
        )
    )
    assert list(change_columns("t", before, after)) == [
        "alter table t alter column n type bigint",
        "alter table t add column a.element.y boolean",
        "alter table t add column z date",
    ]
    assert list(change_columns("t", after, after)) == []


def test_a_type_that_sql_lacks_is_refused_by_name() -> None:
    spec = TableSpec(_NAME, pa.schema([("at", pa.time64("us"))]))
    with pytest.raises(TableError, match="no type for columns of time"):
        create_table("lake.shop.t", RequestedTable.of(spec))


def test_the_order_of_rows() -> None:
    fields = (SortField("a b", is_descending=True), SortField("c"))
    expected = "alter table t write locally ordered by `a b` desc nulls last, c asc nulls first"
    assert order_by("t", fields) == expected


def test_a_column_that_may_be_null_from_now_on_is_allowed_to() -> None:
    after = columns_of(pa.schema([("n", pa.int32()), ("a b", pa.struct([("x", pa.string())]))]))
    plain, outer = after["fields"]
    [inner] = outer["type"]["fields"]
    strict = {**outer, "type": {**outer["type"], "fields": [{**inner, "required": True}]}}
    before = {**after, "fields": [{**plain, "required": True}, strict]}
    assert list(change_columns("t", before, after)) == [
        "alter table t alter column n drop not null",
        "alter table t alter column `a b`.x drop not null",
    ]


def test_columns_that_identify_rows_do_so_no_more_where_they_may_be_null_from_now_on() -> None:
    after = columns_of(pa.schema([("a b", pa.int64()), ("thing", pa.struct([("x", pa.string())])), ("y", pa.string())]))
    key, outer, other = after["fields"]
    [member] = outer["type"]["fields"]
    strict = {**outer, "required": True, "type": {**outer["type"], "fields": [{**member, "required": True}]}}
    fields = [{**key, "required": True}, strict, other]
    ids = [each["id"] for each in (key, member)]
    schema = {"type": "struct", "schema-id": 0, "fields": fields, "identifier-field-ids": ids}
    plain = {"format-version": 2, "location": "/t", "last-column-id": 9, "current-schema-id": 0, "default-spec-id": 0}
    log = msgspec.convert({**plain, "schemas": [schema], "partition-specs": []}, TableLog)
    assert list(evolve("t", log, after))[:2] == [
        "alter table t drop identifier fields `a b`, thing.x",
        "alter table t alter column `a b` drop not null",
    ]
    assert list(evolve("t", log, log.columns)) == []
