import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import SchemaRefused, TableError
from dagster_airbyte_proto.loads.load import BranchPosition, FileContent, StagedRows
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import PartitionField, TableName, WriteMode
from dagster_airbyte_proto.schema.evolution import EvolutionRules
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.tables.care import ProtectedFiles
from dagster_airbyte_proto.tables.delta.history import parse_add_action
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.delta.warehouse import register
from dagster_airbyte_proto.tables.formats import care_of, rewinder_of
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS, Failure, failure_of
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_branches import NewColumnsConformance
from tests.conformance.table_care import CaredForTableConformance
from tests.conformance.table_rows import (
    SCHEMA,
    Bench,
    Reader,
    names,
    part,
    part_of,
    position_deletes,
    staged,
    table_name,
)
from tests.conformance.table_slices import SlicedTableConformance
from tests.conformance.table_witness import WitnessConformance
from tests.conformance.table_writer import TableWriterConformance
from tests.tables.partitioned_rows import land, parted, row
from tests.tables.variant_rows import THINGS, shown, upsert

pytestmark = pytest.mark.spark


class _DeltaBench:
    @pytest.fixture
    def bench(
        self, delta: DeltaTables, spark: SparkSession, delta_settings: SparkSettings, iceberg_rows: Reader
    ) -> Bench:
        return Bench(delta, DeltaTables(spark, delta_settings), iceberg_rows)


@pytest.mark.everyday(
    "test_a_load_is_found_once_it_has_landed_and_not_before[append_dedup]",
    "test_a_table_names_the_newest_load_of_a_connection_and_itself",
    "test_a_new_table_has_the_columns_and_no_rows",
    "test_preparing_again_changes_nothing",
    "test_columns_are_added_and_old_rows_have_nulls_there",
    "test_names_compare_without_case",
    "test_columns_that_differ_by_case_alone_are_refused",
    "test_integers_and_floats_are_widened",
    "test_another_type_is_refused_with_the_way_out",
    "test_odd_names_are_names[select]",
    "test_appends_add_up",
    "test_a_replace_swaps_all_rows_at_once[overwrite_dedup]",
    "test_an_upsert_replaces_rows_of_the_same_key",
    "test_deletions_leave_nothing_of_their_keys_and_unknown_ones_do_no_harm[True]",
    "test_rows_of_some_keys_are_found_and_how_new_they_are_is_known",
    "test_a_load_lands_once[append_dedup]",
    "test_a_paused_writer_does_not_land_what_another_landed[False-append_dedup]",
    "test_a_paused_writer_does_not_undo_a_newer_load[overwrite]",
    "test_another_load_in_between_is_kept[append_dedup]",
    "test_a_file_that_is_gone_is_an_error_and_nothing_lands",
)
class TestDeltaTables(_DeltaBench, TableWriterConformance, WitnessConformance):
    """Loads that append, upsert and replace rows."""


@pytest.mark.nightly
class TestDeltaTablesSlicesAndCare(
    _DeltaBench, SlicedTableConformance, CaredForTableConformance, NewColumnsConformance
):
    """Slices, table care and columns that change with the rows."""


def test_a_table_tells_of_its_loads_and_keeps_its_columns_through_a_rename(
    spark: SparkSession, delta: DeltaTables, iceberg_rows: Reader
) -> None:
    target = delta.prepare(TableSpec(table_name(), SCHEMA, comment="people"))
    delta.commit("l1", part(target, WriteMode.APPEND, [{"id": i, "name": "a"} for i in range(3)]))
    told = spark.sql(f"describe history {target.qualified}").where("version = 1").first()
    assert told is not None
    assert json.loads(told["userMetadata"]) == {
        "airbyte-proto.load-id": "l1",
        "airbyte-proto.stream": "users",
        "airbyte-proto.connection": "shop",
        "airbyte-proto.run-id": "r1",
        "airbyte-proto.table-rows": "3",
    }
    described = {row[0]: row for row in query(spark, f"describe table extended {target.qualified}").rows}
    assert described["id"] == ["id", "bigint", "who it is"]
    assert described["Comment"][1] == "people"
    # By the bounds of its files, which Delta takes from us.
    assert query(spark, f"select id from {target.qualified} where id > 1").rows == [[2]]
    assert query(spark, f"select id from {target.qualified} where id > 2 or name > 'b'").rows == []

    spark.sql(f"alter table {target.qualified} rename column name to called")
    schema = pa.schema([("id", pa.int64()), ("called", pa.string())])
    again = delta.prepare(TableSpec(target.name, schema))
    assert again.schema.names == ["id", "called", "_airbyte_meta"]
    delta.commit("l2", part(again, WriteMode.OVERWRITE, [{"id": 9, "called": "b"}]))
    assert [(row["id"], row["called"]) for row in iceberg_rows(again)] == [(9, "b")]


