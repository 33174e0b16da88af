"""The table that remembers what was delivered: made anew, of another key, or with rows of which nobody knows."""

import shutil
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import TableError
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
