"""What Iceberg itself makes of tables that change, and of names: read through Spark SQL."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import SchemaRefused
from dagster_airbyte_proto.model import Catalog, SchemaPolicy, Stream, StreamId, WriteMode
from dagster_airbyte_proto.schema.columns import METADATA
from dagster_airbyte_proto.schema.evolution import Terms, What
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.sync.plan import Wanted, planned_streams
from dagster_airbyte_proto.tables.iceberg import IcebergTables
from dagster_airbyte_proto.tables.spark import query
from dagster_airbyte_proto.tables.writer import TableSpec, TableTarget, quoted
from tests.conformance.table_writer import Row, part, table_name

pytestmark = pytest.mark.spark

Reader = Callable[[TableTarget], list[Row]]
FIELDS = (
    "select", "a.b", "a", "back`tick", "sla/sh\\", "1st", "用户 名", "🙂", "tab\tline\n", "nul\0", "", " ", "_pos",
    "_file", "_deleted", "_partition", "_airbyte_meta", "Foo", "foo", "ı", "i", "İ", "x" * 300, "a,b;{c}(d)=e",
    "it's \"so\"", "%20", "Straße", "strasse", "__", "element", "null", "current_date", "*",
)  # fmt: skip
STREAMS = (
    "select", "a.b", "back`tick", "sla/sh\\", "1st", "用户 名", "🙂", "files", "snapshots", "at_timestamp_1", "x" * 200,
    "..", "Users", "users", "col:on", "%20", "a?b*", "branch_main",
)  # fmt: skip


def test_every_column_and_table_can_be_queried_by_its_name(spark: SparkSession, iceberg: IcebergTables) -> None:
    properties = {field: {"type": "integer"} for field in FIELDS}
    namespaces = dict.fromkeys(STREAMS[:4], "n.s `x`/1") | {"1st": "1", "files": "select"}
    catalog = Catalog(
        tuple(
            Stream(StreamId.of(name, namespaces.get(name)), {"properties": properties if name == "select" else {}})
            for name in STREAMS
        )
    )
    launch = {"kind": "local", "command": ["source"]}
    connection = Connection.model_validate(
        {
            "name": "names",
            "connector": {"protocol": "airbyte", "launch": launch},
            "destination": {"namespace": "hard ${source_namespace}"},
        }
    )
    for planned in planned_streams(connection, catalog, Wanted()):
        columns = table_columns(planned)
        target = iceberg.prepare(TableSpec(planned.table, columns.schema))
        row = {column.name: number for number, column in enumerate(columns.all)}
        iceberg.commit(f"l {planned.id}", part(target, WriteMode.APPEND, [{**row, "_airbyte_raw_id": planned.id.name}]))
        names = ", ".join(quoted(column.name) for column in columns.all) or "1"
        found = query(spark, f"select {names} from {target.qualified} where _airbyte_raw_id is not null").rows
        assert found == [list(range(len(columns.all))) or [1]]
        comments = {row[0]: row[2] for row in query(spark, f"describe table {target.qualified}").rows}
        for column in columns.all:
            assert (column.path[0] == column.name) == ("the source calls it" not in (comments[column.name] or ""))
        # Not the table's metadata, where it is called as one of those.
        assert query(spark, f"select count(*) from {target.qualified}").rows == [[1]]


def schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema([*types.items(), METADATA.field("_airbyte_meta")])


def told(target: TableTarget) -> list[tuple[What, str]]:
    return [(change.what, change.column) for change in target.fit.changes]


def values(rows: Sequence[Row], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in rows)


def test_renamed_columns_keep_their_values_and_what_is_withheld_stays_out(
    spark: SparkSession, iceberg: IcebergTables, iceberg_rows: Reader
) -> None:
    name = table_name()
    first = iceberg.prepare(TableSpec(name, schema(id=pa.int64(), mail=pa.string(), n=pa.int32())))
    iceberg.commit("l1", part(first, WriteMode.APPEND_DEDUP, [{"id": 1, "mail": "a"}, {"id": 2, "mail": "b"}]))
    iceberg.commit("l2", part(first, WriteMode.APPEND_DEDUP, [{"id": 2, "mail": "c"}]))

    terms = Terms(formerly={"email": "mail", "user_id": "id"})
    wider = schema(user_id=pa.int64(), email=pa.string(), n=pa.int64(), **{"a.b": pa.string()})
    second = iceberg.prepare(TableSpec(name, wider, terms=terms))
    assert told(second) == [
        (What.COLUMN_RENAMED, "email"),
        (What.COLUMN_RENAMED, "user_id"),
        (What.COLUMN_WIDENED, "n"),
        (What.COLUMN_ADDED, "a.b"),
    ]
    assert second.schema.names == ["user_id", "email", "n", "_airbyte_meta", "a.b"]
    assert iceberg.prepare(TableSpec(name, wider, terms=terms)).fit.changes == ()
    row = {"user_id": 2, "email": "d", "a.b": "x"}
    iceberg.commit("l3", part(second, WriteMode.APPEND_DEDUP, [row], keys=("user_id",)))
    expected = [(1, "a", None), (2, "d", "x")]
    assert values(iceberg_rows(second), "user_id", "email", "a.b") == expected
    assert query(spark, f"select email, `a.b` from {second.qualified} where user_id = 2").rows == [["d", "x"]]

    other = schema(user_id=pa.int64(), email=pa.int64(), more=pa.string())
    for policy in (SchemaPolicy.DISCARD_COLUMN, SchemaPolicy.DISCARD_ROW):
        third = iceberg.prepare(TableSpec(name, other, terms=Terms(policy)))
        assert (third.schema, told(third)) == (second.schema, [])
        assert [misfit.column for misfit in third.fit.withheld] == ["email", "more"]
    with pytest.raises(SchemaRefused, match="no column more"):
        iceberg.prepare(TableSpec(name, other, terms=Terms(SchemaPolicy.FREEZE)))
    assert values(iceberg_rows(second), "user_id", "email", "a.b") == expected
