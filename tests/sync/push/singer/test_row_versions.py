"""Mirrors that remove rows by versions: all rows go as a new one when some are gone, and it is activated at the end."""

from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.sync.plan.stream_plan import Slice
from tests.sync.push.pushed_table import PushedTable, Row, person

pytestmark = pytest.mark.everyday(
    "test_rows_that_are_gone_are_removed_by_a_new_version_of_all_others",
    "test_a_removal_counts_only_when_the_process_that_activates_its_version_ends_well[before-state]",
    "test_who_has_no_versions_or_pushes_by_partitions_is_refused",
)


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, protocol="singer", mode="mirror")
    pushed.push["removals"] = "version"
    pushed.fill(_people())
    return pushed


def _people(*gone: int, **changed: Any) -> list[Row]:
    return [person(number, **changed) for number in range(1, 24) if number not in gone]


def _activated(table: PushedTable) -> list[int]:
    return [message["version"] for message in table.messages() if message["type"] == "ACTIVATE_VERSION"]


def _names(table: PushedTable) -> dict[int, str]:
    return {number: row["name"] for number, row in table.held_by_version().items()}


def test_rows_that_are_gone_are_removed_by_a_new_version_of_all_others(table: PushedTable) -> None:
    table.contacts()
    table.fill(_people(name="renamed"))
    assert (table.contacts().planned.changed, _activated(table)) == (23, [])
    [first] = set(table.versions())
    table.fill(_people(3, 4))
    report = table.contacts()
    assert (report.status, report.sent, report.acknowledged) == ("complete", 23, 23)
    assert (report.planned.added, report.planned.changed, report.planned.removed) == (0, 21, 2)
    [version] = _activated(table)
    assert version > first
    assert table.versions() == [first] * 46 + [version] * 21
    assert _names(table) == {row["id"]: row["name"] for row in _people(3, 4)}
    assert not any("_sdc_deleted_at" in row for row in table.received())
    assert table.delivered().keys() == set(range(1, 24)) - {3, 4}


def test_without_a_removal_only_changes_go_in_the_version_that_is_active(table: PushedTable) -> None:
    table.contacts()
    table.fill(_people(3))
    table.contacts()
    had = len(table.received())
    assert table.contacts().planned.to_send == 0
    table.fill([*_people(3), person(50)])
    assert table.contacts().sent == 1
    assert table.received()[had:] == [person(50)]
    assert [table.versions()[-1]] == _activated(table)
    table.fill(_people(3, 4))
    table.contacts()
    assert sorted(_activated(table)) == _activated(table)
    assert _names(table).keys() == set(range(1, 24)) - {3, 4}


@pytest.mark.parametrize("echo", ["each", "end"])
def test_a_version_that_dies_goes_on_and_counts_only_when_it_is_activated(table: PushedTable, echo: str) -> None:
    table.config["echo"] = echo
    table.contacts()
    table.options["checkpoint_rows"] = 10
    table.config |= {"dies_after": 8, "once": str(table.folder / "once")}
    table.fill(_people(3, 4, name="renamed"))
    remembered = table.delivered()
    died = table.contacts()
    assert (died.status, _activated(table)) == ("failed", [])
    assert (set(table.held_by_version()), table.delivered()) == (set(range(1, 24)), remembered)
    had, proved = len(table.received()), {number for number, _ in table.acknowledged_ids()}
    report = table.contacts()
    assert (report.status, report.resumed) == ("complete", died.acknowledged)
    assert not {row["id"] for row in table.received()[had:]} & proved
    assert len(_activated(table)) == 1
    assert _names(table) == dict.fromkeys(set(range(1, 24)) - {3, 4}, "renamed")
    assert table.contacts().planned.to_send == 0


@pytest.mark.parametrize(("dies", "acknowledge"), [("before", "state"), ("before", "exit"), ("after", "state")])
def test_a_removal_counts_only_when_the_process_that_activates_its_version_ends_well(
    table: PushedTable, dies: str, acknowledge: str
) -> None:
    table.options["acknowledge"] = acknowledge
    table.contacts()
    table.fill(_people(3, 4))
    table.config |= {"dies_at_version": dies, "once": str(table.folder / "once")}
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("failed", 21, 2)
    had = len(table.received())
    assert (table.contacts().status, len(table.received())) == ("complete", had)
    assert table.held_by_version().keys() == set(range(1, 24)) - {3, 4}
    assert table.delivered().keys() == set(range(1, 24)) - {3, 4}


