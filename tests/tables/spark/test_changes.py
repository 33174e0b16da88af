"""Plans by the snapshots of a table are those that a comparison of all rows makes, whatever happened to the table."""

import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.plan_query import PlannedField, PlannedRows, PlanQuery
from dagster_airbyte_proto.loads.push import TableSnapshot
from dagster_airbyte_proto.tables.changes.push_plan import SparkPlanner

pytestmark = pytest.mark.spark
Row = dict[str, Any]


class _Origin:
    """A table in one of the session's catalogs, and what of it is delivered."""

    def __init__(self, spark: SparkSession, folder: Path, table: str, more: str) -> None:
        self.spark, self._folder, self.table, self._number = spark, folder, table, 0
        self.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rpartition('.')[0]}")
        self.create = f"CREATE TABLE {table} (id bigint, name string, score double) {more}"
        self.sql(self.create)
        self.delivered = f"spark_catalog.default.delivered_{uuid.uuid4().hex[:8]}"
        self.planner = SparkPlanner(spark)
        self.counted = PlannedRows(0)
        self.since: TableSnapshot | None = None

    def sql(self, sql: str) -> None:
        self.spark.sql(sql)

    @property
    def snapshot(self) -> TableSnapshot:
        found = self.planner.snapshot(self.table)
        assert found is not None
        return found

    def deliver(self) -> None:
        """Takes all rows of the table for delivered."""
        self._plan(self.query._replace(delivered=None, finds_removed=False))
        frame = self.spark.read.parquet(f"{self._place}/rows").selectExpr(
            "id", "_hash", "'delivered' AS _status", "CAST(NULL AS STRING) AS _reason"
        )
        frame.write.mode("overwrite").format("parquet").saveAsTable(self.delivered)
        self.since = self.snapshot

    @property
    def query(self) -> PlanQuery:
        fields = (PlannedField("id", column="id"), PlannedField("label", sql="concat(name, ':', score)"))
        return PlanQuery("people", self.table, None, fields, ("id",), "f", self.delivered, finds_removed=True)

    def changes(self, *, looks_at: int | None = None) -> tuple[dict[int, Row], set[int]]:
        """The rows to write, and the keys to remove: found by the snapshots, and the same by a comparison of all."""
        at = self.snapshot
        found = self._plan(self.query._replace(at=at, since=self.since))
        assert not self.counted.has_compared_all, self.counted.note
        if looks_at is not None:
            assert self.counted.rows == looks_at
        assert found == self._plan(self.query._replace(at=at))
        return found

    def written(self, **changed: Any) -> dict[int, Row]:
        """The rows to write, found by the snapshots, with another query."""
        return self._plan(self.query._replace(at=self.snapshot, since=self.since, **changed))[0]

    def note(self) -> str:
        """Why all rows were compared."""
        at = self.snapshot
        found = self._plan(self.query._replace(at=at, since=self.since))
        assert self.counted.has_compared_all
        note = self.counted.note
        assert found == self._plan(self.query._replace(at=at))
        return note or ""

    @property
    def _place(self) -> Path:
        return self._folder / str(self._number)

    def _plan(self, query: PlanQuery) -> tuple[dict[int, Row], set[int]]:
        self._number += 1
        self.counted = self.planner.write(query, str(self._place))
        rows = pq.read_table(self._place / "rows").to_pylist() if (self._place / "rows").exists() else []
        removed = pq.read_table(self._place / "removed").to_pylist() if (self._place / "removed").exists() else []
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row for row in rows}, {row["id"] for row in removed}


_ON_READ = (
    "'write.update.mode'='merge-on-read', 'write.delete.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"
)
_ICEBERG = {
    "on read": f"USING iceberg TBLPROPERTIES ('format-version'='2', {_ON_READ})",
    "vectors": f"USING iceberg TBLPROPERTIES ('format-version'='3', {_ON_READ})",
    "copies": "USING iceberg TBLPROPERTIES ('format-version'='2')",
    "partitioned": f"USING iceberg PARTITIONED BY (bucket(2, id)) TBLPROPERTIES ('format-version'='2', {_ON_READ})",
}
_DELTA = "USING delta TBLPROPERTIES ('delta.enableChangeDataFeed'='true', 'delta.enableDeletionVectors'='true')"


