"""Dagster on a Connect server: the assets of a connection, frames, partitions and pushes."""

import json
import uuid
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto import (
    Connection,
    SparkSessionResource,
    SparkTableIOManager,
    build_push_assets,
    build_table_sensor,
)
from tests.dagster_defs.push.test_table_sensor import Ticks
from tests.dagster_defs.support.saved import NO_CONNECTOR
from tests.dagster_defs.tables import test_io_manager as frames
from tests.dagster_defs.tables import test_io_manager_partitions as partitions
from tests.dagster_defs.tables.io_manager_runs import Rows
from tests.support.connect_server import Connect, ConnectServer, run_alone

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def test_assets_frames_and_pushes_in_a_process_that_has_no_jvm(tmp_path: Path, connect_server: ConnectServer) -> None:
    script = "from tests.tables.iceberg.connect.dagster_process import main; main()"
    ended = run_alone(script, tmp_path, connect_server.url, connect_server.warehouse)
    assert ended.returncode == 0, ended.stderr[-4000:]
    ids = range(7, 17)
    assert json.loads(ended.stdout.splitlines()[-1]) == {
        "first_rows": 10,
        "users": [[number] for number in ids],
        "last_operation": "replace",
        "delete_files": 0,
        "partition_row_counts": [5, 5, 5],
        "by_parity": [[number, "odd" if number % 2 else "even"] for number in ids],
        "sent": [10, 0],
        "delivered": list(ids),
    }


@pytest.mark.usefixtures("spark")
def test_a_push_is_requested_as_soon_as_another_session_has_written(
    io: SparkTableIOManager, place: str, connect: Connect
) -> None:
    writer, table = connect(), f"lake.{place}.people"
    writer.sql(f"create namespace lake.{place}")
    writer.sql(f"create table {table} using iceberg as select 1L as id")
    push = {"contacts": {"from": table, "key": ["id"]}}
    crm = Connection.model_validate({"name": "crm", "connector": NO_CONNECTOR, "push": push})
    ticks, requested = Ticks(build_table_sensor(build_push_assets(crm)), io), [dg.AssetKey(["crm", "contacts"])]
    for number in (2, 3):
        assert (ticks.requested(), ticks.requested()) == (requested, [])
        writer.sql(f"insert into {table} values ({number})")
    assert ticks.requested() == requested


# The tests of the IO manager, with frames of a Connect server. They run in this process, which may have a JVM too.


@pytest.fixture(scope="module")
def session(connect: Connect) -> SparkSession:
    return connect()


@pytest.fixture
def spark(session: SparkSession, _functions_of_connect: None, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    monkeypatch.setattr(SparkSessionResource, "spark_session", property(lambda _: session))
    return session


@pytest.fixture
def io(spark: SparkSession, connect_server: ConnectServer) -> SparkTableIOManager:
    return SparkTableIOManager(spark=SparkSessionResource(remote=connect_server.url))


@pytest.fixture
def place() -> str:
    return f"n{uuid.uuid4().hex[:8]}"


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    def read(table: str) -> list[Any]:
        spark.catalog.refreshTable(table)
        return sorted(tuple(row) for row in spark.table(table).collect())

    return read


test_an_input_comes_as_its_annotation_says = frames.test_an_input_comes_as_its_annotation_says
test_overwriting_takes_all_rows_out_and_appending_none = frames.test_overwriting_takes_all_rows_out_and_appending_none
test_an_append_that_is_tried_again_is_made_once = frames.test_an_append_that_is_tried_again_in_its_run_is_made_once
test_a_frame_with_other_columns_widens_the_table = frames.test_a_frame_with_other_columns_widens_the_table
test_a_column_of_nulls_alone_waits_for_its_type = frames.test_a_column_of_nulls_alone_waits_for_its_type
test_a_table_is_read_as_it_stood_at_a_materialization = frames.test_a_table_is_read_as_it_stood_at_a_materialization
test_a_table_that_is_not_there_is_a_config_error = frames.test_a_table_that_is_not_there_is_a_config_error
test_a_column_that_is_not_there_is_a_config_error = frames.test_a_column_that_is_not_there_is_a_config_error
test_a_snapshot_that_is_not_there_is_a_config_error = frames.test_a_snapshot_that_is_not_there_is_a_config_error
test_a_run_replaces_its_partition_alone = partitions.test_a_run_replaces_its_partition_alone_also_by_nothing
test_a_range_in_one_run_replaces_its_partitions = partitions.test_a_range_in_one_run_replaces_its_partitions
test_a_row_of_another_partition_is_refused = partitions.test_a_row_of_a_partition_that_is_not_the_runs_is_refused
test_a_partition_column_may_be_a_date = partitions.test_a_partition_column_of_the_users_own_may_be_a_date
