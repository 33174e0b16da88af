"""The log of a Delta table as commits and recovery read it: files that fail, and loads that it forgets."""

from itertools import count
from pathlib import Path

import msgspec
import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import CommitUnknown, TableError
from dagster_airbyte_proto.loads.load import HighWaterMark
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.tables.delta.jvm import DeltaSnapshot
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from tests.conformance.table_rows import SCHEMA, part, table_name

pytestmark = pytest.mark.spark


class _FailingFiles(Storage):
    """Storage that opens no file."""

    def at(self, location: str) -> tuple[fs.FileSystem, str]:
        filesystem, path = super().at(location)
        return with_faults(filesystem, CallFaults({("open_input_stream", "*"): CallFault.BEFORE})), path


def test_a_log_whose_files_cannot_be_read_is_an_error_of_that_table_and_no_unknown_commit(
    spark: SparkSession, delta_settings: SparkSettings
) -> None:
    tables = DeltaTables(spark, delta_settings)
    target = tables.prepare(TableSpec(table_name(), SCHEMA))
    tables.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
    tables.storage = _FailingFiles()
    mark = HighWaterMark(("id",), ("2",), "2026-01-01", version="1")
    load = msgspec.structs.replace(part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}]), high_water_mark=mark)
    for read in (
        lambda: tables.witness(target.name, "shop"),
        lambda: tables.freshness(target.name),
        lambda: tables.commit("l2", load),
    ):
        with pytest.raises(TableError, match="open_input_stream"):
            read()


def test_a_staged_file_that_is_gone_is_no_unknown_commit(delta: DeltaTables) -> None:
    target = delta.prepare(TableSpec(table_name(), SCHEMA))
    load = part(target, WriteMode.OVERWRITE_DEDUP, [{"id": 2, "name": "b"}])
    deletes = Path(load.files[1].path)
    deletes.unlink()
    with pytest.raises(TableError, match=deletes.name):
        delta.commit("l1", load)


def test_a_log_that_cannot_be_read_behind_the_job_of_a_load_is_no_refusal(
    delta: DeltaTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = delta.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
    first, second = (part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": each}]) for each in "ab")
    delta.commit("l1", first)
    java = delta.java()
    snapshot, looks = java.snapshot, count(1)

    def snapshot_once(location: str, load_id: str | None = None) -> DeltaSnapshot:
        if next(looks) > 1:
            raise TableError("reading the log of a Delta table", "the disk is gone")
        return snapshot(location, load_id)

    with monkeypatch.context() as patched:
        patched.setattr(java, "snapshot", snapshot_once)
        with pytest.raises(CommitUnknown, match="the disk is gone"):
            delta.commit("l2", second)
    assert delta.find_load("l2", second) is not None


def test_a_table_of_many_loads_is_committed_to_without_a_job_that_reads_its_log(
    spark: SparkSession, delta: DeltaTables
) -> None:
    target = delta.prepare(TableSpec(table_name(), SCHEMA))
    loads = {f"l{i}": part(target, WriteMode.APPEND, [{"id": i, "name": "a"}]) for i in range(4)}
    most = "spark.databricks.delta.setTransactionsInCrc.maxAllowed"
    spark.conf.set(most, "1")  # The default is 100.
    try:
        for load_id, load in loads.items():
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", load_id)
            assert not delta.commit(load_id, load).was_there
            assert [delta.commit(each, loads[each]).was_there for each in ("l0", load_id)] == [True, True]
            assert delta.find_load("another", load) is None
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # it takes one away
        spark.conf.unset(most)
    jobs = spark.sparkContext.statusTracker()
    assert [jobs.getJobIdsForGroup(load_id) for load_id in loads] == [[]] * len(loads)


def test_a_table_that_forgets_loads_does_not_say_that_one_has_not_landed(
    spark: SparkSession, delta: DeltaTables
) -> None:
    target = delta.prepare(TableSpec(table_name(), SCHEMA))
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    delta.commit("l1", load)
    assert delta.find_load("another", load) is None
    forgets = "'delta.setTransactionRetentionDuration' = 'interval 1 hours'"
    query(spark, f"alter table {target.qualified} set tblproperties ({forgets})")
    assert delta.find_load("l1", load) is not None
    with pytest.raises(CommitUnknown, match="forgets loads after interval 1 hours"):
        delta.find_load("another", load)