def test_tables_of_the_warehouse_are_known_by_name_and_those_of_others_are_refused(
    spark: SparkSession, delta_settings: SparkSettings
) -> None:
    settings = delta_settings._replace(warehouse=f"{delta_settings.warehouse}/other")
    tables = DeltaTables(spark, settings)
    made = tables.prepare(TableSpec(TableName("creek", "fish"), SCHEMA))
    tables.commit("l1", part(made, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
    spark.sql("drop table spark_catalog.creek.fish")
    tables.register_all()
    assert names([row.asDict(recursive=True) for row in spark.table("creek.fish").collect()]) == [(1, "a")]
    spark.range(3).write.format("delta").save(f"{settings.warehouse}/creek/frogs")
    with pytest.raises(TableError, match="others made it"):
        tables.prepare(TableSpec(TableName("creek", "frogs"), SCHEMA))


def test_rows_that_a_load_brings_twice_are_left_out_without_being_written_anew(
    spark: SparkSession, delta: DeltaTables
) -> None:
    """Few of them are told in the log, very many in a file beside the table's; of a file that is all taken out nothing
    is told."""
    target = delta.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    many = staged(target, [{"id": number // 2, "name": str(number % 2)} for number in range(12_000)])
    few, none = (staged(target, [{"id": -1, "name": name} for name in "ab"]) for _ in range(2))
    deletes = (
        position_deletes(target, many, *range(0, 12_000, 2)),
        position_deletes(target, few, 0),
        position_deletes(target, none, 0, 1),
    )
    load = part_of(target, WriteMode.OVERWRITE_DEDUP, many, few, none, *deletes)
    assert delta.commit("l1", load).table_rows == 6001
    rows = spark.read.format("delta").load(target.location)
    assert rows.groupBy("name").count().orderBy("name").collect() == [("1", 6000), ("b", 1)]
    assert len([*Path(target.location).glob("deletion_vector_*.bin")]) == 1
    assert not [*Path(target.location).rglob("part-*")]
    facts = care_of(delta).facts(target.name)
    assert (facts.files, facts.delete_files, facts.rows) == (2, 2, 6001)
    before = datetime.now(UTC) + timedelta(days=1)
    gone = care_of(delta).remove_orphans(target.name, before=before, protected=ProtectedFiles())
    assert sorted(gone) == sorted(file.path for file in (none, *deletes))
    assert rows.count() == 6001


def test_a_taking_back_that_began_before_its_version_was_let_go_of_is_refused(delta: DeltaTables) -> None:
    target = delta.prepare(TableSpec(table_name(), SCHEMA))
    for number in range(3):
        delta.commit(f"l{number}", part(target, WriteMode.OVERWRITE, [{"id": number, "name": "a"}]))
    java, care = delta.java(), care_of(delta)
    slept = java.snapshot(target.location)
    files = java.add_actions_at(slept, 1)
    assert care.expire(target.name, ["0", "1"]) == 2
    assert not (Path(target.location) / unquote(parse_add_action(files[0]).path)).exists()
    with pytest.raises(CALL_ERRORS) as refused:
        java.restore(slept, "1", java.add_actions(slept), files)
    assert failure_of(refused.value) is Failure.CONFLICT
    assert [(each.snapshot_id, each.operation) for each in care.history(target.name).changes] == [
        ("2", "overwrite"),
        ("3", "overwrite"),
        ("4", "expire"),
    ]
    assert care.facts(target.name).rows == 1


@pytest.mark.nightly
def test_a_table_may_be_partitioned_by_the_values_of_columns(spark: SparkSession, delta: DeltaTables) -> None:
    name, countries = table_name(), [None, "a/b=c", "Österreich", "null"]
    plain = parted(name.name, ["country", "on"])
    rows = [row(number) | {"country": countries[number % 4]} for number in range(8)]

    def stands() -> list[tuple[object, ...]]:
        found = spark.read.format("delta").load(delta.prepare(spec).location).select("id", "country", "on", "n")
        return sorted((tuple(each) for each in found.collect()), key=repr)

    def expected(*rows: dict[str, Any]) -> list[tuple[object, ...]]:
        latest = {each["id"]: each for each in rows}.values()
        told = [(each["id"], each["country"], date.fromisoformat(each["on"]), each["n"]) for each in latest]
        return sorted(told, key=repr)

    columns = table_columns(plain)
    spec = TableSpec(plain.table, columns.schema, columns.keys, partitioning=columns.partitioning)
    part = land(delta, plain, f"{name}-1", rows)  # by reference
    assert len({file.partition for file in part.files if file.content is FileContent.ROWS}) == 8
    assert stands() == expected(*rows)
    [detail] = spark.sql(f"describe detail {delta.prepare(spec).qualified}").collect()
    assert detail["partitionColumns"] == ["country", "on"]
    moved = [row(number, version=1) | {"country": countries[number % 3]} for number in range(0, 8, 2)]
    land(delta, plain, f"{name}-2", [moved[0], *moved])  # by a job, with a duplicate
    assert stands() == expected(*rows, *moved)
    assert care_of(delta).compact(plain.table).removed_delete_files == 0
    facts = care_of(delta).facts(plain.table)
    assert (facts.rows, facts.partitioned_by, facts.files) == (8, "country, on", facts.slices)
    replacing = msgspec.structs.replace(plain, write=WriteMode.OVERWRITE)
    land(delta, replacing, f"{name}-3", rows[:3])
    assert stands() == expected(*rows[:3])
    for country, told in (("", "the empty text"), ("__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__")):
        with pytest.raises(TableError, match=f"{told} is a value of a column") as refused:
            land(delta, replacing, f"{name}-4", [row(1) | {"country": country}])
        assert "format: iceberg" in refused.value.remedy
    with pytest.raises(TableError, match="partitioned by country, on, and the stream by on"):
        land(delta, parted(name.name, ["on"]), f"{name}-5", rows)
    schema = pa.schema([field.with_name("land") if field.name == "country" else field for field in columns.schema])
    partitioning = (PartitionField("identity", "land"), PartitionField("identity", "on"))
    renamed = TableSpec(
        plain.table, schema, partitioning=partitioning, evolution_rules=EvolutionRules(formerly={"land": "country"})
    )
    for _ in range(2):
        location = delta.prepare(renamed).location
    found = spark.read.format("delta").load(location).where("land like '%b%' or land is null").select("land").collect()
    assert sorted((each["land"] for each in found), key=repr) == ["a/b=c", None]


@pytest.mark.nightly
def test_replaced_columns_are_every_readers_and_go_back_with_their_rows(
    spark: SparkSession, delta: DeltaTables
) -> None:
    name, by_day = table_name(), (PartitionField("identity", "day"),)
    tags, numbers = pa.list_(pa.string()), pa.list_(pa.int64())
    old = pa.schema([("id", pa.int32()), ("day", pa.string()), ("gone", tags), ("kept", tags), ("x", pa.int64())])
    new = pa.schema([("id", pa.int64()), ("kept", tags), ("x", pa.struct([("a", numbers)])), ("more", tags)])
    first = delta.prepare(TableSpec(name, old, partitioning=by_day))
    row: dict[str, Any] = {"id": 1, "day": "d", "gone": ["g"], "kept": ["k"], "x": 7}
    delta.commit("l1", _of_day(part(first, WriteMode.APPEND, [row]), "d"))

    wanted = TableSpec(name, new, partitioning=by_day, replaces=True)
    second, other = delta.prepare(wanted), delta.prepare(wanted._replace(schema=new.remove(3)))
    # What the table is partitioned by stays, and is null.
    assert second.schema.names == ["id", "day", "kept", "x", "more"]
    assert delta.prepare(wanted) == second
    assert second.schema_id != other.schema_id
    with pytest.raises(SchemaRefused, match="column day is string in the table and bigint in the stream"):
        delta.prepare(wanted._replace(schema=new.append(pa.field("day", pa.int64()))))

    def stands(version: int | None = None) -> list[tuple[Any, ...]]:
        at = "" if version is None else f" version as of {version}"
        return [tuple(each) for each in query(spark, f"select * from {first.qualified}{at} order by id").rows]

    before = [tuple(row.values())]
    was = delta.java().snapshot(first.location)
    assert (stands(), set(was.metadata.proposed_columns)) == (before, {second.schema_id, other.schema_id})
    rows: list[Any] = [{"id": 2**40, "kept": ["n"], "x": {"a": [1, 2]}, "more": []}, {"id": 2, "x": {"a": None}}]
    load = _of_day(part(second, WriteMode.OVERWRITE, rows), None)
    delta.commit(
        "l2", msgspec.structs.replace(load, branch_position=BranchPosition("b", None, True, schema_id=second.schema_id))
    )
    after: list[tuple[Any, ...]] = [(2, None, None, {"a": None}, None), (2**40, None, ["n"], {"a": [1, 2]}, [])]
    assert (stands(), stands(was.version)) == (after, before)
    assert query(spark, f"select id from {first.qualified} where x.a is not null and id > 7").rows == [[2**40]]
    assert not delta.java().snapshot(first.location).metadata.proposed_columns
    late = msgspec.structs.replace(load, branch_position=BranchPosition("c", None, True, schema_id=other.schema_id))
    with pytest.raises(TableError, match="another generation's have become its own"):
        delta.commit("l3", late)
    # Spark still writes to it, and the stream finds it as it left it.
    spark.sql(f"insert into {first.qualified} (id, day) values (3, 'spark')")
    after.insert(1, (3, "spark", None, None, None))
    assert (stands(), delta.prepare(wanted).schema_id) == (after, None)

    rewinder = rewinder_of(delta)
    newest = rewinder.past(name).current
    for version, expected in [(str(was.version), before), (newest, after), (str(was.version), before)]:
        assert rewinder.rewind(name, version, seen=rewinder.past(name), version=0)
        assert (stands(), stands(int(rewinder.past(name).current or 0))) == (expected, expected)
    again = delta.prepare(TableSpec(name, old, partitioning=by_day))
    assert (again.schema, again.fit.changes) == (first.schema, ())
    delta.commit("l4", _of_day(part(again, WriteMode.APPEND, [row | {"id": 4, "day": "e"}]), "e"))
    assert stands() == [*before, (4, "e", ["g"], ["k"], 7)]


def _of_day(part: StagedRows, day: str | None) -> StagedRows:
    files = tuple(msgspec.structs.replace(file, partition=(day,)) for file in part.files)
    return msgspec.structs.replace(part, files=files, partitioned_by=("day",))


@pytest.mark.nightly
def test_a_table_that_stands_gets_a_column_of_variants(spark: SparkSession, delta: DeltaTables) -> None:
    name = table_name()
    target = delta.prepare(TableSpec(name, pa.schema([("id", pa.int64())]), ("id",)))
    delta.commit("l1", part(target, WriteMode.APPEND, [{"id": 1}, {"id": 2}]))
    target = delta.prepare(TableSpec(name, THINGS, ("id",)))
    # The first replaces a row by a job of Spark, the second everything by reference.
    delta.commit("l2", upsert(target, WriteMode.APPEND_DEDUP, [(2, "0"), (2, '{"b":1.50,"a":[]}')]))
    assert shown(spark, target) == [[1, None, None], [2, '{"a":[],"b":1.5}', ['{"a":[],"b":1.5}']]]
    delta.commit("l3", upsert(target, WriteMode.OVERWRITE_DEDUP, [(3, "0"), (3, "[1]")]))
    assert shown(spark, target) == [[3, "[1]", ["[1]"]]]


@pytest.mark.nightly
def test_loads_that_a_restore_has_undone_are_no_witnesses(spark: SparkSession, delta: DeltaTables) -> None:
    target = delta.prepare(TableSpec(table_name(), SCHEMA))
    loads = {load_id: part(target, WriteMode.APPEND, [{"id": 1, "name": load_id}]) for load_id in ("l1", "l2", "l3")}
    for load_id, load in loads.items():
        delta.commit(load_id, msgspec.structs.replace(load, connection="shop"))
    spark.sql(f"restore table {target.qualified} to version as of 2")
    assert (found := delta.witness(target.name, "shop")) and found.newest_load == "l2"
    following = msgspec.structs.replace(part(target, WriteMode.APPEND, [{"id": 2, "name": "l4"}]), follows="l3")
    with pytest.raises(TableError, match="it no longer has load l3"):
        delta.commit("l4", following)
    assert not delta.commit("l4", msgspec.structs.replace(following, follows="l2")).was_there
    spark.sql(f"restore table {target.qualified} to version as of 0")
    assert delta.witness(target.name, "shop") == (target.table_id, None, True)


class _OvertakenSession:
    """A session in which another writer makes the table after Spark has looked whether it is there."""

    def __init__(self, session: SparkSession, target: TableTarget) -> None:
        self._session, self._target = session, target
        self.refusals: list[str] = []

    def sql(self, statement: str) -> None:
        if not statement.startswith("create table"):
            self._session.sql(statement)
            return
        spark: Any = self._session
        jvm, array, name = spark._jvm, spark.sparkContext._gateway.new_array, self._target.name
        namespace = array(jvm.java.lang.String, 1)
        namespace[0] = name.namespace
        identifier = jvm.org.apache.spark.sql.connector.catalog.Identifier.of(namespace, name.name)
        transforms = array(jvm.org.apache.spark.sql.connector.expressions.Transform, 0)
        options = {"provider": "delta", "location": self._target.location}
        catalog = spark._jsparkSession.sessionState().catalogManager().catalog("spark_catalog")
        try:
            catalog.createTable(identifier, jvm.org.apache.spark.sql.types.StructType(), transforms, options)
        except CALL_ERRORS as error:
            self.refusals.append(str(error))
            raise


def test_a_table_that_another_writer_makes_known_meanwhile_is_known(
    delta: DeltaTables, spark: SparkSession, delta_settings: SparkSettings
) -> None:
    target = delta.prepare(TableSpec(table_name(), SCHEMA))
    session = _OvertakenSession(spark, target)
    register(session, delta_settings.catalog, target.name, target.location)  # type: ignore[arg-type]  # a stand-in
    assert ["[DELTA_TABLE_ALREADY_EXISTS]" in refusal for refusal in session.refusals] == [True]


def test_a_table_whose_log_cannot_be_read_is_not_taken_for_missing(
    delta: DeltaTables, spark: SparkSession, delta_settings: SparkSettings
) -> None:
    target = delta.prepare(TableSpec(table_name(), SCHEMA))
    landed = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    delta.commit("l1", landed)
    log, away = Path(target.location) / "_delta_log", Path(target.location) / "away"
    log.rename(away)
    log.symlink_to(log.name)  # No look at it succeeds, as on a disk with errors.
    for tables in (delta, DeltaTables(spark, delta_settings)):  # The first has read the log before.
        with pytest.raises(TableError, match="_delta_log"):
            tables.witness(target.name, "shop")
        with pytest.raises(TableError, match="_delta_log"):
            tables.find_load("l1", landed)
        with pytest.raises(TableError, match="_delta_log"):
            tables.prepare(TableSpec(target.name, SCHEMA))
    log.unlink()
    away.rename(log)
    assert delta.find_load("l1", landed) is not None
    assert delta.prepare(TableSpec(target.name, SCHEMA)).table_id == target.table_id
