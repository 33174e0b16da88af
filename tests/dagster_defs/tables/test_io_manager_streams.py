"""Streams of a connection at the IO manager: their rows are confirmed, or landed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto import points
from dagster_airbyte_proto.dagster_defs.tables.io_manager import (
    TABLE_NAME,
    SparkTableIOManager,
)
from dagster_airbyte_proto.dagster_defs.tables.spark_resource import SparkSessionResource
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import StreamId, TableName, WriteMode
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_rows import SCHEMA, part
from tests.dagster_defs.tables.io_manager_runs import FRAMES, Rows, returning, run

pytestmark = pytest.mark.spark

# What a sync landed.


def _delivered(target: TableTarget, load: StagedRows, load_id: str = "l1") -> CommittedStream:
    report = StreamReport(status=SyncStatus.COMPLETE, table=target.qualified, table_rows=1, snapshot_id="1")
    return CommittedStream(StreamId.of("users"), target.name, report, load_id, load)


def _stream(place: str, given: Callable[[], CommittedStream], **options: Any) -> dg.AssetsDefinition:
    @dg.multi_asset(specs=[dg.AssetSpec([place, "users"], skippable=True).with_io_manager_key("io_manager")], **options)
    def streams() -> Iterator[dg.MaterializeResult[CommittedStream]]:
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
    def streams(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[CommittedStream]]:
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


def test_a_stream_without_rows_in_the_last_load_is_reported_from_its_report(
    io: SparkTableIOManager, place: str
) -> None:
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

    def given() -> CommittedStream:
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
    [failure] = result.get_step_failure_events()
    error = failure.step_failure_data.error
    assert error is not None and error.to_string() == "cancelled while its rows were being confirmed in the table"


@pytest.mark.parametrize(
    ("form", "namespace"),
    # The session catalog, which Delta uses, takes no name with a dash.
    [("delta", "{}"), ("parquet", "{}"), ("delta", "online-shop-{}")],
    ids=["delta", "parquet", "delta-by-folder"],
)
def test_streams_of_the_other_formats_are_kept_and_read_by_name_and_plain_parquet_takes_no_frames(
    spark: SparkSession, spark_settings: SparkSettings, tmp_path: Path, place: str, form: str, namespace: str
) -> None:
    place = namespace.format(place)
    resource = SparkSessionResource(format=form, warehouse=str(tmp_path), spark_config=dict(spark_settings.config))
    io = SparkTableIOManager(spark=resource)
    opened, target = _prepared(io, place)
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    [event] = run(io, _stream(place, lambda: _delivered(target, load))).asset_materializations_for_node("streams")
    assert event.metadata["dagster/row_count"].value == 2
    table = f"spark_catalog.{place}.users" if namespace == "{}" else f"delta.`{tmp_path}/{place}/users`"
    assert event.metadata[TABLE_NAME].value == opened.sql_name(target.name) == table
    if namespace == "{}":
        # As a process finds it that has only the files.
        spark.sql(f"drop table if exists {table}")
    seen: list[pa.Table] = []

    @dg.asset(key=[place, "names"], ins={"users": dg.AssetIn([place, "users"], metadata={"columns": ["name"]})})
    def reader(users: pa.Table) -> None:
        seen.append(users)

    run(io, dg.AssetSpec([place, "users"]), reader)
    assert sorted(seen[0].to_pydict()["name"]) == ["a", "b"]
    assert opened.query(f"select max(id) from {opened.sql_name(target.name)}").rows == [[2]]
    if form == "parquet":
        with pytest.raises(ConfigError, match="format is parquet, which takes the streams of connections alone"):
            run(io, returning([place, "t"], lambda: FRAMES["pandas"](spark)))
