"""Plans that are unfinished when another one is made: they go on until the store has that one."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.protocols.lookup import PUSH, state_codec_named
from dagster_airbyte_proto.sync.plan.stream_plan import Slice
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults
from tests.sync.push.pushed_table import SCHEMA, PushedTable, Row, person

A, B = Slice("a"), Slice("b")


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, schema=pa.schema([*SCHEMA, ("day", pa.string())]))
    pushed.push["partition"] = "day"
    pushed.fill([*(_row(number, A) for number in range(20)), *(_row(number, B) for number in range(100, 103))])
    return pushed


def _row(number: int, day: Slice) -> dict[str, Any]:
    return person(number, day=day.key)


def _die_once(table: PushedTable, **request: Any) -> int:
    """Pushes to a destination that dies; returns the number of rows that it acknowledged before. Of those of a mode
    without a key that were on their way nobody knows."""
    table.config |= {"dies_after": 7, "once": str(table.folder / "once")}
    report = table.contacts(**request)
    assert report.status in ("failed", "unknown") and report.acknowledged < 20
    return report.acknowledged


def test_a_partition_without_new_rows_leaves_the_plan_of_another_one_to_go_on(table: PushedTable) -> None:
    table.contacts(partition=B)
    acknowledged = _die_once(table, partition=A)
    assert table.contacts(partition=B).planned.to_send == 0
    again = table.contacts(partition=A)
    assert (again.status, again.resumed) == ("complete", acknowledged)
    assert table.held().keys() == {*range(20), *range(100, 103)}


@pytest.mark.parametrize("request_of", [{"retries_rejected": True}, {"is_full": True}])
def test_a_plan_goes_on_if_the_one_in_its_place_is_stopped_by_a_guard(
    table: PushedTable, request_of: dict[str, bool]
) -> None:
    acknowledged = _die_once(table)
    table.fill([_row(1, A), _row(1, A)])
    assert "share their key" in (table.contacts(**request_of).error or "")
    again = table.contacts()
    assert (again.status, again.resumed) == ("complete", acknowledged)


@pytest.mark.parametrize("by", [{}, {"changes": "cursor", "cursor": "id"}], ids=["diff", "cursor"])
def test_a_plan_that_is_shown_leaves_out_what_is_acknowledged_and_not_yet_remembered(
    table: PushedTable, by: dict[str, str]
) -> None:
    table.push |= by
    table.faults = CallFaults({("announce", 1): CallFault.BEFORE})
    assert (table.contacts().status, len(table.received())) == ("failed", 23)
    table.faults = None
    rows = [*(_row(number, A) for number in range(20)), *(_row(number, B) for number in range(100, 104))]
    table.fill(rows)
    assert table.contacts(only_plans=True).planned.to_send == 1
    assert len(table.received()) == 23
    assert table.contacts().sent == 1


def test_lines_of_the_mapping_that_move_are_no_change_of_it(table: PushedTable) -> None:
    fields = {"id": "id", "label": "name", "points": "score"}
    table.push["map"] = fields
    acknowledged = _die_once(table)
    table.push["map"] = dict(reversed(fields.items()))
    again = table.contacts()
    assert (again.status, again.resumed) == ("complete", acknowledged)
    assert table.contacts().planned.to_send == 0
    table.fill([{**_row(number, A), "name": "new" if number == 3 else f"person {number}"} for number in range(20)])
    assert table.contacts().planned.changed == 1
    assert [*table.received()[-1]][:3] == ["id", "label", "points"]
    assert table.contacts(is_full=True).acknowledged == 20
    assert [*table.received()[-1]][:3] == ["points", "label", "id"]
    assert table.contacts().planned.to_send == 0


def test_a_plan_with_nothing_to_do_takes_the_place_of_an_unfinished_one(table: PushedTable) -> None:
    _die_once(table)
    table.fill([row for row in table.received() if row["id"] in table.delivered()])
    assert table.contacts(retries_rejected=True).planned.to_send == 0
    assert (table.contacts().status, table.contacts().planned.to_send) == ("complete", 0)


@pytest.mark.parametrize("stops", ["rejected", "dies"])
def test_a_mirror_that_stops_while_all_is_sent_again_forgets_no_row(quick_folder: Path, stops: str) -> None:
    table = PushedTable(quick_folder, mode="mirror")
    table.fill([person(number) for number in range(20)])
    table.contacts()
    table.push["max_rejected"] = 0
    if stops == "dies":
        table.config |= {"dies_after": 12, "once": str(table.folder / "once")}
    else:
        table.fill([person(number, score=float("nan") if number == 17 else 0.5) for number in range(20)])
    assert table.contacts(is_full=True).status == "failed"
    table.fill([person(number) for number in range(16)])
    assert table.contacts(retries_rejected=True).planned.removed == 4
    assert table.held().keys() == {*range(16)}
    assert table.contacts().planned.to_send == 0


def test_no_partition_gives_up_the_unfinished_one_of_another_whose_rows_nobody_remembers(table: PushedTable) -> None:
    table.push |= {"mode": "append", "changes": "all"}
    _die_once(table, partition=A)
    for request in ({}, {"retries_unknown": True}):
        refused = table.contacts(partition=B, **request)
        assert "rows of a push with --partition a are left to send" in (refused.error or "")
    assert table.contacts(partition=A, retries_unknown=True).status == "complete"
    assert table.contacts(partition=B).acknowledged == 3


@pytest.mark.parametrize("stops", ["rejected", "dies"])
def test_a_partition_of_which_nothing_was_acknowledged_stops_no_other(table: PushedTable, stops: str) -> None:
    table.push |= {"changes": "all", "max_rejected": 0}
    bad = _row(1, A) | {"score": float("nan") if stops == "rejected" else 0.5}
    table.fill([_row(0, A), bad, _row(100, B)])
    table.config["dies_after"] = 1 if stops == "dies" else 0
    assert (table.contacts(partition=A).status, table.contacts(partition=A).acknowledged) == ("failed", 0)
    table.config["dies_after"] = 0
    assert table.contacts(partition=B).acknowledged == 1
    table.fill([_row(0, A), _row(1, A), _row(100, B)])
    assert table.contacts(partition=A).acknowledged == 2


def test_a_stream_leaves_the_plan_of_one_below_its_name_to_go_on(table: PushedTable) -> None:
    del table.push["key"]
    table.push |= {"mode": "append", "changes": "all"}
    table.other_streams["contacts/list"] = dict(table.push)
    table.config |= {"dies_after": 7, "once": str(table.folder / "once")}
    assert table.run(streams=["contacts/list"]).status == "unknown"
    assert table.contacts(streams=["contacts"]).status == "complete"
    assert table.run(streams=["contacts/list"], retries_unknown=True).status == "complete"


_TAKEN_OUT = [
    ({"map": {"id": "id", "name": "name"}}, {"map": {"id": "id", "name": {"value": "hidden"}}}),
    ({}, {"from": "shop.masked_people"}),
]


@pytest.mark.parametrize(("push", "later"), _TAKEN_OUT)
@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_a_plan_does_not_go_on_with_what_was_taken_out_since(
    quick_folder: Path, push: Row, later: Row, mode: str
) -> None:
    table = PushedTable(quick_folder, mode=mode)
    table.push |= push
    table.fill([person(number) for number in range(20)])
    table.fill_table(TableName("shop", "masked_people"), [person(number, "hidden") for number in range(20)])
    _die_once(table)
    had = len(table.received())
    table.push |= later
    report = table.contacts(retries_unknown=True)
    assert (report.status, report.resumed) == ("complete", 0)
    assert {row["name"] for row in table.received()[had:]} == {"hidden"}
    assert {row["id"] for row in table.received()[had:]} == set(range(20))  # Those that were delivered have changed.
    assert table.contacts().planned.to_send == 0


def test_of_rows_that_nobody_remembers_a_person_says_that_all_are_sent_in_the_new_form(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="append")
    table.push |= {"changes": "all", "map": {"id": "id", "name": "name"}}
    table.fill([person(number) for number in range(20)])
    _die_once(table)
    had = len(table.received())
    table.push["map"]["name"] = {"value": "hidden"}
    assert "--full" in (table.contacts(retries_unknown=True).error or "")
    assert len(table.received()) == had
    assert table.contacts(retries_unknown=True, is_full=True).status == "complete"
    assert [row["name"] for row in table.received()[had:]] == ["hidden"] * 20


def test_a_replacement_that_is_planned_otherwise_by_now_begins_anew(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="overwrite")
    table.push["map"] = {"id": "id", "name": "name"}
    table.fill([person(number) for number in range(20)])
    _die_once(table)
    table.push["map"]["name"] = {"value": "hidden"}
    assert table.contacts().status == "complete"
    assert [row["name"] for row in table.shown()] == ["hidden"] * 20


@pytest.mark.parametrize("dies", [False, True])
def test_another_destination_gets_no_rest_of_what_the_first_one_has(quick_folder: Path, dies: bool) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(number) for number in range(20)])
    if dies:
        _die_once(table)
    else:
        table.contacts()
    table.fill([person(number) for number in range(25)])
    _move(table)
    refused = table.contacts()
    assert refused.error is not None and not table.received(), refused
    assert (
        "is at airbyte python" in refused.error and "airbyte-proto push crm --full --streams contacts" in refused.error
    )
    report = table.contacts(is_full=True)
    assert (report.status, report.acknowledged) == ("complete", 25)
    table.fill([person(number) for number in range(26)])
    assert table.contacts().acknowledged == 1


def test_a_destination_by_another_name_goes_on_once_a_person_says_so(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(1)])
    table.contacts()
    _move(table)
    table.fill([person(1), person(2)])
    assert table.contacts().status == "failed"
    options = ["--home", str(table.home), "--settings", str(table.settings_file), "--json", "state"]
    store = SqlStore(table.settings.state_url)
    [stored] = store.states("crm")
    store.close()
    state = state_codec_named(PUSH).value(stored.state)
    state |= {"destination": f"{state['destination']} --elsewhere"}
    assert main([*options, "set", str(table.connection_file()), "contacts", json.dumps(state)]) == 0
    assert (table.contacts().acknowledged, [row["id"] for row in table.received()]) == (1, [2])


def _move(table: PushedTable) -> None:
    """From now on the connection names another program, which writes elsewhere."""
    table.out = table.folder / "elsewhere.jsonl"
    table.config = {}
    table.launch = {"kind": "local", "command": [*table.launch["command"], "--elsewhere"]}
