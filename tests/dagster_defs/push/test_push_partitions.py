"""Partitions of a push in Dagster: a run pushes the rows of its own, and a failed one is run again."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_airbyte_proto import (
    ConfigError,
    ConnectorResource,
    build_connection_jobs,
    build_push_assets,
    build_table_sensor,
)
from dagster_airbyte_proto.connection import Connection
from tests.dagster_defs.support.folder_shop import FolderIOManager
from tests.sync.push.pushed_table import SCHEMA, PushedTable, person

_CONTACTS = dg.AssetKey(["crm", "contacts"])
_DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-05")
_FIRST, _SECOND, _THIRD = "2026-11-01", "2026-11-02", "2026-11-03"


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, mode="mirror", schema=pa.schema([*SCHEMA, ("day", pa.string())]))
    pushed.push |= {"partition": "day", "max_rejected": 0}
    pushed.fill([*(person(number, day=_FIRST) for number in (1, 2)), person(3, day=_SECOND), person(4, day=_THIRD)])
    return pushed


def _job(table: PushedTable, **options: Any) -> dg.JobDefinition:
    assets = build_push_assets(Connection.from_file(table.connection_file()), partitions_def=_DAYS, **options)
    assert assets.backfill_policy == dg.BackfillPolicy.single_run()
    defs = dg.Definitions(assets=[assets], jobs=[dg.define_asset_job("all")], resources=_resources(table))
    return defs.resolve_job_def("all")


def _resources(table: PushedTable) -> dict[str, object]:
    return {
        "connector": ConnectorResource(home=str(table.home)),
        "io_manager": FolderIOManager(warehouse=str(table.home / "warehouse")),
    }


def _run(job: dg.JobDefinition, instance: dg.DagsterInstance, first: str, last: str) -> dg.ExecuteInProcessResult:
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    if first == last:
        return job.execute_in_process(instance=instance, partition_key=first, raise_on_error=False)
    return job.execute_in_process(instance=instance, tags=tags, raise_on_error=False)


def _sent(result: dg.ExecuteInProcessResult) -> dict[str | None, object]:
    events = result.asset_materializations_for_node("crm")
    return {event.partition: event.metadata["airbyte_proto/sent"].value for event in events}


def test_a_run_pushes_the_rows_of_its_partition(table: PushedTable, dagster_instance: dg.DagsterInstance) -> None:
    job = _job(table)
    assert _sent(_run(job, dagster_instance, _FIRST, _FIRST)) == {_FIRST: 2}
    assert table.held().keys() == {1, 2}
    together = _run(job, dagster_instance, _FIRST, _THIRD)
    assert _sent(together) == {_FIRST: 0, _SECOND: 1, _THIRD: 1}
    versions = [
        event.metadata["airbyte_proto/version_before"].value
        for event in together.asset_materializations_for_node("crm")
    ]
    assert versions == [1, 1, 2]  # a push for each partition, of which the first had nothing to send
    assert table.held().keys() == {1, 2, 3, 4}


def test_a_partition_that_fails_is_told_and_the_others_are_kept(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    table.fill([person(1, day=_FIRST), person(2, day=_SECOND, score=float("nan")), person(3, day=_THIRD)])
    result = _run(_job(table), dagster_instance, _FIRST, _THIRD)
    assert not result.success
    assert _sent(result) == {}
    assert table.held().keys() == {1}
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert f"partition {_SECOND}: " in str(failure.step_failure_data.user_failure_data)


def test_rejected_rows_of_a_partition_are_sent_again(table: PushedTable, dagster_instance: dg.DagsterInstance) -> None:
    table.push["max_rejected"] = "100 %"
    table.fill([person(1, day=_FIRST), person(2, day=_SECOND, score=float("nan")), person(3, day=_SECOND)])
    job = _job(table)
    _run(job, dagster_instance, _FIRST, _SECOND)
    connection = Connection.from_file(table.connection_file())
    assets = build_push_assets(connection, partitions_def=_DAYS)
    [retry, *_] = build_connection_jobs(connection, assets=assets)
    retry = dg.Definitions(jobs=[retry], resources=_resources(table)).resolve_job_def(retry.name)
    for form, success in (({}, False), ({"partition": _SECOND}, True)):
        config = {"ops": {"crm_retry_rejected": {"config": form}}}
        result = retry.execute_in_process(run_config=config, instance=dagster_instance, raise_on_error=False)
        assert result.success is success
    [record] = dagster_instance.fetch_materializations(_CONTACTS, limit=1).records
    assert record.partition_key == _SECOND
    assert record.asset_materialization is not None
    assert record.asset_materialization.metadata["airbyte_proto/rejected"].value == 1


def test_the_event_of_a_partition_has_its_own_numbers_alone(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    table.push["max_rejected"] = "100 %"
    table.fill([person(1, day=_FIRST), person(2, day=_SECOND, score=float("nan")), person(3, day=_SECOND)])
    result = _run(_job(table), dagster_instance, _FIRST, _SECOND)
    events = {event.partition: event.metadata for event in result.asset_materializations_for_node("crm")}
    assert [events[day]["airbyte_proto/rejected"].value for day in (_FIRST, _SECOND)] == [0, 1]
    assert ["airbyte_proto/rejections" in events[day] for day in (_FIRST, _SECOND)] == [False, True]
    assert all("dagster/column_lineage" in metadata for metadata in events.values())


def test_the_failure_of_a_partition_is_shown_with_it(table: PushedTable, dagster_instance: dg.DagsterInstance) -> None:
    table.fill([person(1, day=_FIRST, score=float("nan"))])
    assert not _run(_job(table), dagster_instance, _FIRST, _FIRST).success
    [record] = dagster_instance.fetch_observations(_CONTACTS, limit=5).records
    assert record.partition_key == _FIRST


def test_a_run_has_to_name_its_partition(table: PushedTable, dagster_instance: dg.DagsterInstance) -> None:
    result = _job(table).execute_in_process(instance=dagster_instance, raise_on_error=False)
    assert not result.success
    assert table.received() == []


def test_a_snapshot_does_not_tell_the_partition(table: PushedTable) -> None:
    assets = build_push_assets(Connection.from_file(table.connection_file()), partitions_def=_DAYS)
    assert assets.asset_deps[_CONTACTS] == {dg.AssetKey(["shop", "people"])}
    with pytest.raises(ConfigError, match="its assets have partitions"):
        build_table_sensor(assets)
