"""Transforms of a push: the rows that are to be sent are transformed once, and no row is sent twice for them."""

import secrets
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from tests.sync.enrichment.kept_tally import numbering
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.shop import until

_PROGRAM = [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_enrichment"]


def _geo(**more: Any) -> dict[str, Any]:
    geo = {"connector": {"protocol": "syncmaven", "launch": {"kind": "local", "command": _PROGRAM}}}
    return {**geo, "columns": {"city": "string"}, "options": {"prefix": "the "}, **more}


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder)
    pushed.fill([person(number) for number in range(1, 11)])
    return pushed


def test_rows_that_break_a_rule_are_rejected_and_not_planned_again(table: PushedTable) -> None:
    rules = [{"assert_range": {"id": {"min": 3}}}]
    table.options["transforms"] = [{"validate": rules}]
    report = table.contacts()
    assert (report.status, report.sent, report.acknowledged, report.rejected) == ("complete", 10, 8, 2)
    assert report.rejections == {"id is not at least 3": 2}
    assert [row["id"] for row in table.received()] == list(range(3, 11))
    noted = table.delivered()[1]
    assert (noted["_status"], noted["_reason"]) == ("rejected", "id is not at least 3")
    assert table.contacts().planned.to_send == 0
    table.options["transforms"] = [{"validate": [{"assert_range": {"id": {"min": 2}}}]}]
    assert table.contacts().planned.changed == 10
    assert {row["id"] for row in table.received()} == set(range(2, 11))


def test_the_row_at_fault_is_named_and_none_that_a_transform_drops(table: PushedTable) -> None:
    table.fill([{**person(1), "name": None}, person(2), person(3)])
    table.options["on_error"] = "fail"
    drops = {"validate": [{"assert_not_null": "name"}], "on_error": "skip"}
    rejects = {"validate": [{"assert_range": {"id": {"min": 3}}}], "on_error": "reject"}
    table.options["transforms"] = [drops, rejects]
    assert "row 2 of the plan: id is not at least 3" in (table.contacts().error or "")


def test_an_overwrite_whose_rows_are_all_left_out_empties_nothing(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="overwrite")
    table.push["max_removed"] = "10 %"
    table.fill([person(1), person(2)])
    table.options["transforms"] = [{"validate": [{"assert_range": {"id": {"min": 9}}}]}]
    assert "transforms leave all its rows out, and its push would empty" in (table.contacts().error or "")
    assert table.messages() == []
    table.fill([person(1), person(9)])
    assert table.contacts().acknowledged == 1


def test_rows_are_enriched_that_are_new_or_changed(table: PushedTable) -> None:
    table.fill([person(number) for number in (1, 4, 7)])
    table.options["transforms"] = [_geo()]
    assert table.contacts().acknowledged == 3
    assert table.received()[0] == {**person(1), "city": "the city 1"}
    table.options["transforms"] = [_geo(config={"dies_at": 1})]  # The config is no part of what rows become.
    table.fill([person(1), person(4, "renamed"), person(7), person(10)])
    report = table.contacts()
    assert (report.planned.added, report.planned.changed, report.acknowledged) == (1, 1, 2)
    assert [(row["id"], row["name"], row["city"]) for row in table.received()[3:]] == [
        (4, "renamed", "the city 4"),
        (10, "person 10", "the city 10"),
    ]


def test_another_connector_among_the_transforms_sends_all_rows_again(table: PushedTable) -> None:
    other = table.folder / "other-geo"
    other.write_text(f'#!/bin/sh\nexec {" ".join(_PROGRAM)} "$@"\n')
    other.chmod(0o755)
    connector = {"protocol": "syncmaven", "launch": {"kind": "local", "command": [str(other)]}}
    rows = [person(number) for number in (1, 4, 7)]
    table.fill(rows)
    table.options["transforms"] = [_geo()]
    assert table.contacts().acknowledged == 3
    _forget_connectors(table)
    table.options["transforms"] = [_geo(connector=connector)]
    assert table.contacts().planned.to_send == 0
    table.fill([*rows, person(10)])
    assert table.contacts().planned.to_send == 1
    for transform in (_geo(), _geo(connector=connector)):
        table.options["transforms"] = [transform]
        assert table.contacts().planned.changed == 4
        assert table.contacts().planned.to_send == 0


