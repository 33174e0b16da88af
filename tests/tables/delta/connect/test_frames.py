"""Frames in Delta tables of a Connect server: the tests of the IO manager, which run in this process."""

import uuid
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto import SparkSessionResource, SparkTableIOManager
from tests.dagster_defs.tables import test_io_manager as frames
from tests.dagster_defs.tables import test_io_manager_partitions as partitions
from tests.dagster_defs.tables.io_manager_runs import Rows
from tests.support.connect_server import Connect, ConnectServer

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture(scope="module")
def session(connect: Connect) -> SparkSession:
    return connect()


@pytest.fixture
def spark(session: SparkSession, _functions_of_connect: None, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    monkeypatch.setattr(SparkSessionResource, "spark_session", property(lambda _: session))
    return session


@pytest.fixture
def io(spark: SparkSession, connect_server: ConnectServer) -> SparkTableIOManager:
    warehouse = str(connect_server.warehouse.parent / "frames")
    return SparkTableIOManager(
        spark=SparkSessionResource(remote=connect_server.url, format="delta", warehouse=warehouse)
    )


@pytest.fixture
def place() -> str:
    return f"n{uuid.uuid4().hex[:8]}"


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    def read(table: str) -> list[Any]:
        return sorted(tuple(row) for row in spark.table(table.replace("lake.", "spark_catalog.")).collect())

    return read


test_an_input_comes_as_its_annotation_says = frames.test_an_input_comes_as_its_annotation_says
test_overwriting_takes_all_rows_out_and_appending_none = frames.test_overwriting_takes_all_rows_out_and_appending_none
test_an_append_that_is_tried_again_is_made_once = frames.test_an_append_that_is_tried_again_in_its_run_is_made_once
test_a_frame_with_other_columns_widens_the_table = frames.test_a_frame_with_other_columns_widens_the_table
test_a_column_of_nulls_alone_waits_for_its_type = frames.test_a_column_of_nulls_alone_waits_for_its_type
test_a_table_is_read_as_it_stood_at_a_materialization = frames.test_a_table_is_read_as_it_stood_at_a_materialization
test_a_run_replaces_its_partition_alone = partitions.test_a_run_replaces_its_partition_alone_also_by_nothing
test_a_range_in_one_run_replaces_its_partitions = partitions.test_a_range_in_one_run_replaces_its_partitions
