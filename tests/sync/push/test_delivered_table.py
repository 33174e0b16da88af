"""The table that remembers what was delivered: made anew, or of another key."""

import shutil
from pathlib import Path

import pytest

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
    assert table.contacts(is_full=True).acknowledged == 1
    assert table.contacts().planned.unchanged == 1


@pytest.mark.parametrize("key", [["name"], ["id", "name"]])
def test_another_key_is_refused_and_changes_nothing(table: PushedTable, key: list[str]) -> None:
    table.contacts()
    table.push["key"] = key
    assert "another key" in (table.contacts().error or "")
    table.push["key"] = ["id"]
    assert table.contacts().planned.unchanged == 23
