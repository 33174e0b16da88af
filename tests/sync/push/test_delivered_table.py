"""The table that remembers what was delivered: made anew, of another key, or with rows of which nobody knows."""

import shutil
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.staging.files.parquet_file import OpenFile, RowGroups
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.tables.formats import care_of
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults
from tests.sync.push.plan.spark_table import SparkPushedTable
from tests.sync.push.pushed_table import PushedTable, person


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder)
    pushed.fill([person(number) for number in range(1, 24)])
    return pushed


def test_a_memory_that_was_dropped_is_made_anew_by_full(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(1)])
    table.contacts()
    shutil.rmtree(table.home / "warehouse" / "_pushes")
    assert "`airbyte-proto push crm --full --streams contacts`" in (table.contacts().error or "")
    assert not (table.home / "warehouse" / "_pushes").exists()
    assert table.contacts(is_full=True).acknowledged == 1
    assert table.contacts().planned.unchanged == 1


def test_a_stream_of_two_words_is_one_word_of_the_commands_that_lead_out(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.stream = "eu contacts"
    table.fill([person(1)])
    assert table.run().streams["eu contacts"].acknowledged == 1
    shutil.rmtree(table.home / "warehouse" / "_pushes")
    error = table.run().streams["eu contacts"].error or ""
    assert "`airbyte-proto push crm --full --streams 'eu contacts'`" in error
    assert "`airbyte-proto state reset crm 'eu contacts'`" in error


def test_a_mirror_of_a_disk_that_is_not_mounted_removes_nothing(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="mirror")
    table.push["max_removed"] = "100 %"
    table.fill([person(number) for number in range(1, 6)])
    table.contacts()
    warehouse, disk = table.home / "warehouse", table.home / "disk"
    warehouse.rename(disk)
    warehouse.mkdir()
    with pytest.raises(TableError, match="most likely its disk is not mounted"):
        table.contacts()
    warehouse.rmdir()  # No delivered table is in it.
    disk.rename(warehouse)
    assert table.contacts().planned.unchanged == 5
    assert table.held().keys() == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("key", [["name"], ["id", "name"]])
def test_another_key_is_refused_and_changes_nothing(table: PushedTable, key: list[str]) -> None:
    table.contacts()
    table.push["key"] = key
    assert "another key" in (table.contacts().error or "")
    table.push["key"] = ["id"]
    assert table.contacts().planned.unchanged == 23


@pytest.mark.parametrize("name", ["_status", "_Pushed_At"])
def test_a_key_with_the_name_of_a_column_of_the_memory_is_refused(table: PushedTable, name: str) -> None:
    table.push |= {"map": {name: "id", "name": "name"}, "key": [name]}
    error = table.contacts().error or ""
    assert (f"the key has {name}," in error, "other names by `map`" in error) == (True, True)
    assert not (table.home / "warehouse" / "_pushes").exists()


def test_the_memory_of_another_push_is_refused_where_their_names_make_up_the_same_one(table: PushedTable) -> None:
    table.options["name"] = "crm__eu"
    assert table.contacts().acknowledged == 23
    table.options["name"], table.stream = "crm", "eu__contacts"
    for is_full in (False, True):
        error = table.run(is_full=is_full).streams["eu__contacts"].error or ""
        assert "_pushes.crm__eu__contacts is the memory of stream contacts of connection crm__eu" in error
        assert "`airbyte-proto state reset crm__eu contacts`" in error
    assert len(table.received()) == 23
    with Engine(table.settings) as engine, acquire_lease(engine.store, "crm__eu", "reset", 30) as renewal:
        engine.store.change_state(renewal.lease, StreamId.of("contacts"), None, who="a person")
    report = table.run().streams["eu__contacts"]
    assert (report.status, report.acknowledged) == ("complete", 23)
    assert table.run().streams["eu__contacts"].planned.unchanged == 23


@pytest.mark.everyday("deleted_at")
@pytest.mark.parametrize("removals", ["deleted_at", "version"])
def test_a_row_is_sent_again_whose_removal_may_have_been_made_and_was_given_up(
    quick_folder: Path, removals: str
) -> None:
    table = PushedTable(quick_folder, protocol="singer", mode="mirror")
    table.push["removals"] = removals
    table.fill([person(number) for number in range(1, 6)])
    table.contacts()
    table.fill([person(number) for number in range(3, 6)])
    # By its key the first of two rows is removed, and the process of these two dies. A version removes both.
    dies = {"dies_after": 2} if removals == "deleted_at" else {"dies_at_version": "after"}
    table.config |= {**dies, "once": str(table.folder / "once")}
    if removals == "version":
        assert (table.contacts().unknown, set(table.held_by_version())) == (2, {3, 4, 5})
    else:
        assert (table.contacts().unknown, set(table.held())) == (2, {2, 3, 4, 5})
    table.fill([person(number) for number in range(1, 6)])
    assert table.contacts(retries_rejected=True).status == "complete"
    held = table.held_by_version() if removals == "version" else table.held()
    assert held.keys() == {1, 2, 3, 4, 5}


def test_a_push_goes_on_also_where_the_plan_in_the_place_of_one_given_up_has_died_too(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="mirror")
    table.push["map"] = {"id": "id", "name": "name"}
    table.fill([person(number) for number in range(1, 24)])
    table.config["dies_after"] = 3
    assert table.contacts().unknown > 0
    table.push["map"]["name"] = {"value": "hidden"}
    assert (table.contacts().acknowledged, table.contacts().acknowledged) == (0, 0)
    del table.config["dies_after"]
    report = table.contacts()
    assert (report.status, report.error, report.acknowledged) == ("complete", None, 23)
    assert table.delivered().keys() == {row["id"] for row in table.received()} == set(range(1, 24))


@pytest.mark.parametrize("stops", ["at once", "in the second run"])
@pytest.mark.parametrize("mode", ["upsert", "update", "mirror"])
def test_a_row_that_was_sent_in_vain_is_sent_again_though_it_is_as_before_by_then(
    quick_folder: Path, mode: str, stops: str
) -> None:
    table = PushedTable(quick_folder, mode=mode)
    before = [person(number) for number in range(1, 6)]
    table.fill(before)
    table.contacts()
    table.fill([person(number, "renamed") for number in range(1, 6)])
    table.config |= {"dies_after": 4, "once": str(table.folder / "once")}
    assert table.contacts().acknowledged == 0
    if stops == "in the second run":
        table.faults = CallFaults({("announce_rows", 1): CallFault.BEFORE})
        assert table.contacts().acknowledged == 0
        table.faults = None
    assert [row["name"] for row in table.received()][-3:] == ["renamed"] * 3
    table.fill(before)
    assert table.contacts(retries_rejected=True).status == "complete"
    assert list(table.held().values()) == before
    assert table.contacts().planned.to_send == 0


@pytest.mark.parametrize("mode", ["upsert", "insert", "append", "mirror"])
def test_all_rows_are_still_to_be_sent_where_a_full_push_of_which_nothing_arrived_was_given_up(
    quick_folder: Path, mode: str
) -> None:
    table = PushedTable(quick_folder, mode=mode)
    table.fill([person(number) for number in range(1, 24)])
    table.contacts()
    table.config |= {"dies_after": 4, "once": str(table.folder / "once")}
    assert table.contacts(is_full=True).acknowledged == 0
    had = len(table.received())
    report = table.contacts(retries_rejected=True, retries_unknown=True)
    assert (report.status, report.resumed, report.acknowledged) == ("complete", 0, 23)
    assert {row["id"] for row in table.received()[had:]} == set(range(1, 24))
    assert table.contacts().planned.to_send == 0


def test_a_plan_whose_rows_cannot_be_noted_is_not_given_up(quick_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each_row_at_once = partial(OpenFile, row_groups=RowGroups(1))
    monkeypatch.setattr("dagster_airbyte_proto.sync.push.fold.OpenFile", each_row_at_once)
    table = PushedTable(quick_folder, mode="mirror")
    before = [person(number) for number in range(1, 6)]
    table.fill(before)
    table.contacts()
    table.fill([person(number, "renamed") for number in range(1, 6)])
    table.config |= {"dies_after": 4, "once": str(table.folder / "once")}
    assert table.contacts().acknowledged == 0
    table.fill(before)
    table.faults = CallFaults({("open_output_stream", 1): CallFault.BEFORE})
    assert "a planned fault" in (table.contacts(retries_rejected=True).error or "")
    assert table.faults.fired
    table.faults = None
    assert table.contacts(retries_rejected=True).status == "complete"
    assert list(table.held().values()) == before


def test_all_rows_are_sent_by_another_key_though_a_plan_of_the_one_before_is_unfinished(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.push["map"] = {"id": "id", "name": "name"}
    table.fill([person(number) for number in range(1, 6)])
    table.config |= {"dies_after": 4, "once": str(table.folder / "once")}
    assert table.contacts().status == "failed"
    # A catalog may drop a table and leave the files beside it.
    folder, kept = table.tables.folder(TableName("_pushes", "crm__contacts")), table.folder / "kept"
    shutil.move(folder / "plans", kept)
    shutil.rmtree(folder)
    folder.mkdir()
    shutil.move(kept, folder / "plans")
    table.push |= {"key": ["label"], "map": {"label": "name", "score": "score"}}
    report = table.contacts(is_full=True)
    assert (report.status, report.error, report.acknowledged) == ("complete", None, 5)


@pytest.mark.spark
def test_the_memory_is_compacted_once_it_is_slow_to_read(
    quick_folder: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    table = SparkPushedTable(quick_folder, spark, spark_settings)
    table.push["changes"] = "diff"
    reports = []
    for name in ("first", "second", "second"):
        rows = f"SELECT id, if(id < 6, '{name}', 'same'), 0.5, false FROM range(10)"
        table.sql(f"INSERT OVERWRITE {table.name} {rows}")
        reports.append(table.run())
    assert [each.streams["contacts"].sent for each in reports] == [10, 6, 0]
    memory = TableName("_pushes", f"{table.connection_name}__contacts")
    is_compacted = [f"table {memory} was compacted" in Path(each.log).read_text() for each in reports]
    assert is_compacted == [False, True, False]
    facts = care_of(table.writer).facts(memory)
    assert (facts.rows, facts.delete_files) == (10, 0)
