"""Pushes to a destination on Syncmaven's own kit for Node, as it is on npm."""

from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.kept_values import Asset
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.model import StreamId
from tests.sync.push.pushed_table import PushedTable
from tests.sync.push.syncmaven.people import PEOPLE, PeopleServer, person

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(300)]


@pytest.fixture
def table(quick_folder: Path, program: Path, server: PeopleServer) -> PushedTable:
    pushed = PushedTable(quick_folder, protocol="syncmaven", schema=PEOPLE)
    pushed.launch = {"kind": "local", "command": ["node", str(program)]}
    pushed.config, pushed.stream = {"url": server.url}, "people"
    pushed.push["options"] = {"list": "vip"}
    return pushed


def test_rows_arrive_as_they_are_in_the_table(table: PushedTable, server: PeopleServer) -> None:
    rows = [person(number, city="Łódź" if number % 2 else None) for number in range(1, 30)]
    table.fill([*rows, person(50, email="none"), person(51, email=None)])
    first = table.run().streams["people"]
    assert (first.error, first.acknowledged, first.rejected) == (None, 29, 2)
    assert set(first.rejections) == {'email: its value is not a "email"', 'the row: "email" is a required property'}
    without_nulls = [{name: value for name, value in row.items() if value is not None} for row in rows]
    assert server.rows == [("/vip", row) for row in without_nulls]


@pytest.mark.everyday("True")
@pytest.mark.parametrize("is_for_ever", [False, True])
def test_a_row_that_is_sent_for_ever_ends_the_process(
    table: PushedTable, server: PeopleServer, *, is_for_ever: bool
) -> None:
    """The kit sends a row again and again once it was told to slow down, even after the server took it."""
    rows = [person(number) for number in range(1, 10)]
    table.fill(rows)
    server.slows, server.slows_for_ever, table.result_seconds = {4}, is_for_ever, 4.0
    table.push["mode"] = "insert" if is_for_ever else "upsert"  # only the latter is sent again
    report = table.run().streams["people"]
    if is_for_ever:
        assert (report.status, report.acknowledged, report.unknown) == ("unknown", 0, 9)
        assert "it hangs" in (report.error or "")
    else:
        assert (report.status, report.acknowledged) == ("complete", 9)  # The second process sent all again.
        assert {row["id"] for _, row in server.rows} == {row["id"] for row in rows}


def test_it_keeps_its_count_and_a_row_that_failed_counts_as_rejected(table: PushedTable, server: PeopleServer) -> None:
    table.fill([person(number) for number in range(1, 21)])
    server.fails = {3}
    report = table.run()
    people = report.streams["people"]
    assert (people.error, people.acknowledged, people.rejected, people.unnamed) == (None, 19, 1, 1)
    table.fill([person(number, city="Rome" if number > 18 else None) for number in range(1, 21)])
    report = table.run()
    assert report.streams["people"].acknowledged == 2
    assert '"zero":0,"size":2,"listed":2' in Path(report.log).read_text()
    store = SqlStore(table.settings.state_url)
    kept = dict(store.kept_values(Asset("crm", StreamId.of("people"))))
    store.close()
    assert kept == {
        ("syncId=crm.people", "type=count"): b'{"total":21}',
        ("syncId=crm.people", "type=zero"): b"0",
    }
