"""Assets in real runs, with real Spark. Each test has a namespace of its own in the session's one warehouse."""

import datetime
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dagster_airbyte_proto import points
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.definition import ConnectionDefinition
from dagster_airbyte_proto.dagster_defs.tables.io_manager import (
    PARTITION_COLUMN,
    TABLE_NAME,
    WRITE,
    SparkTableIOManager,
)
from dagster_airbyte_proto.dagster_defs.tables.spark_resource import SparkSessionResource
from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, TableSpec, TableTarget
from dagster_airbyte_proto.model import StreamId, TableName, WriteMode
from dagster_airbyte_proto.sync.delivery import Delivered
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus
from dagster_airbyte_proto.tables.spark.session import SparkSettings, query
from tests.conformance.table_writer import SCHEMA, part

pytestmark = pytest.mark.spark

DAYS = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02", "2026-01-03"])


@pytest.fixture
def io(spark: SparkSession, spark_settings: SparkSettings) -> SparkTableIOManager:
    """Through a resource of ours, on the session that the tests have already."""
    resource = SparkSessionResource(warehouse=spark_settings.warehouse, config=dict(spark_settings.config))
    return SparkTableIOManager(spark=resource)


@pytest.fixture
def place() -> str:
    return f"n{uuid.uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    points.arm(None)


Rows = Callable[[str], list[Any]]


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    """All rows of a table, sorted."""

    def read(table: str) -> list[Any]:
        spark.catalog.refreshTable(table)
        return sorted(tuple(row) for row in spark.table(table).collect())

    return read


def run(
    io: dg.ConfigurableIOManager,
    *assets: dg.AssetsDefinition | dg.AssetSpec,
    partition: str | None = None,
    **options: Any,
) -> dg.ExecuteInProcessResult:
    """One run of all the assets, or of a selection."""
    instance = dg.DagsterInstance.ephemeral()
    return dg.materialize(assets, resources={"io_manager": io}, partition_key=partition, instance=instance, **options)


def told(result: dg.ExecuteInProcessResult, key: Sequence[str]) -> dict[str, Any]:
    [event] = result.asset_materializations_for_node("__".join(key))
    return {name: value.value for name, value in event.metadata.items()}


def returning(key: Sequence[str], value: Callable[[], Any], **options: Any) -> dg.AssetsDefinition:
    def made() -> Any:
        return value()

    asset: dg.AssetsDefinition = dg.asset(key=list(key), **options)(made)
    return asset


