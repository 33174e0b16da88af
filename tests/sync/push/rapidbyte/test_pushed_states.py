"""What a transform keeps in pushes: it moves with the position at the end of a plan, and not before."""

import json
import signal
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.kept_values import Asset
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.transform_states import stored_transform_states
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.points import PUSH_POINTS
from dagster_airbyte_proto.sync.state_server.component_values import shared_values
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults
from tests.support.wasm import guests
from tests.sync.push.push_fork_server import PushForkServer
from tests.sync.push.pushed_table import PushedTable, person

pytestmark = pytest.mark.everyday("test_it_goes_on_with_the_next_push")


class TalliedTable(PushedTable):
    """The table, whose rows a transform counts."""

    def __init__(self, folder: Path, script: str = "tally", **parts: Any) -> None:
        super().__init__(folder, **parts)
        launch = {"kind": "wasm", "path": str(guests.built("transform"))}
        step = {
            "connector": {"protocol": "rapidbyte", "launch": launch},
            "config": {"script": script},
            "columns": {"name": "string"},
        }
        self.options["transforms"] = [step]

    def fill_to(self, rows: int, name: str = "") -> None:
        self.fill([person(number, name) for number in range(rows)])

    @property
    def counted(self) -> int | None:
        """The rows that the transform says it has seen, by its value and its checkpoint; None if it keeps nothing."""
        with closing(SqlStore(self.settings.state_url)) as store:
            states = stored_transform_states(store, Asset("crm", StreamId.of("contacts")))
        if not states:
            return None
        rows = int(states[0].values["rows"])
        assert json.loads(states[0].checkpoint)["cursor_value"] == {"type": "int64", "value": rows}
        return rows

    def shared(self) -> Any:
        with closing(SqlStore(self.settings.state_url)) as store:
            return shared_values(store, "crm", "transform/tests/scripted")


def test_it_goes_on_with_the_next_push(quick_folder: Path) -> None:
    table = TalliedTable(quick_folder, "get 0 p;put 0 p one;tally")
    for rows, counted in ((5, 5), (8, 8)):
        table.fill_to(rows)
        assert table.contacts().status == "complete"
        assert table.counted == counted
    assert table.shared() == {"pipeline": {"p": "one"}}
    table.fill_to(8, "another")
    assert (table.contacts().sent, table.counted) == (8, 16)
    assert (table.contacts(is_full=True).sent, table.counted) == (8, 8)


@pytest.mark.parametrize("changes", ["all", "cursor"])
def test_it_goes_on_without_a_delivered_table(quick_folder: Path, changes: str) -> None:
    table = TalliedTable(quick_folder, mode="append")
    table.push |= {"changes": changes, **({"cursor": "id"} if changes == "cursor" else {})}
    for rows, counted in ((5, 5), (7, 12 if changes == "all" else 7)):
        table.fill_to(rows)
        assert (table.contacts().status, table.counted) == ("complete", counted)


def test_one_that_sends_all_begins_without_a_state(quick_folder: Path) -> None:
    table = TalliedTable(quick_folder, mode="overwrite")
    for rows in (5, 3):
        table.fill_to(rows)
        assert (table.contacts().status, table.counted) == ("complete", rows)


def test_a_plan_in_the_middle_has_none_yet(quick_folder: Path) -> None:
    table = TalliedTable(quick_folder)
    table.options |= {"batch": {"rows": 5}, "rate": {"rows_per_second": 10}}
    table.fill_to(40)
    assert table.run_until_sent(5).status == "cancelled"
    assert table.counted is None
    del table.options["rate"]
    assert table.contacts().resumed > 0
    assert table.counted == 40


def test_a_plan_that_is_given_up_leaves_none(quick_folder: Path) -> None:
    table = TalliedTable(quick_folder)
    table.options |= {"batch": {"rows": 5}, "rate": {"rows_per_second": 10}}
    table.fill_to(40)
    assert table.run_until_sent(5).status == "cancelled"
    del table.options["rate"]
    table.push["map"] = {"id": "id", "name": "name"}
    assert (table.contacts().status, table.counted) == ("complete", 40)


@pytest.mark.parametrize("call", ["seal_plan", "acknowledge_rows", "announce", "commit", "promote"])
@pytest.mark.parametrize("fault", [CallFault.BEFORE, CallFault.AFTER])
def test_a_call_that_fails_counts_no_row_twice(quick_folder: Path, call: str, fault: CallFault) -> None:
    table = TalliedTable(quick_folder)
    table.fill_to(5)
    table.contacts()
    table.fill_to(12)
    table.faults = CallFaults({(call, 1): fault})
    with suppress(ProtoError):
        table.contacts()
    assert table.faults.fired
    table.faults = None
    assert table.counted in (5, 12)
    assert table.contacts(retries_unknown=True).status == "complete"
    assert table.counted == 12


_POINTS = (*PUSH_POINTS, "load.staged", "load.announced", "table.committed", "load.promoted", "run.ended")


def test_a_kill_counts_no_row_twice(quick_folder: Path) -> None:
    table = TalliedTable(quick_folder)
    server, kills = PushForkServer(), 0
    try:
        for rows, point in enumerate(_POINTS, start=5):
            table.fill_to(rows)
            kills += server.push(table, (point, 1)) == -signal.SIGKILL
            assert table.counted in ((None if rows == 5 else rows - 1), rows), point
            assert any(server.push(table) == 0 for _ in range(3)), point
            assert table.counted == rows, point
    finally:
        server.close()
    assert kills == len(_POINTS)