def _forget_connectors(table: PushedTable) -> None:
    """Leaves the plan as a release did that noted no connectors."""
    with closing(sqlite3.connect(table.home / "state.db")) as store, store:
        changed = store.execute("UPDATE airbyte_proto_deliveries SET body = json_remove(body, '$.connectors')")
        assert changed.rowcount == 1


def test_dropped_rows_are_within_no_limit(table: PushedTable) -> None:
    table.push["max_rejected"] = 0
    table.fill([person(number) for number in (1, 3, 4, 6, 7)])
    table.options["transforms"] = [_geo()]
    report = table.contacts()
    assert (report.status, report.acknowledged, report.rejected) == ("complete", 3, 2)
    assert report.rejections == {"dropped by a transform": 2}
    assert table.delivered()[3]["_status"] == "rejected"
    assert table.contacts().planned.to_send == 0


def test_one_row_of_a_key_cannot_become_several(table: PushedTable) -> None:
    table.options["transforms"] = [_geo()]
    report = table.contacts()
    assert report.status == "failed"
    assert "the push has one row for each key" in str(report.error)
    assert table.received() == []


def test_without_a_key_it_can(table: PushedTable) -> None:
    table.push |= {"mode": "append", "changes": "all"}
    del table.push["key"]
    table.options["transforms"] = [_geo()]
    report = table.contacts()
    assert (report.status, report.planned.added, report.acknowledged, report.rejected) == ("complete", 13, 10, 3)
    assert [row["id"] for row in table.received()] == [1, 2, 2, 4, 5, 5, 7, 8, 8, 10]


def test_of_several_rows_of_one_those_that_break_a_rule_are_rejected(table: PushedTable) -> None:
    table.push |= {"mode": "append", "changes": "all"}
    del table.push["key"]
    table.options["transforms"] = [_geo(config={"replies": 2}), {"validate": [{"assert_unique": "id"}]}]
    report = table.contacts()
    assert (report.status, report.sent, report.acknowledged, report.rejected) == ("complete", 20, 10, 10)
    assert report.rejections == {"id is not unique": 10}
    assert [row["id"] for row in table.received()] == list(range(1, 11))


def test_a_mirror_removes_a_row_that_was_sent_before_it_was_dropped(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="mirror")
    table.options["transforms"] = [{"validate": [{"assert_not_null": "name"}], "on_error": "skip"}]
    nameless = {**person(3), "name": None}
    table.fill([person(1), person(2), nameless])
    assert table.contacts().acknowledged == 2
    table.fill([{**person(1), "name": None}, person(2), {**nameless, "score": 1.5}])
    assert table.contacts().rejections == {"dropped by a transform": 2}
    assert table.held().keys() == {1, 2}
    table.fill([person(2)])
    assert table.contacts().planned.removed == 1
    assert table.held().keys() == {2}


def test_a_mirror_removes_it_also_where_all_rows_were_sent_again_meanwhile(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="mirror")
    table.options["transforms"] = [{"validate": [{"assert_not_null": "name"}], "on_error": "skip"}]
    never_sent = {**person(3), "name": None}
    table.fill([person(1), person(2), never_sent])
    table.contacts()
    table.fill([{**person(1), "name": None}, person(2), never_sent])
    full = table.contacts(is_full=True)
    assert (full.planned.added, full.planned.changed, full.acknowledged) == (3, 0, 1)
    table.fill([person(2)])
    assert table.contacts().planned.removed == 1
    assert table.held().keys() == {2}
    assert [row["id"] for row in table.received()] == [1, 2, 2, 1]


def test_wide_rows_go_through_transforms_few_at_a_time(table: PushedTable) -> None:
    table.fill([person(number, secrets.token_hex(1 << 20)) for number in range(1, 6)])
    # Beside a cache the city counts the rows of a process.
    cache = {"ttl": "1 day", "by": "id"}
    table.options["transforms"] = [_geo(config={"replies": 1, "tallies": True}, cache=cache)]
    assert table.contacts().acknowledged == 5
    assert [row["city"] for row in table.received()].count("1") == 2


def test_a_push_that_is_cancelled_among_its_transforms_says_so(table: PushedTable) -> None:
    notes, cancel = table.folder / "notes", threading.Event()
    table.options["transforms"] = [_geo(config={"notes": str(notes)}, rate={"rows_per_second": 0.01})]

    def cancel_in_the_midst() -> None:
        until(notes.exists, "the first row")
        cancel.set()

    watch = threading.Thread(target=cancel_in_the_midst)
    watch.start()
    report = table.run(cancel=cancel)
    watch.join()
    assert (report.status, report.streams["contacts"].status) == ("cancelled", "cancelled")


