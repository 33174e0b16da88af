"""Iceberg tables that change, and unusual names, as Spark SQL reads them."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.table import DataScan, StaticTable
from pyspark.sql import SparkSession

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import SchemaRefused
from dagster_airbyte_proto.loads.load import BranchPosition, StagedRows
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import (
    Catalog,
    Ordering,
    PartitionField,
    SchemaPolicy,
    SortField,
    Stream,
    StreamId,
    WriteMode,
)
from dagster_airbyte_proto.schema.columns import METADATA
from dagster_airbyte_proto.schema.evolution import ChangeKind, EvolutionRules
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest, planned_streams
from dagster_airbyte_proto.tables.formats import rewinder_of
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.sql_names import quoted
from tests.conformance.table_rows import Row, names, part, part_of, table_name

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
    one = {"n": {"type": "integer"}}
    namespaces = dict.fromkeys(STREAMS[:4], "n.s `x`/1") | {"1st": "1", "files": "select"}
    catalog = Catalog(
        tuple(
            Stream(StreamId.of(name, namespaces.get(name)), {"properties": properties if name == "select" else one})
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
    for planned in planned_streams(connection, catalog, SyncRequest()):
        columns = table_columns(planned)
        target = iceberg.prepare(TableSpec(planned.table, columns.schema))
        row = {column.name: number for number, column in enumerate(columns.all)}
        iceberg.commit(f"l {planned.id}", part(target, WriteMode.APPEND, [{**row, "_airbyte_raw_id": planned.id.name}]))
        names = ", ".join(quoted(column.name) for column in columns.all)
        found = query(spark, f"select {names} from {target.qualified} where _airbyte_raw_id is not null").rows
        assert found == [list(range(len(columns.all)))]
        comments = {row[0]: row[2] for row in query(spark, f"describe table {target.qualified}").rows}
        for column in columns.all:
            assert (column.path[0] == column.name) == ("the source calls it" not in (comments[column.name] or ""))
        # Iceberg's metadata table of the same name is not read instead.
        assert query(spark, f"select count(*) from {target.qualified}").rows == [[1]]


def schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema([*types.items(), METADATA.field("_airbyte_meta")])


def changes_of(target: TableTarget) -> list[tuple[ChangeKind, str]]:
    return [(change.kind, change.column) for change in target.fit.changes]


def values(rows: Sequence[Row], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in rows)


def test_renamed_columns_keep_their_values_and_what_is_withheld_stays_out(
    spark: SparkSession, iceberg: IcebergTables, iceberg_rows: Reader
) -> None:
    name = table_name()
    first = iceberg.prepare(TableSpec(name, schema(id=pa.int64(), mail=pa.string(), n=pa.int32())))
    iceberg.commit("l1", part(first, WriteMode.APPEND_DEDUP, [{"id": 1, "mail": "a"}, {"id": 2, "mail": "b"}]))
    iceberg.commit("l2", part(first, WriteMode.APPEND_DEDUP, [{"id": 2, "mail": "c"}]))

    terms = EvolutionRules(formerly={"email": "mail", "user_id": "id"})
    wider = schema(user_id=pa.int64(), email=pa.string(), n=pa.int64(), **{"a.b": pa.string()})
    second = iceberg.prepare(TableSpec(name, wider, evolution_rules=terms))
    assert changes_of(second) == [
        (ChangeKind.COLUMN_RENAMED, "email"),
        (ChangeKind.COLUMN_RENAMED, "user_id"),
        (ChangeKind.COLUMN_WIDENED, "n"),
        (ChangeKind.COLUMN_ADDED, "a.b"),
    ]
    assert second.schema.names == ["user_id", "email", "n", "_airbyte_meta", "a.b"]
    assert iceberg.prepare(TableSpec(name, wider, evolution_rules=terms)).fit.changes == ()
    row = {"user_id": 2, "email": "d", "a.b": "x"}
    iceberg.commit("l3", part(second, WriteMode.APPEND_DEDUP, [row], keys=("user_id",)))
    expected = [(1, "a", None), (2, "d", "x")]
    assert values(iceberg_rows(second), "user_id", "email", "a.b") == expected
    assert query(spark, f"select email, `a.b` from {second.qualified} where user_id = 2").rows == [["d", "x"]]

    other = schema(user_id=pa.int64(), email=pa.int64(), more=pa.string())
    for policy in (SchemaPolicy.DISCARD_COLUMN, SchemaPolicy.DISCARD_ROW):
        third = iceberg.prepare(TableSpec(name, other, evolution_rules=EvolutionRules(policy)))
        assert (third.schema, changes_of(third)) == (second.schema, [])
        assert [misfit.column for misfit in third.fit.excluded] == ["email", "more"]
    with pytest.raises(SchemaRefused, match="no column more"):
        iceberg.prepare(TableSpec(name, other, evolution_rules=EvolutionRules(SchemaPolicy.FREEZE)))
    assert values(iceberg_rows(second), "user_id", "email", "a.b") == expected


def test_a_replaced_schema_is_every_readers_and_goes_back_with_its_rows(
    spark: SparkSession, iceberg: IcebergTables, iceberg_rows: Reader
) -> None:
    name = table_name()
    by_day = Ordering((SortField("day"),))
    first = iceberg.prepare(TableSpec(name, schema(id=pa.int64(), day=pa.string(), x=pa.int64()), ordering=by_day))
    old = iceberg.commit("l1", part(first, WriteMode.APPEND, [{"id": 1, "day": "d", "x": 7}])).snapshot_id

    wanted = TableSpec(name, schema(id=pa.int64(), x=pa.struct([("a", pa.string())])), replaces=True)
    second = iceberg.prepare(wanted)
    # The column by which the table is sorted stays, and is null.
    assert second.schema.names == ["id", "day", "x", "_airbyte_meta"]
    rows = part(second, WriteMode.OVERWRITE, [{"id": 2, "x": {"a": "new"}}])
    first_load = msgspec.structs.replace(rows, branch_position=BranchPosition("b", schema_id=second.schema_id))
    iceberg.commit("l2", first_load)

    def by_pyiceberg() -> DataScan:
        log = f"{first.qualified}.metadata_log_entries"
        [[file]] = query(spark, f"select file from {log} order by timestamp desc, file desc limit 1").rows
        return StaticTable.from_metadata(file).scan()

    assert values(iceberg_rows(first), "id", "day", "x") == [(1, "d", 7)]
    assert by_pyiceberg().select("id", "day", "x").to_arrow().to_pylist() == [{"id": 1, "day": "d", "x": 7}]
    last = msgspec.structs.replace(part_of(second, WriteMode.OVERWRITE), branch_position=first_load.branch_position)
    position = BranchPosition("b", "l2", publishes=True, schema_id=second.schema_id)
    new = iceberg.commit("l3", msgspec.structs.replace(last, branch_position=position)).snapshot_id
    assert values(iceberg_rows(first), "id", "day", "x") == [(2, None, {"a": "new"})]
    assert by_pyiceberg().select("id", "x").to_arrow().to_pylist() == [{"id": 2, "x": {"a": "new"}}]

    travelled = f"select id, day, x from {first.qualified} version as of"
    assert query(spark, f"{travelled} {old}").rows == [[1, "d", 7]]
    # Spark can still write to the table, although its sort column has no values any more.
    query(spark, f"call lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    spark.sql(f"insert into {first.qualified} (id, x) values (3, named_struct('a', 'spark'))")
    assert values(iceberg_rows(first), "id", "x") == [(2, {"a": "new"}), (3, {"a": "spark"})]
    with pytest.raises(SchemaRefused, match="column day is string in the table and bigint in the stream"):
        iceberg.prepare(wanted._replace(schema=schema(id=pa.int64(), day=pa.int64())))

    rewinder = rewinder_of(iceberg)
    for snapshot, expected in [(old, [(1, "d", 7)]), (new, [(2, None, {"a": "new"})]), (old, [(1, "d", 7)])]:
        assert rewinder.rewind(name, snapshot, seen=rewinder.past(name), version=0)
        assert values(iceberg_rows(first), "id", "day", "x") == expected
        back = rewinder.past(name).current
        assert [tuple(row) for row in query(spark, f"{travelled} {back}").rows] == expected
    again = iceberg.prepare(TableSpec(name, schema(id=pa.int64(), day=pa.string(), x=pa.int64())))
    assert (again.schema, again.fit.changes) == (first.schema, ())
    iceberg.commit("l4", part(again, WriteMode.APPEND, [{"id": 4, "day": "e", "x": 8}]))
    assert values(iceberg_rows(first), "id", "day", "x") == [(1, "d", 7), (4, "e", 8)]


def _in_partition(load: StagedRows, column: str, value: str) -> StagedRows:
    files = tuple(msgspec.structs.replace(file, partition=(value,)) for file in load.files)
    return msgspec.structs.replace(load, files=files, partitioned_by=(column,))


@pytest.mark.parametrize("replaces", [False, True])
def test_a_column_that_partitions_its_table_can_be_renamed(
    iceberg: IcebergTables, iceberg_rows: Reader, *, replaces: bool
) -> None:
    name, fields = table_name(), schema(id=pa.int64(), day=pa.string())
    first = iceberg.prepare(TableSpec(name, fields, partitioning=(PartitionField("identity", "day"),)))
    iceberg.commit("l1", _in_partition(part(first, WriteMode.APPEND, [{"id": 1, "day": "d"}]), "day", "d"))

    fields, rules = schema(id=pa.int64(), date_of=pa.string()), EvolutionRules(formerly={"date_of": "day"})
    by_date = (PartitionField("identity", "date_of"),)
    second = iceberg.prepare(TableSpec(name, fields, partitioning=by_date, evolution_rules=rules, replaces=replaces))
    write = WriteMode.OVERWRITE if replaces else WriteMode.APPEND
    load = _in_partition(part(second, write, [{"id": 2, "date_of": "e"}]), "date_of", "e")
    if replaces:
        position = BranchPosition("b", publishes=True, schema_id=second.schema_id)
        load = msgspec.structs.replace(load, branch_position=position)
    iceberg.commit("l2", load)
    assert values(iceberg_rows(second), "id", "date_of") == [*([] if replaces else [(1, "d")]), (2, "e")]


def test_a_table_whose_owner_named_identifier_fields_takes_rows_that_may_lack_them(
    spark: SparkSession, iceberg: IcebergTables, iceberg_rows: Reader
) -> None:
    name = table_name()
    spark.sql("create namespace if not exists lake.shop")
    spark.sql(f"create table lake.{name} (id bigint not null, name string) using iceberg")
    spark.sql(f"alter table lake.{name} set identifier fields id")
    target = iceberg.prepare(TableSpec(name, schema(id=pa.int64(), name=pa.string())))
    assert (ChangeKind.COLUMN_WIDENED, "id") in changes_of(target)
    loads: list[list[Row]] = [[{"id": 1, "name": "a"}, {"id": None, "name": "b"}], [{"id": 1, "name": "c"}]]
    for number, rows in enumerate(loads):
        iceberg.commit(f"l{number}", part(target, WriteMode.APPEND_DEDUP, rows))
    assert names(iceberg_rows(target)) == [(1, "c"), (None, "b")]