@pytest.mark.parametrize("by", ["another form of removals", "another table"])
def test_all_rows_of_a_version_that_is_given_up_are_sent_again(table: PushedTable, by: str) -> None:
    table.contacts()
    table.fill(_people(3, 4))
    table.config |= {"dies_after": 18, "once": str(table.folder / "once")}
    assert table.contacts().acknowledged == 15
    had = len(table.received())
    if by == "another table":
        table.push |= {"map": {name: name for name in person(1)}}
    else:
        table.push["removals"] = "deleted_at"
    table.fill(_people())
    report = table.contacts()
    assert (report.status, report.error) == ("complete", None)
    # The destination may not show rows of a version that was never activated.
    assert {row["id"] for row in table.received()[had:]} >= {row["id"] for row in table.received()[23:had]}
    assert _activated(table) == []
    assert table.delivered().keys() == set(range(1, 24))
    assert table.contacts().planned.to_send == 0


def test_a_rejected_row_that_the_destination_has_keeps_those_that_are_gone(table: PushedTable) -> None:
    table.contacts()
    bad = [person(2, score=float("nan")), *_people(2, 3)]
    table.fill(bad)
    for _ in range(2):
        report = table.contacts()
        assert (report.status, report.rejected, _activated(table)) == ("complete", 2, [])
        assert any("may have are rejected (1)" in reason for reason in report.rejections)
        assert table.held_by_version().keys() == set(range(1, 24))
        assert table.delivered().keys() == set(range(1, 24))
    table.options["on_error"] = "skip"
    assert (table.contacts().rejected, len(_activated(table))) == (1, 1)
    assert table.held_by_version().keys() == set(range(1, 24)) - {2, 3}


def test_a_rejected_row_that_was_never_sent_keeps_no_other(table: PushedTable) -> None:
    table.contacts()
    table.fill([*_people(3), person(50, score=float("nan"))])
    assert (table.contacts().rejected, len(_activated(table))) == (1, 1)
    assert table.held_by_version().keys() == set(range(1, 24)) - {3}


def test_the_guard_of_removals_stops_a_version_before_it_begins(table: PushedTable) -> None:
    table.push["max_removed"] = "10 %"
    table.contacts()
    table.fill(_people(1, 2, 3))
    assert "3 of the 23 rows" in (table.contacts().error or "")
    table.fill([])
    assert "23 of the 23 rows" in (table.contacts().error or "")
    assert (len(table.received()), _activated(table)) == (23, [])
    table.push["max_removed"] = "100 %"
    assert table.contacts().status == "complete"
    assert (table.held_by_version(), table.delivered()) == ({}, {})


def test_rows_that_transforms_leave_out_go_with_the_version_and_count_as_removed(table: PushedTable) -> None:
    table.contacts()
    table.fill(_people(3))
    table.push["max_removed"] = "20 %"
    table.options["transforms"] = [{"sql": "SELECT * FROM input WHERE id > 10"}]
    assert "10 of the 23 rows" in (table.contacts().error or "")
    assert len(table.received()) == 23
    table.push["max_removed"] = "50 %"
    assert table.contacts().status == "complete"
    assert table.held_by_version().keys() == set(range(11, 24))
    assert table.contacts().planned.to_send == 0


def test_full_sends_all_in_the_version_that_is_active_unless_rows_are_gone(table: PushedTable) -> None:
    table.contacts()
    table.fill(_people(3))
    table.contacts()
    assert (table.contacts(is_full=True).acknowledged, len(_activated(table))) == (22, 1)
    table.fill(_people(3, 4))
    report = table.contacts(is_full=True)
    assert (report.planned.changed, report.planned.removed, len(_activated(table))) == (21, 1, 2)
    assert table.held_by_version().keys() == set(range(1, 24)) - {3, 4}


def test_a_plan_says_that_all_rows_go(table: PushedTable) -> None:
    table.contacts()
    table.fill(_people(3))
    report = table.run(only_plans=True)
    planned = report.streams["contacts"].planned
    assert (planned.added, planned.changed, planned.removed, planned.unchanged) == (0, 22, 1, 0)
    assert any("rows are gone (1), so all that are there (22)" in note for note in report.notes)
    assert len(table.received()) == 23


def test_records_of_a_version_go_as_lines_though_there_is_a_folder_for_files(table: PushedTable) -> None:
    table.connector["batch_folder"] = str(table.folder / "batches")
    table.contacts()
    table.fill(_people(3))
    assert table.contacts().status == "complete"
    assert table.held_by_version().keys() == set(range(1, 24)) - {3}


def test_who_has_no_versions_or_pushes_by_partitions_is_refused(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="mirror")
    table.push["removals"] = "version"
    table.fill(_people())
    with pytest.raises(ConfigError, match="removals: version is for Singer targets, and airbyte has no versions"):
        table.contacts()
    table.protocol = "singer"
    assert "remove the rows of the others" in (table.contacts(partition=Slice("a")).error or "")
    assert table.received() == []
