"""Pushes of the rows above the greatest value of a column."""

from pathlib import Path

import pytest

from tests.sync.push.pushed_table import PushedTable, person


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder)
    pushed.fill([person(number) for number in range(1, 24)])
    return pushed


def test_a_cursor_sends_what_came_after_it_and_cannot_tell_what_changed(table: PushedTable) -> None:
    del table.push["key"]
    table.push.update(mode="append", changes="cursor", cursor="id")
    first = table.contacts()
    assert (first.planned.added, first.planned.changed, first.planned.removed) == (23, None, None)
    table.fill([person(number) for number in range(20, 30)])
    second = table.contacts()
    assert (second.planned.added, second.planned.unchanged, second.acknowledged) == (6, None, 6)
    assert [row["id"] for row in table.received()[23:]] == [24, 25, 26, 27, 28, 29]


def test_a_cursor_of_another_column_is_refused_until_all_is_pushed_again(table: PushedTable) -> None:
    table.push |= {"changes": "cursor", "cursor": "id"}
    table.contacts()
    table.push["cursor"] = "score"
    assert "its cursor is score of shop.people, and what was pushed" in (table.contacts().error or "")
    assert table.contacts(is_full=True).acknowledged == 23
    assert table.contacts().planned.to_send == 0


def test_a_cursor_that_is_no_column_is_refused(table: PushedTable) -> None:
    table.push |= {"changes": "cursor", "cursor": "updated"}
    assert "it has no column updated, which is the `cursor`" in (table.contacts().error or "")