FRAMES: dict[str, Callable[[SparkSession], Any]] = {
    "spark": lambda spark: spark.createDataFrame([(1, "a"), (2, "b")], "id bigint, name string"),
    "pandas": lambda _: pd.DataFrame({"id": [1, 2], "name": ["a", "b"]}),
    "pyarrow": lambda _: pa.table({"id": [1, 2], "name": ["a", "b"]}),
    "polars": lambda _: pl.DataFrame({"id": [1, 2], "name": ["a", "b"]}),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_makes_a_table_and_its_event_tells_of_it(
    spark: SparkSession, spark_settings: SparkSettings, io: SparkTableIOManager, place: str, rows: Rows, kind: str
) -> None:
    result = run(io, returning([place, "people"], lambda: FRAMES[kind](spark)))
    assert rows(f"lake.{place}.people") == [(1, "a"), (2, "b")]
    metadata = told(result, [place, "people"])
    [[snapshot_id, summary]] = query(spark, f"select snapshot_id, summary from lake.{place}.people.snapshots").rows
    assert metadata[TABLE_NAME] == f"lake.{place}.people"
    assert metadata["dagster/uri"] == (Path(spark_settings.warehouse) / place / "people").as_uri()
    assert metadata["dagster/row_count"] == 2
    assert [(column.name, column.type) for column in metadata["dagster/column_schema"].columns] == [
        ("id", "bigint"),
        ("name", "string"),
    ]
    assert metadata["airbyte_proto/snapshot_id"] == str(snapshot_id)
    assert summary["airbyte-proto.run-id"] == result.run_id
    assert summary["airbyte-proto.asset"] == f"{place}/people"


def _as_rows(frame: Any) -> list[tuple[Any, ...]]:
    if isinstance(frame, DataFrame):
        return [tuple(row) for row in frame.collect()]
    if isinstance(frame, pd.DataFrame):
        return list(frame.itertuples(index=False, name=None))
    return [tuple(row.values()) for row in (frame.to_pylist() if isinstance(frame, pa.Table) else frame.to_dicts())]


@pytest.mark.parametrize("annotation", [DataFrame, pd.DataFrame, pa.Table, pl.DataFrame])
def test_an_input_comes_as_its_annotation_says(
    spark: SparkSession, io: SparkTableIOManager, place: str, annotation: Any
) -> None:
    seen: list[Any] = []

    @dg.asset(key=[place, "reader"], ins={"people": dg.AssetIn([place, "people"], metadata={"columns": ["NAME"]})})
    def reader(people: annotation) -> None:
        assert isinstance(people, annotation)
        seen.extend(_as_rows(people))

    run(io, returning([place, "people"], lambda: FRAMES["spark"](spark)), reader)
    assert sorted(seen) == [("a",), ("b",)]


def test_an_input_without_an_annotation_is_sparks(spark: SparkSession, io: SparkTableIOManager, place: str) -> None:
    seen: list[Any] = []

    @dg.asset(key=[place, "reader"], ins={"people": dg.AssetIn([place, "people"])})
    def reader(people) -> None:  # type: ignore[no-untyped-def]  # as a user may leave it
        seen.append(people)

    run(io, returning([place, "people"], lambda: FRAMES["spark"](spark)), reader)
    assert isinstance(seen[0], DataFrame)


def test_overwriting_takes_all_rows_out_and_appending_none(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    number = iter(range(9))
    frame = lambda: spark.createDataFrame([(next(number),)], "id bigint")  # noqa: E731
    for write in ("overwrite", "overwrite", "append"):
        result = run(io, returning([place, "t"], frame, metadata={WRITE: write}))
    assert rows(f"lake.{place}.t") == [(1,), (2,)]
    assert told(result, [place, "t"])["dagster/row_count"] == 2
    run(io, returning([place, "t"], lambda: spark.createDataFrame([], "id bigint")))
    assert rows(f"lake.{place}.t") == []


def test_an_append_that_is_tried_again_in_its_run_is_made_once(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    attempts: list[int] = []

    class Stumbling(SparkTableIOManager):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            super().handle_output(context, obj)
            attempts.append(1)
            if len(attempts) == 1:
                raise ConnectionError("the event log is away for a moment")

    asset = returning(
        [place, "t"],
        lambda: spark.createDataFrame([(1,)], "id bigint"),
        metadata={WRITE: "append"},
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    run(Stumbling(spark=io.spark), asset)
    assert len(attempts) == 2
    assert rows(f"lake.{place}.t") == [(1,)]


def test_a_frame_with_other_columns_widens_the_table(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    run(io, returning([place, "t"], lambda: spark.createDataFrame([(1, "a")], "id int, name string")))
    wider = spark.createDataFrame([("x", 2**40)], "email string, ID bigint")
    run(io, returning([place, "t"], lambda: wider, metadata={WRITE: "append"}))
    assert rows(f"lake.{place}.t") == [(1, "a", None), (2**40, None, "x")]


def test_a_column_of_nulls_alone_waits_for_its_type(
    io: SparkTableIOManager, place: str, spark: SparkSession, rows: Rows
) -> None:
    frames = iter([pd.DataFrame({"id": [1], "name": [None]}), pd.DataFrame({"id": [2], "name": ["b"]})])
    asset = returning([place, "t"], lambda: next(frames), metadata={WRITE: "append"})
    for _ in range(2):
        run(io, asset)
    assert [row[0] for row in rows(f"lake.{place}.t")] == [1, 2]
    nothing = pd.DataFrame({"id": pd.Series([], dtype="object"), "name": pd.Series([], dtype="object")})
    run(io, returning([place, "t"], lambda: nothing))
    assert rows(f"lake.{place}.t") == []


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (pa.table([[1], [2]], names=["a", "A"]), "differ by case at most: a"),
        (pl.DataFrame({"t": [datetime.timedelta(1)]}), "interval"),
    ],
)
def test_a_frame_that_no_table_can_take_is_a_config_error(
    io: SparkTableIOManager, place: str, frame: Any, found: str
) -> None:
    with pytest.raises(ConfigError, match=found):
        run(io, returning([place, "t"], lambda: frame))


def test_a_frame_whose_column_has_another_type_is_refused(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    run(io, returning([place, "t"], lambda: spark.createDataFrame([(1,)], "id bigint")))
    with pytest.raises(TableError, match="id is bigint in the table and string"):
        run(io, returning([place, "t"], lambda: spark.createDataFrame([("a",)], "id string")))
    assert rows(f"lake.{place}.t") == [(1,)]


def _day(spark: SparkSession, place: str, counts: dict[str, int]) -> dg.AssetsDefinition:
    @dg.asset(key=[place, "t"], partitions_def=DAYS)
    def days(context: dg.AssetExecutionContext) -> DataFrame:
        ids = [(i,) for i in range(counts[context.partition_key])]
        return spark.createDataFrame(ids, "id bigint")

    return days


def test_a_run_replaces_its_partition_alone_also_by_nothing(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    first, second = "2026-01-01", "2026-01-02"
    for day in (first, second):
        run(io, _day(spark, place, {day: 2}), partition=day)
    result = run(io, _day(spark, place, {first: 1}), partition=first)
    assert rows(f"lake.{place}.t") == [(0, first), (0, second), (1, second)]
    metadata = told(result, [place, "t"])
    assert (metadata["dagster/row_count"], metadata["dagster/partition_row_count"]) == (3, 1)
    run(io, _day(spark, place, {second: 0}), partition=second)
    assert rows(f"lake.{place}.t") == [(0, first)]


def _range(place: str, frame: DataFrame) -> dg.AssetsDefinition:
    options: dict[str, Any] = {"partitions_def": DAYS, "backfill_policy": dg.BackfillPolicy.single_run()}
    return returning([place, "t"], lambda: frame, **options)


_RANGE = {"dagster/asset_partition_range_start": "2026-01-01", "dagster/asset_partition_range_end": "2026-01-02"}


def test_a_range_in_one_run_replaces_its_partitions(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    for day in DAYS.get_partition_keys():
        run(io, _day(spark, place, {day: 1}), partition=day)
    frame = spark.createDataFrame([(7, "2026-01-02")], f"id bigint, {SLICE_COLUMN} string")
    run(io, _range(place, frame), tags=_RANGE)
    assert rows(f"lake.{place}.t") == [(0, "2026-01-03"), (7, "2026-01-02")]


def test_a_range_without_the_column_is_refused(spark: SparkSession, io: SparkTableIOManager, place: str) -> None:
    with pytest.raises(ConfigError, match=f"2 partitions and has no column {SLICE_COLUMN}"):
        run(io, _range(place, spark.range(1)), tags=_RANGE)


def test_a_row_of_a_partition_that_is_not_the_runs_is_refused(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    run(io, _day(spark, place, {"2026-01-03": 1}), partition="2026-01-03")
    frame = spark.createDataFrame([(7, "2026-01-03")], f"id bigint, {SLICE_COLUMN} string")
    with pytest.raises(Exception, match="another partition"):
        run(io, _range(place, frame), tags=_RANGE)
    assert rows(f"lake.{place}.t") == [(0, "2026-01-03")]


def test_a_partition_column_of_the_users_own_may_be_a_date(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    counts = iter((2, 1))

    def frame() -> DataFrame:
        return spark.range(next(counts)).withColumn("day", f.lit("2026-01-02").cast("date"))

    asset = returning([place, "t"], frame, partitions_def=DAYS, metadata={PARTITION_COLUMN: "day"})
    for _ in range(2):
        run(io, asset, partition="2026-01-02")
    assert [row[0] for row in rows(f"lake.{place}.t")] == [0]


def test_only_the_wanted_partitions_and_columns_are_read(
    spark: SparkSession, io: SparkTableIOManager, place: str
) -> None:
    days = _day(spark, place, dict.fromkeys(DAYS.get_partition_keys(), 1))
    for day in DAYS.get_partition_keys():
        run(io, days, partition=day)
    plans: list[str] = []

    @dg.asset(
        key=[place, "reader"],
        partitions_def=DAYS,
        ins={
            "days": dg.AssetIn(
                [place, "t"],
                partition_mapping=dg.StaticPartitionMapping({"2026-01-01": "2026-01-03", "2026-01-02": "2026-01-03"}),
                metadata={"columns": ["id"]},
            )
        },
    )
    def reader(days: DataFrame) -> None:
        assert (days.count(), days.columns) == (2, ["id"])
        plans.append(str(days._jdf.queryExecution().executedPlan().toString()))

    run(io, days, reader, selection=[reader], partition="2026-01-03")
    assert "_airbyte_partition IN ('2026-01-01', '2026-01-02')" in plans[0]


def test_a_table_is_read_as_it_stood_at_a_materialization(
    spark: SparkSession, io: SparkTableIOManager, place: str
) -> None:
    number = iter(range(2))
    asset = returning([place, "t"], lambda: spark.createDataFrame([(next(number),)], "id bigint"))
    first = told(run(io, asset), [place, "t"])["airbyte_proto/snapshot_id"]
    run(io, asset)
    seen: list[Any] = []

    @dg.asset(key=[place, "reader"], ins={"then": dg.AssetIn([place, "t"], metadata={"snapshot_id": first})})
    def reader(then: pa.Table) -> None:
        seen.extend(then["id"].to_pylist())

    run(io, asset, reader, selection=[reader])
    assert seen == [0]


def _reader(place: str, **wanted: Any) -> dg.AssetsDefinition:
    @dg.asset(key=[place, "reader"], ins={"t": dg.AssetIn([place, "t"], metadata=wanted)})
    def reader(t: DataFrame) -> None: ...

    return reader


def test_a_table_that_is_not_there_is_a_config_error(io: SparkTableIOManager, place: str) -> None:
    with pytest.raises(ConfigError, match=f"lake.{place}.t: there is no such table"):
        run(io, dg.AssetSpec([place, "t"]), _reader(place))


def test_a_column_that_is_not_there_is_a_config_error(spark: SparkSession, io: SparkTableIOManager, place: str) -> None:
    asset = returning([place, "t"], lambda: FRAMES["spark"](spark))
    with pytest.raises(ConfigError, match="there is no nam") as refused:
        run(io, asset, _reader(place, columns=["nam"]))
    assert "It has id, name." in refused.value.remedy


def test_a_snapshot_that_is_not_there_is_a_config_error(
    spark: SparkSession, io: SparkTableIOManager, place: str
) -> None:
    with pytest.raises(ConfigError, match="12345"):
        run(io, returning([place, "t"], lambda: FRAMES["spark"](spark)), _reader(place, snapshot_id=12345))


def test_a_name_given_by_metadata_may_need_quotes(
    spark: SparkSession, io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    name = f"lake.{place}.`dot.ted tick``ed`"
    asset = returning([place, "t"], lambda: FRAMES["spark"](spark), metadata={TABLE_NAME: name})
    seen: list[int] = []

    @dg.asset(key=[place, "reader"], ins={"t": dg.AssetIn([place, "t"])})
    def reader(t: DataFrame) -> None:
        seen.append(t.count())

    result = run(io, asset, reader)
    assert told(result, [place, "t"])[TABLE_NAME] == name
    assert len(rows(name)) == 2
    assert seen == [2]


def test_an_asset_that_returns_nothing_has_no_table(spark: SparkSession, io: SparkTableIOManager, place: str) -> None:
    assert run(io, returning([place, "t"], lambda: None)).success
    assert not spark.catalog.tableExists(f"lake.{place}.t")


class _Session(dg.ConfigurableResource[Any]):
    """As dagster-pyspark's: a session of the user's own."""

    @property
    def spark_session(self) -> SparkSession:
        return SparkSession.active()


def test_a_streams_table_is_in_the_catalog_of_the_resource_whatever_its_spec_says(
    spark: SparkSession, io: SparkTableIOManager, spark_settings: SparkSettings, place: str
) -> None:
    run(io, returning([place, "t"], lambda: FRAMES["spark"](spark)))
    shop = Connection.model_validate(
        {"name": "shop", "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": ["true"]}}}
    )
    metadata = {TABLE_NAME: f"nowhere.{place}.t", **ConnectionDefinition(shop, {}, None).metadata}
    pond = SparkSessionResource(catalog="pond", warehouse=spark_settings.warehouse)
    seen: list[int] = []

    @dg.asset(key=[place, "reader"], ins={"t": dg.AssetIn([place, "t"])})
    def reader(t: DataFrame) -> None:
        seen.append(t.count())

    run(SparkTableIOManager(spark=pond), dg.AssetSpec([place, "t"], metadata=metadata), reader)
    assert seen == [2]


@pytest.mark.parametrize("kind", [LazyPySparkResource, PySparkResource])
def test_dagsters_own_spark_resources_give_the_session(
    spark: SparkSession, place: str, rows: Rows, kind: type[LazyPySparkResource | PySparkResource]
) -> None:
    io = SparkTableIOManager(spark=kind(spark_config={}), catalog="lake")
    run(io, returning([place, "t"], lambda: FRAMES["polars"](spark)))
    assert len(rows(f"lake.{place}.t")) == 2


_OWN_SESSION = """
import signal, sys
import dagster as dg
import pandas as pd
from dagster_pyspark import LazyPySparkResource
from dagster_airbyte_proto.dagster_defs.tables.io_manager import SparkTableIOManager
from dagster_airbyte_proto.tables.spark.session import SparkSettings, spark_config
config = spark_config(SparkSettings(sys.argv[1], short_lived=True, config={"spark.driver.memory": "1g"}))
spark = LazyPySparkResource(spark_config=config)

@dg.asset
def made() -> pd.DataFrame:
    return pd.DataFrame({"id": [1]})

@dg.asset
def read(made: pd.DataFrame) -> None:
    assert made["id"].tolist() == [1]

class Listening(SparkTableIOManager):
    def handle_output(self, context, obj):
        of_the_run = signal.getsignal(signal.SIGINT)
        super().handle_output(context, obj)
        assert signal.getsignal(signal.SIGINT) is of_the_run

assert dg.materialize([made, read], resources={"io_manager": Listening(spark=spark)}).success
"""


def test_a_session_of_dagsters_own_leaves_the_runs_interrupt_alone(tmp_path: Path, spark: SparkSession) -> None:
    command = [sys.executable, "-c", _OWN_SESSION, str(tmp_path / "warehouse")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]


def test_a_session_without_the_catalog_is_a_config_error(spark: SparkSession, place: str) -> None:
    with pytest.raises(ConfigError, match=r"no spark.sql.catalog.swamp") as refused:
        run(SparkTableIOManager(spark=_Session(), catalog="swamp"), dg.AssetSpec([place, "t"]), _reader(place))
    assert "SparkSessionResource" in refused.value.remedy


# What a sync landed.


def _delivered(target: TableTarget, load: StagedRows, load_id: str = "l1") -> Delivered:
    report = StreamReport(status=SyncStatus.COMPLETE, table=target.qualified, table_rows=1, snapshot_id="1")
    return Delivered(StreamId.of("users"), target.name, report, load_id, load)


def _stream(place: str, given: Callable[[], Delivered], **options: Any) -> dg.AssetsDefinition:
    @dg.multi_asset(specs=[dg.AssetSpec([place, "users"], skippable=True).with_io_manager_key("io_manager")], **options)
    def streams() -> Iterator[dg.MaterializeResult[Delivered]]:
        yield dg.MaterializeResult(asset_key=[place, "users"], value=given())

    return streams


def _prepared(io: SparkTableIOManager, place: str) -> tuple[SparkTableIOManager, TableTarget]:
    with dg.build_resources({"io": io}) as resources:
        opened: SparkTableIOManager = resources.io
        return opened, opened.tables({"connection": "shop"}).prepare(TableSpec(TableName(place, "users"), SCHEMA))


def test_what_the_step_commits_through_is_what_confirms(
    spark: SparkSession, io: SparkTableIOManager, place: str
) -> None:
    @dg.multi_asset(specs=[dg.AssetSpec([place, "users"]).with_io_manager_key("io_manager")])
    def streams(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Delivered]]:
        tables = context.resources.io_manager.tables({"connection": "shop", "run-id": context.run.run_id})
        target = tables.prepare(TableSpec(TableName(place, "users"), SCHEMA))
        load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
        yield dg.MaterializeResult(asset_key=[place, "users"], value=_delivered(target, load))

    result = run(io, streams)
    [[summary]] = query(spark, f"select summary from lake.{place}.users.snapshots").rows
    assert (summary["airbyte-proto.connection"], summary["airbyte-proto.run-id"]) == ("shop", result.run_id)


def test_rows_that_are_in_are_looked_up_and_rows_that_are_not_are_landed(
    io: SparkTableIOManager, place: str, rows: Rows
) -> None:
    opened, target = _prepared(io, place)
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    [landed, confirmed] = [run(io, _stream(place, lambda: _delivered(target, load))) for _ in range(2)]
    metadata = [result.asset_materializations_for_node("streams")[0].metadata for result in (landed, confirmed)]
    assert metadata[0]["airbyte_proto/snapshot_id"] == metadata[1]["airbyte_proto/snapshot_id"]
    committed = opened.tables({}).commit("l1", load)
    assert committed.was_there
    assert metadata[0]["airbyte_proto/snapshot_id"].value == committed.snapshot_id
    assert metadata[0]["dagster/row_count"].value == 1
    assert len(rows(target.qualified)) == 1


def test_a_stream_without_rows_in_the_last_load_is_told_from_its_report(io: SparkTableIOManager, place: str) -> None:
    _, target = _prepared(io, place)
    nothing = _delivered(target, part(target, WriteMode.APPEND, []))._replace(part=None, load_id=None)
    [event] = run(io, _stream(place, lambda: nothing)).asset_materializations_for_node("streams")
    assert event.metadata["airbyte_proto/snapshot_id"].value == "1"


def test_rows_that_the_table_refuses_make_no_event(io: SparkTableIOManager, place: str) -> None:
    _, target = _prepared(io, place)
    load = part(target, WriteMode.SOFT_DELETE, [{"id": 1, "name": "a"}])
    result = run(io, _stream(place, lambda: _delivered(target, load)), raise_on_error=False)
    assert not result.success
    assert result.asset_materializations_for_node("streams") == []


def test_a_terminate_while_rows_are_confirmed_is_not_retried(io: SparkTableIOManager, place: str) -> None:
    _, target = _prepared(io, place)
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    begun: list[int] = []

    def given() -> Delivered:
        begun.append(1)
        return _delivered(target, load)

    def terminate(point: str) -> None:
        if point == "table.committing":
            points.arm(None)
            raise dg.DagsterExecutionInterruptedError()

    points.arm(terminate)
    asset = _stream(place, given, retry_policy=dg.RetryPolicy(max_retries=3))
    result = run(io, asset, raise_on_error=False)
    assert not result.success
    assert len(begun) == 1


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_streams_of_the_other_formats_are_kept_and_read_by_name_and_frames_are_refused(
    spark: SparkSession, spark_settings: SparkSettings, tmp_path: Path, place: str, form: str
) -> None:
    resource = SparkSessionResource(format=form, warehouse=str(tmp_path), config=dict(spark_settings.config))
    io = SparkTableIOManager(spark=resource)
    opened, target = _prepared(io, place)
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    [event] = run(io, _stream(place, lambda: _delivered(target, load))).asset_materializations_for_node("streams")
    assert event.metadata["dagster/row_count"].value == 2
    assert event.metadata[TABLE_NAME].value == f"spark_catalog.{place}.users"
    # As a process finds it that has only the files.
    spark.sql(f"drop table if exists spark_catalog.{place}.users")
    seen: list[pa.Table] = []

    @dg.asset(key=[place, "names"], ins={"users": dg.AssetIn([place, "users"], metadata={"columns": ["name"]})})
    def reader(users: pa.Table) -> None:
        seen.append(users)

    run(io, dg.AssetSpec([place, "users"]), reader)
    assert sorted(seen[0].to_pydict()["name"]) == ["a", "b"]
    assert opened.query(f"select max(id) from {opened.sql_name(target.name)}").rows == [[2]]
    with pytest.raises(ConfigError, match=f"format is {form}, and frames are written to Iceberg tables"):
        run(io, returning([place, "t"], lambda: FRAMES["pandas"](spark)))