def test_a_push_that_goes_on_asks_the_connector_nothing_again(table: PushedTable) -> None:
    table.fill([person(number) for number in range(1, 40, 3)])
    table.options["transforms"] = [_geo()]
    table.config |= {"dies_after": 6, "once": str(table.folder / "once")}
    assert table.contacts().status == "failed"
    table.options["transforms"] = [_geo(config={"halts_at": 37})]
    report = table.contacts()
    assert report.status == "complete"
    assert {row["id"]: row["city"] for row in table.received()} == {
        number: f"the city {number}" for number in range(1, 40, 3)
    }
    assert table.delivered().keys() == set(range(1, 40, 3))


def test_what_an_enrichment_keeps_waits_for_all_rows_of_its_plan(table: PushedTable) -> None:
    table.options["transforms"] = [numbering()]
    table.config |= {"dies_after": 6, "once": str(table.folder / "once")}
    assert table.contacts().status == "failed"
    assert table.tally() == 0
    assert (table.contacts().status, table.tally()) == ("complete", 10)
    table.fill([person(number) for number in range(1, 13)])
    assert (table.contacts().planned.added, table.tally()) == (2, 12)
    assert {row["id"]: row["city"] for row in table.received()} == {each: str(each) for each in range(1, 13)}
    assert table.contacts(is_full=True).acknowledged == 12
    assert table.tally() == 12  # All rows are sent again, so it began without a value.


def test_an_enrichment_that_fails_sends_nothing(table: PushedTable) -> None:
    table.options["transforms"] = [_geo(config={"halts_at": 4})]
    report = table.contacts()
    assert (report.status, report.retryable) == ("failed", True)
    assert "no more credits" in str(report.error)
    assert table.received() == []


def test_a_plan_that_is_only_shown_asks_no_connector(table: PushedTable) -> None:
    table.options["transforms"] = [_geo(config={"halts_at": 1})]
    assert table.contacts(only_plans=True).planned.added == 10


def test_transforms_of_no_pushed_stream_are_refused(table: PushedTable) -> None:
    table.options["transforms"] = [_geo(streams=["people"])]
    with pytest.raises(ConfigError, match="there is no pushed stream 'people'; there is contacts"):
        table.contacts()


def _asked(table: PushedTable) -> list[int]:
    """The rows that the enrichment has got since the last call."""
    notes = table.folder / "notes"
    found = [int(line) for line in notes.read_text().split()] if notes.exists() else []
    notes.unlink(missing_ok=True)
    return found


def _cached(table: PushedTable, **more: Any) -> dict[str, Any]:
    config = {"notes": str(table.folder / "notes"), "replies": 1, **more.pop("config", {})}
    return _geo(cache={"ttl": "30 days", "by": "id"}, config=config, **more)


def test_what_came_of_a_row_is_used_again(table: PushedTable) -> None:
    table.options["transforms"] = [_cached(table)]
    assert (table.contacts().acknowledged, _asked(table)) == (10, list(range(1, 11)))
    table.fill([person(number, "renamed") for number in range(1, 13)])
    assert (table.contacts(is_full=True).acknowledged, _asked(table)) == (12, [11, 12])
    assert {row["city"] for row in table.received()} == {f"the city {number}" for number in range(1, 13)}
    table.options["transforms"] = [_cached(table, options={"prefix": "a "})]
    assert (table.contacts().acknowledged, len(_asked(table))) == (12, 12)
    assert {row["city"] for row in table.received()[22:]} == {f"a city {number}" for number in range(1, 13)}


def test_what_came_of_rows_outlives_the_failure_of_later_ones(table: PushedTable) -> None:
    """A process that has ended well is asked nothing again, and nothing is taken of one that died."""
    fault = {"dies_at": 6, "once": str(table.folder / "once")}
    table.options["transforms"] = [_cached(table, checkpoint_rows=4, config=fault)]
    report = table.contacts()
    assert (report.status, report.retryable, _asked(table)) == ("failed", True, [1, 2, 3, 4, 5, 6])
    assert (table.contacts().acknowledged, _asked(table)) == (10, [5, 6, 7, 8, 9, 10])
    assert {row["city"] for row in table.received()} == {f"the city {number}" for number in range(1, 11)}
