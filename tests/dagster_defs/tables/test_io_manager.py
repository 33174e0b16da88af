"""Assets in real runs, with real Spark. Each test has a namespace of its own in the session's one warehouse."""

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition
from dagster_airbyte_proto.dagster_defs.tables.io_manager import (
    TABLE_NAME,
    WRITE,
    SparkTableIOManager,
)
from dagster_airbyte_proto.dagster_defs.tables.spark_resource import SparkSessionResource
from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.dagster_defs.tables.io_manager_runs import FRAMES, Rows, output, returning, run

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_makes_a_table_and_its_event_tells_of_it(
    spark: SparkSession, spark_settings: SparkSettings, io: SparkTableIOManager, place: str, rows: Rows, kind: str
) -> None:
    result = run(io, returning([place, "people"], lambda: FRAMES[kind](spark)))
    assert rows(f"lake.{place}.people") == [(1, "a"), (2, "b")]
    metadata = output(result, [place, "people"])
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
    assert output(result, [place, "t"])["dagster/row_count"] == 2
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


def test_a_table_is_read_as_it_stood_at_a_materialization(
    spark: SparkSession, io: SparkTableIOManager, place: str
) -> None:
    number = iter(range(2))
    asset = returning([place, "t"], lambda: spark.createDataFrame([(next(number),)], "id bigint"))
    first = output(run(io, asset), [place, "t"])["airbyte_proto/snapshot_id"]
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
    with pytest.raises(ConfigError, match="has the text 'id' as `columns`") as refused:
        run(io, dg.AssetSpec([place, "t"]), _reader(place, columns="id"))
    assert 'Write "columns": ["id"]' in refused.value.remedy


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
    assert output(result, [place, "t"])[TABLE_NAME] == name
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


@pytest.mark.parametrize(("synced", "read"), [("t_0a1b2c", 2), ("other", 1)])
def test_a_streams_table_is_that_of_its_last_sync_where_another_stream_has_the_plain_name(
    spark: SparkSession, io: SparkTableIOManager, place: str, synced: str, read: int
) -> None:
    run(io, returning([place, "t"], lambda: FRAMES["spark"](spark).limit(1)))
    run(io, returning([place, synced], lambda: FRAMES["spark"](spark)))
    shop = Connection.model_validate(
        {"name": "shop", "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": ["true"]}}}
    )
    metadata = {TABLE_NAME: f"lake.{place}.t", **ConnectionDefinition(shop, {}, None).metadata}
    seen: list[int] = []

    @dg.asset(ins={"t": dg.AssetIn([place, "stream"])})
    def reader(t: DataFrame) -> None:
        seen.append(t.count())

    with dg.DagsterInstance.ephemeral() as instance:
        event = dg.AssetMaterialization([place, "stream"], metadata={TABLE_NAME: f"lake.{place}.{synced}"})
        instance.report_runless_asset_event(event)
        stream = dg.AssetSpec([place, "stream"], metadata=metadata)
        dg.materialize([stream, reader], resources={"io_manager": io}, instance=instance)
    assert seen == [read]


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
from dagster_airbyte_proto.tables.spark.session import spark_config
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
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


@pytest.mark.nightly
def test_a_session_of_dagsters_own_leaves_the_runs_interrupt_alone(tmp_path: Path, spark: SparkSession) -> None:
    command = [sys.executable, "-c", _OWN_SESSION, str(tmp_path / "warehouse")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]


def test_a_session_without_the_catalog_is_a_config_error(spark: SparkSession, place: str) -> None:
    with pytest.raises(ConfigError, match=r"no spark.sql.catalog.swamp") as refused:
        run(SparkTableIOManager(spark=_Session(), catalog="swamp"), dg.AssetSpec([place, "t"]), _reader(place))
    assert "SparkSessionResource" in refused.value.remedy