@pytest.fixture(params=[*_ICEBERG, "delta"])
def origin(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[_Origin]:
    name, kind = f"changes_{uuid.uuid4().hex[:8]}", request.param
    table = f"spark_catalog.default.{name}" if kind == "delta" else f"lake.changes.{name}"
    made = _Origin(spark, tmp_path, table, _ICEBERG.get(kind, _DELTA))
    yield made
    spark.sql(f"DROP TABLE IF EXISTS {table}")


def _steps(origin: _Origin) -> Mapping[str, Callable[[random.Random], None]]:
    """What may happen to a table, none of it through us."""
    table, is_delta = origin.table, "spark_catalog" in origin.table
    cached = iter(range(1000, 100_000, 10))

    def insert(_: random.Random) -> None:
        first = next(cached)
        origin.sql(f"INSERT INTO {table} SELECT id, concat('new ', id), 1 FROM range({first}, {first + 4})")

    def update(dice: random.Random) -> None:
        origin.sql(f"UPDATE {table} SET name = 'name {dice.random()}' WHERE id % 7 = {dice.randrange(7)}")

    def delete(dice: random.Random) -> None:
        origin.sql(f"DELETE FROM {table} WHERE id % 11 = {dice.randrange(11)}")

    def merge(dice: random.Random) -> None:
        first = dice.randrange(40)
        source = f"(SELECT id, concat('merged ', id) AS name, 2D AS score FROM range({first}, {first + 5}))"
        origin.sql(
            f"MERGE INTO {table} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED"
            " THEN INSERT *"
        )

    def compact(_: random.Random) -> None:
        options = "options => map('rewrite-all', 'true')"
        name = table.partition(".")[2]
        origin.sql(
            f"OPTIMIZE {table}" if is_delta else f"CALL lake.system.rewrite_data_files(table => '{name}', {options})"
        )

    def overwrite(_: random.Random) -> None:
        origin.sql(f"INSERT OVERWRITE {table} SELECT id, concat('name ', id), 0.5 FROM range(0, 30)")

    return {each.__name__: each for each in (insert, update, delete, merge, compact, overwrite)}


def _filled(origin: _Origin, rows: int = 40) -> None:
    origin.sql(
        f"INSERT INTO {origin.table} SELECT /*+ REPARTITION(2) */ id, concat('name ', id), 0.5 FROM range({rows})"
    )
    origin.deliver()


@pytest.mark.everyday("on read")
def test_any_changes_are_found_as_a_comparison_of_all_rows_finds_them(origin: _Origin) -> None:
    _filled(origin)
    assert origin.changes() == ({}, set())
    dice = random.Random(7)
    steps = _steps(origin)
    for names in ("insert update", "delete merge compact", "update", "compact insert", "overwrite delete"):
        for name in names.split():
            steps[name](dice)
        found = origin.changes()
        if names == "compact insert":
            origin.deliver()
        elif names == "update":
            # Also where rows that are gone are not looked for: one that came and went is not sent.
            assert origin.written(finds_removed=False) == found[0]


@pytest.mark.everyday("on read")
def test_only_what_is_new_is_looked_at(origin: _Origin) -> None:
    _filled(origin)
    steps, dice = _steps(origin), random.Random(1)
    steps["insert"](dice)
    steps["insert"](dice)
    rows, removed = origin.changes(looks_at=8)
    assert (len(rows), removed) == (8, set())
    steps["compact"](dice)
    assert origin.changes(looks_at=8) == (rows, removed)
    origin.deliver()
    steps["compact"](dice)
    assert origin.changes(looks_at=0) == ({}, set())


@pytest.mark.parametrize("kind", ["on read", "vectors"])
@pytest.mark.everyday("on read")
def test_of_a_file_that_lost_rows_only_these_are_looked_at(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Each round of deletes takes the one before into its own file: that gives no row back."""
    origin = _Origin(spark, tmp_path, f"lake.changes.trimmed_{uuid.uuid4().hex[:8]}", _ICEBERG[kind])
    _filled(origin)
    for number in range(3):
        origin.sql(f"UPDATE {origin.table} SET name = 'new' WHERE id % 10 = {number}")
        origin.sql(f"DELETE FROM {origin.table} WHERE id % 10 = {number + 5}")
        rows, removed = origin.changes(looks_at=4)
        assert rows.keys() == set(range(number, 40, 10))
        assert removed == set(range(number + 5, 40, 10))
        origin.deliver()
    spark.sql(f"DROP TABLE {origin.table}")


@pytest.mark.everyday("copies")
def test_a_table_that_went_back_sends_what_it_was(origin: _Origin) -> None:
    _filled(origin)
    before = origin.snapshot.snapshot_id
    steps, dice = _steps(origin), random.Random(2)
    steps["update"](dice)
    steps["insert"](dice)
    origin.deliver()
    if "spark_catalog" in origin.table:
        origin.sql(f"RESTORE TABLE {origin.table} TO VERSION AS OF {before}")
    else:
        name = origin.table.partition(".")[2]
        origin.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {before})")
    rows, removed = origin.changes()
    assert {row["label"] for row in rows.values()} == {f"name {number}:0.5" for number in rows}
    assert rows
    assert len(removed) == 4
    origin.deliver()
    assert origin.changes() == ({}, set())


@pytest.mark.everyday("copies")
def test_another_table_of_the_same_name_is_compared_whole(origin: _Origin) -> None:
    _filled(origin)
    origin.sql(f"DROP TABLE {origin.table}")
    origin.sql(origin.create)
    origin.sql(f"INSERT INTO {origin.table} SELECT id, concat('name ', id), 0.5 FROM range(3)")
    assert "another table" in origin.note()


@pytest.mark.everyday("partitioned")
def test_other_columns_compare_all_rows(origin: _Origin) -> None:
    _filled(origin)
    origin.sql(f"ALTER TABLE {origin.table} ADD COLUMN more string")
    origin.sql(f"INSERT INTO {origin.table} VALUES (5000, 'x', 1, 'y')")
    if "spark_catalog" in origin.table:  # The feed takes a column more, and so may we: it is not mapped.
        assert len(origin.changes()[0]) == 1
    else:
        assert "columns have changed" in origin.note()


@pytest.mark.everyday("on read")
def test_keys_that_new_rows_share_are_refused(origin: _Origin) -> None:
    _filled(origin)
    origin.sql(f"INSERT INTO {origin.table} VALUES (5000, 'x', 1), (5000, 'y', 1)")
    with pytest.raises(Exception, match="share their key"):
        origin.changes()


def test_a_snapshot_that_has_expired_compares_all_rows_and_a_tagged_one_does_not_expire(
    spark: SparkSession, tmp_path: Path
) -> None:
    name = f"changes.tagged_{uuid.uuid4().hex[:8]}"
    origin = _Origin(spark, tmp_path, f"lake.{name}", _ICEBERG["on read"])
    _filled(origin)
    steps, dice = _steps(origin), random.Random(3)
    expire = f"CALL lake.system.expire_snapshots('{name}', TIMESTAMP '2099-01-01', 1)"
    assert origin.since is not None
    origin.planner.keep_snapshot("airbyte-proto-push-crm-contacts", origin.since)
    for each in ("update", "compact", "delete"):
        steps[each](dice)
    origin.sql(expire)
    rows, removed = origin.changes()
    assert rows
    assert removed
    origin.planner.keep_snapshot("airbyte-proto-push-crm-contacts", origin.snapshot)
    origin.sql(expire)
    assert "has expired" in origin.note()
    spark.sql(f"DROP TABLE {origin.table}")


@pytest.mark.nightly
def test_a_feed_that_is_off_or_gone_compares_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    origin = _Origin(spark, tmp_path, f"spark_catalog.default.feed_{uuid.uuid4().hex[:8]}", "USING delta")
    _filled(origin)
    steps, dice = _steps(origin), random.Random(3)
    steps["compact"](dice)
    assert origin.changes(looks_at=0) == ({}, set())
    steps["update"](dice)
    assert "feed is off" in origin.note()
    origin.sql(f"ALTER TABLE {origin.table} SET TBLPROPERTIES ('delta.enableChangeDataFeed'='true')")
    steps["update"](dice)
    assert origin.note()
    origin.deliver()
    steps["update"](dice)
    assert origin.changes()[0]
    spark.sql(f"DROP TABLE {origin.table}")


def test_a_view_has_no_snapshot(spark: SparkSession) -> None:
    spark.range(3).createOrReplaceTempView("some_rows")
    assert SparkPlanner(spark).snapshot("some_rows") is None
