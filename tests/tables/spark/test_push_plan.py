"""The plans of pushes that Spark makes: which rows are new, and how they are written."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.encoding.json_types import json_schema
from dagster_airbyte_proto.encoding.record_lines import RecordFrame, record_lines
from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.plan_query import (
    CHANGE,
    HASH,
    PARTITION,
    PlannedField,
    PlannedRows,
    PlanQuery,
    PushedPartition,
)
from dagster_airbyte_proto.protocols.destination import JsonDialect
from dagster_airbyte_proto.sync.push.fold import DROPPED_LATER
from dagster_airbyte_proto.tables.changes.push_plan import SparkPlanner
from dagster_airbyte_proto.transforms.transform import DROPPED

pytestmark = pytest.mark.spark

_ROWS = """SELECT * FROM VALUES
    (1, 'a', NULL, timestamp'1500-01-01 00:00:00.000001', array(1, NULL), map('k', 1)),
    (2, NULL, 'a', NULL, array(NULL, 1), map('k', NULL)),
    (3, 'c', 'c', NULL, NULL, NULL) AS t(id, one, two, at, list, map)"""

_DELIVERED = "'delivered' AS _status, CAST(NULL AS STRING) AS _reason"


def _query(sql: str = _ROWS, **more: Any) -> PlanQuery:
    known: Mapping[str, Any] = {"table": None, "sql": sql, "fields": (), "keys": ("id",), "fingerprint": "f"}
    return PlanQuery(stream="people", **{**known, **more})


class _Plans:
    """Plans that are written below one folder, and what is delivered: the rows of the last one."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._number = spark, folder, 0
        self.counted: PlannedRows | None = None

    def write(self, query: PlanQuery) -> dict[int, dict[str, Any]]:
        """The rows to write, by id."""
        self._number += 1
        self.counted = SparkPlanner(self._spark).write(query, str(self.place))
        return {row["id"]: row for row in pq.read_table(self.place / "rows").to_pylist()}

    def removed(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(self.place / "removed").to_pylist()
        return rows

    @property
    def place(self) -> Path:
        return self._folder / str(self._number)

    def deliver(self, status: str = "delivered", reason: str | None = None) -> str:
        """Takes the rows of the last plan for delivered."""
        noted = _DELIVERED.replace("delivered", status).split(", ")
        noted[1] = noted[1] if reason is None else f"'{reason}' AS _reason"
        frame = self._spark.read.parquet(str(self.place / "rows")).selectExpr("id", HASH, *noted)
        frame.write.mode("overwrite").saveAsTable("delivered_rows")
        return "delivered_rows"


@pytest.fixture
def plans(spark: SparkSession, tmp_path: Path) -> _Plans:
    return _Plans(spark, tmp_path)


def test_every_row_is_new_where_nothing_is_delivered(plans: _Plans) -> None:
    rows = plans.write(_query())
    assert {row[CHANGE] for row in rows.values()} == {"added"}
    assert rows[1]["at"].year == 1500
    assert rows[1]["at"].microsecond == 1
    assert plans.counted == PlannedRows(3, written=3)


def test_of_rows_without_a_key_only_their_number_is_known(plans: _Plans) -> None:
    rows = plans.write(_query(keys=(), compares_keys=False))
    assert [(row[CHANGE], row[HASH]) for row in rows.values()] == [("added", 0)] * 3
    assert plans.counted == PlannedRows(3, written=3)


def test_only_what_differs_is_sent_and_null_is_a_value(plans: _Plans) -> None:
    first = plans.write(_query())
    assert len({row[HASH] for row in first.values()}) == 3
    table = plans.deliver()
    assert plans.write(_query(delivered=table)) == {}
    swapped = _ROWS.replace("(1, 'a', NULL,", "(1, NULL, 'a',").replace("array(NULL, 1)", "array(1, NULL)")
    assert {key: row[CHANGE] for key, row in plans.write(_query(swapped, delivered=table)).items()} == {
        1: "changed",
        2: "changed",
    }
    added = _ROWS.replace("(3, 'c'", "(4, 'c'")
    assert {
        key: row[CHANGE] for key, row in plans.write(_query(added, delivered=table, finds_removed=True)).items()
    } == {4: "added"}
    assert plans.removed() == [{"id": 3}]
    assert plans.counted == PlannedRows(3, 3, written=2)
    assert plans.write(_query(swapped, delivered=table, sends_changed=False)) == {}
    assert len(plans.write(_query(delivered=table, fingerprint="another"))) == 3


def test_a_rejected_row_is_sent_again_only_if_asked_for(plans: _Plans) -> None:
    plans.write(_query())
    table = plans.deliver("rejected")
    assert plans.write(_query(delivered=table)) == {}
    assert len(plans.write(_query(delivered=table, retries_rejected=True))) == 3


def test_a_rejected_row_is_sent_once_it_is_mended_and_removed_once_it_is_gone(plans: _Plans) -> None:
    plans.write(_query())
    table = plans.deliver("rejected")
    mended = _ROWS.replace("(1, 'a', NULL,", "(1, 'b', NULL,").replace("(3, 'c'", "(4, 'c'")
    rows = plans.write(_query(mended, delivered=table, sends_changed=False, finds_removed=True))
    assert {key: row[CHANGE] for key, row in rows.items()} == {1: "changed", 4: "added"}
    assert plans.removed() == [{"id": 3}]


@pytest.mark.parametrize(
    ("reason", "change", "gone"), [(DROPPED, "added", []), (DROPPED_LATER, "changed", [{"id": 3}])]
)
def test_a_row_that_a_transform_dropped_is_there_if_it_was_sent_before(
    plans: _Plans, reason: str, change: str, gone: list[dict[str, Any]]
) -> None:
    plans.write(_query())
    table = plans.deliver("rejected", reason)
    changed = _ROWS.replace("(1, 'a', NULL,", "(1, 'b', NULL,").replace("(3, 'c'", "(4, 'c'")
    rows = plans.write(_query(changed, delivered=table, finds_removed=True))
    assert {key: row[CHANGE] for key, row in rows.items()} == {1: change, 4: "added"}
    assert plans.removed() == gone
    rows = plans.write(_query(changed, delivered=table, finds_removed=True, sends_all=True, marks_known=True))
    assert {key: row[CHANGE] for key, row in rows.items()} == {1: change, 2: change, 4: "added"}
    assert plans.removed() == gone


def test_rows_that_are_gone_are_found_though_all_are_sent(plans: _Plans) -> None:
    plans.write(_query())
    fewer = f"SELECT * FROM ({_ROWS}) WHERE id < 3"
    rows = plans.write(_query(fewer, delivered=plans.deliver(), sends_all=True, finds_removed=True))
    assert {key: row[CHANGE] for key, row in rows.items()} == {1: "added", 2: "added"}
    assert plans.removed() == [{"id": 3}]


def test_fields_are_mapped(plans: _Plans) -> None:
    fields = (
        PlannedField("id", column="id"),
        PlannedField("name", sql="coalesce(one, two)"),
        PlannedField("shop", constant="north"),
    )
    rows = plans.write(_query(fields=fields))
    assert [(row["name"], row["shop"]) for row in rows.values()] == [("a", "north"), ("a", "north"), ("c", "north")]


def test_columns_of_syncs_pick_rows_and_are_fields_only_as_keys(spark: SparkSession, plans: _Plans) -> None:
    spark.sql("""CREATE TABLE lake.added_by_syncs.people USING iceberg AS SELECT id, '{}' AS _airbyte_data,
        uuid() AS _airbyte_raw_id, timestamp_seconds(id) AS _airbyte_extracted_at, 5L AS _airbyte_generation_id,
        cast(id % 2 AS string) AS _airbyte_partition FROM range(4)""")
    query = _query()._replace(sql=None, table="lake.added_by_syncs.people")
    assert plans.write(query._replace(partition=PushedPartition("1", "_airbyte_partition"))).keys() == {1, 3}
    by_time = query._replace(cursor="_airbyte_extracted_at", after="1970-01-01 00:00:01+00:00")
    rows = plans.write(by_time)
    assert rows.keys() == {2, 3}
    assert rows[2].keys() == {"id", "_airbyte_data", HASH, CHANGE}
    by_raw_id = query._replace(keys=("_airbyte_raw_id", "_airbyte_partition"))
    names = ["id", "_airbyte_data", "_airbyte_raw_id", "_airbyte_partition"]
    assert SparkPlanner(spark).fields(by_raw_id).names == names
    assert SparkPlanner(spark).fields(query._replace(sql="SELECT 1 AS _airbyte_raw_id, 2 AS id", table=None)).names == [
        "_airbyte_raw_id",
        "id",
    ]


def test_a_cursor_sends_what_is_greater(plans: _Plans) -> None:
    assert len(plans.write(_query(cursor="id", keys=()))) == 3
    assert plans.counted is not None
    assert plans.counted.cursor == "3"
    assert plans.write(_query(cursor="id", keys=(), after="2")).keys() == {3}


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        (
            "SELECT * FROM VALUES (1, 'a'), (1, 'b'), (2, 'c') AS t(id, x)",
            "share their key (id) with others, for example",
        ),
        ("SELECT * FROM VALUES (1, 'a'), (NULL, 'b') AS t(id, x)", "1 of 2 rows have no id"),
    ],
)
def test_keys_that_do_not_tell_rows_apart(plans: _Plans, sql: str, found: str) -> None:
    with pytest.raises(TableError) as first:
        plans.write(_query(sql))
    assert found in first.value.found
    plans.write(_query("SELECT 1 AS id, 'a' AS x"))
    with pytest.raises(TableError) as error:
        plans.write(_query(sql, delivered=plans.deliver()))
    assert found in error.value.found


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"sql": "SELECT nothing FROM nowhere"}, "nowhere"),
        ({"fields": (PlannedField("id", column="id"), PlannedField("no", column="number"))}, "field no: .*number"),
        ({"fields": (PlannedField("id", column="id"), PlannedField("no", sql="one ||"))}, "field no: .*end of input"),
        ({"keys": ("number",)}, "key number is no field"),
        ({"partition": PushedPartition("x", "day")}, "it has no column day, by which a partition is picked"),
        ({"cursor": "day", "after": "x"}, "it has no column day, which is the `cursor`"),
        ({"sql": "SELECT 1 AS id, interval '1' day AS span"}, "which JSON has not"),
        ({"sql": None, "table": "lake.shop.nothing"}, "lake.shop.nothing"),
    ],
)
def test_a_mapping_that_names_nothing(spark: SparkSession, changed: Mapping[str, Any], found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        SparkPlanner(spark).fields(_query()._replace(**changed))


def test_a_table_that_is_not_there_is_answered_with_the_nearest_one(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    spark.sql("CREATE TABLE lake.looked_for.users (id BIGINT) USING iceberg")
    remedies = {
        "lake.looked_for.usrs": "Did you mean lake.looked_for.users?",
        "lake.looked_for.orders": "lake.looked_for has users.",
        "lake.nowhere.users": "Correct its name (catalog.namespace.table), or make it first. Is --home right?",
    }
    for table, remedy in remedies.items():
        with pytest.raises(ConfigError) as error:
            SparkPlanner(spark).fields(_query()._replace(sql=None, table=table))
        assert (error.value.found, error.value.remedy) == ("there is no such table", remedy)
    assert "QueryContextLogger" not in capfd.readouterr().err


def test_a_plan_leaves_the_settings_of_the_session_alone(spark: SparkSession, plans: _Plans) -> None:
    """Other threads may write with it meanwhile. What it knows, views among it, the plan knows too."""
    of_files = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(of_files, "INT96")
    try:
        spark.range(3).createOrReplaceTempView("rows_of_a_view")
        rows = plans.write(_query("SELECT id, timestamp'1500-01-01 00:00:00' AS at FROM rows_of_a_view"))
        assert rows[2]["at"].year == 1500
        assert spark.conf.get(of_files) == "INT96"
    finally:
        spark.conf.unset(of_files)


def test_a_partition_is_compared_with_what_was_delivered_in_it(plans: _Plans, spark: SparkSession) -> None:
    rows = "SELECT id, name, day FROM VALUES (1, 'a', date'2026-11-01'), (2, 'b', date'2026-11-01'),"
    spark.sql(f"{rows} (3, 'c', date'2026-11-02') AS t(id, name, day)").createOrReplaceTempView("days")
    monday = _query(sql="SELECT * FROM days")._replace(
        partition=PushedPartition("2026-11-01", "day"), finds_removed=True
    )
    assert plans.write(monday).keys() == {1, 2}
    hashed = spark.read.parquet(str(plans.place / "rows"))
    delivered = hashed.selectExpr("id", HASH, *_DELIVERED.split(", "), f"'2026-11-01' AS {PARTITION}")
    elsewhere = f"SELECT {{id}} AS id, 0L AS {{hash}}, {_DELIVERED}, '{{day}}' AS {{partition}}"
    for number, day in ((3, "2026-11-02"), (4, "2026-11-01"), (5, "2026-11-02")):
        row = elsewhere.format(id=number, hash=HASH, day=day, partition=PARTITION)
        delivered = delivered.unionByName(spark.sql(row))
    delivered.write.mode("overwrite").saveAsTable("delivered_days")
    assert plans.write(monday._replace(delivered="delivered_days")) == {}
    assert plans.removed() == [{"id": 4}]
    assert plans.counted == PlannedRows(2, 3, written=1)
    tuesday = monday._replace(partition=PushedPartition("2026-11-02", "day"), delivered="delivered_days")
    assert plans.write(tuesday).keys() == {3}
    assert plans.removed() == [{"id": 5}]


@pytest.mark.parametrize("kind", ["array", "map", "struct"])
def test_a_variant_within_another_type_is_refused_with_its_remedy(spark: SparkSession, kind: str) -> None:
    nested = {
        "array": "array(parse_json('1'))",
        "map": "map('a', parse_json('1'))",
        "struct": "struct(parse_json('1'))",
    }
    planner = SparkPlanner(spark)
    with pytest.raises(ConfigError, match=rf"field v has a VARIANT within its {kind}\n.*to_json\(v\)"):
        planner.fields(_query(f"SELECT 1 AS id, {nested[kind]} AS v"))
    assert planner.fields(_query(f"SELECT 1 AS id, to_json({nested[kind]}) AS v")).field("v").type == pa.string()


def test_a_variant_is_the_json_that_it_is(spark: SparkSession, plans: _Plans) -> None:
    query = _query("""SELECT 1 AS id, parse_json('{"a": [1, null, "b\\\\"c"]}') AS v UNION ALL SELECT 2, NULL""")
    fields = SparkPlanner(spark).fields(query)
    assert fields.field("v").type == pa.json_(pa.string())
    assert json_schema(fields, JsonDialect.AIRBYTE)["properties"]["v"]["type"][:2] == ["null", "object"]
    rows = plans.write(query)
    assert json.loads(rows[1]["v"]) == {"a": [1, None, 'b"c']}
    table = plans.deliver()
    assert plans.write(query._replace(delivered=table)) == {}
    texts = pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array([rows[1]["v"], rows[2]["v"]]))
    lines = bytes(record_lines(pa.record_batch({"v": texts}), RecordFrame("", ""))).splitlines()
    assert [json.loads(line) for line in lines] == [{"v": {"a": [1, None, 'b"c']}}, {"v": None}]


def test_nan_is_no_value_of_a_cursor(plans: _Plans) -> None:
    sql = "SELECT * FROM VALUES (1, 1.5D), (2, double('NaN')), (3, 3.5D), (4, NULL) AS t(id, at)"
    assert len(plans.write(_query(sql, cursor="at", keys=()))) == 4
    assert plans.counted is not None
    assert plans.counted.cursor == "3.5"
    assert plans.write(_query(sql, cursor="at", keys=(), after="2.5")).keys() == {3}


def test_a_cursor_of_bytes_that_are_no_text_skips_no_row(plans: _Plans) -> None:
    first = "SELECT 1 AS id, X'0780' AS at"
    assert len(plans.write(_query(first, cursor="at", keys=()))) == 1
    assert plans.counted is not None
    assert plans.counted.cursor == "0x0780"
    sql = f"{first} UNION ALL SELECT 2, X'0781' UNION ALL SELECT 3, X'07FE'"
    assert plans.write(_query(sql, cursor="at", keys=(), after="0x0780")).keys() == {2, 3}
    assert plans.counted.cursor == "0x07FE"
    assert plans.write(_query(sql, cursor="at", keys=(), after="0x07FE")) == {}


def test_a_cursor_that_is_a_time_is_the_same_in_each_zone(plans: _Plans, spark: SparkSession) -> None:
    """Both rows are of the hour that comes twice in Berlin: the first before the clock is set back, the other after."""
    sql = """SELECT * FROM VALUES
        (1, timestamp'2026-10-25 00:50:00.000001Z'), (2, timestamp'2026-10-25 01:10:00.000002Z') AS t(id, at)"""
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    try:
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        assert len(plans.write(_query(sql, cursor="at", keys=()))) == 2
        assert plans.counted is not None
        reached = plans.counted.cursor
        assert plans.write(_query(sql, cursor="at", keys=(), after=reached)) == {}
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        assert plans.write(_query(sql, cursor="at", keys=(), after=reached)) == {}
        assert plans.write(_query(sql, cursor="at", keys=(), after="2026-10-25 01:00:00Z")).keys() == {2}
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_fields_that_the_table_got_since_its_snapshot_are_read(spark: SparkSession, plans: _Plans) -> None:
    name = "lake.changed_since.people"
    spark.sql(f"""CREATE TABLE {name} USING iceberg AS
        SELECT id, cast(id AS int) AS points, struct('Rome' AS city) AS home FROM range(2)""")
    at = SparkPlanner(spark).snapshot(name)
    spark.sql(f"ALTER TABLE {name} ADD COLUMN home.zip string")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN points TYPE bigint")
    assert SparkPlanner(spark).snapshot(name) == at
    fields = (PlannedField("id", "id"), PlannedField("zip", "home.zip"), PlannedField("all", "home"))
    query = _query()._replace(sql=None, table=name, at=at)
    rows = plans.write(query._replace(fields=fields))
    assert {key: (row["zip"], row["all"]) for key, row in rows.items()} == dict.fromkeys(
        range(2), (None, {"city": "Rome", "zip": None})
    )
    hashes = {key: row[HASH] for key, row in plans.write(query).items()}
    assert {key: row[HASH] for key, row in plans.write(query._replace(at=None)).items()} == hashes
