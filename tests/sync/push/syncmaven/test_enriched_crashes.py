"""A push to a destination that keeps values, of rows that an enrichment with a cache fills: killed at any point, or
with any call of the store failing.

What the destination keeps is that of the rows that were acknowledged. What came of rows is neither lost once its
process has ended well, nor kept before.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.points import ENRICHMENT_POINTS, PUSH_POINTS
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults
from tests.sync.enrichment.kept_tally import numbering
from tests.sync.push.push_fork_server import PushForkServer
from tests.sync.push.pushed_table import PushedTable, person

_KILLED = -9
_ROWS, _CHUNK = 20, 4
_KEPT = (0, 4, 7, 11, 14, 18, 20)
"""The rows that are kept after so many processes: the files of a plan have seven rows here."""
_ALL = set(range(_ROWS))
_PROGRAM = [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_enrichment"]
_OF_RUN = ("run.begun", "load.staged", "load.announced", "run.ended")
_POINTS = [
    *((point, number) for point in ENRICHMENT_POINTS for number in (1, 2, 4, 6)),
    *((point, 1) for point in (*PUSH_POINTS, *_OF_RUN)),
    *((point, 2) for point in ("push.announced", "push.sent", "push.acknowledged", "push.noted")),
]


@pytest.fixture(scope="module")
def server() -> Iterator[PushForkServer]:
    opened = PushForkServer()
    yield opened
    opened.close()


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, protocol="syncmaven")
    pushed.config["keeps"] = True
    config = {"notes": str(quick_folder / "notes"), "replies": 1}
    launch = {"kind": "local", "command": _PROGRAM}
    geo = {"connector": {"protocol": "syncmaven", "launch": launch}, "config": config, "columns": {"city": "string"}}
    cache = {"cache": {"ttl": "1 day", "by": "id"}, "checkpoint_rows": _CHUNK}
    pushed.options |= {"checkpoint_rows": 8, "transforms": [{**geo, **cache}]}
    pushed.fill([person(number) for number in _ALL])
    return pushed


def _asked(table: PushedTable) -> list[int]:
    notes = table.folder / "notes"
    found = [int(line) for line in notes.read_text().split()] if notes.exists() else []
    notes.unlink(missing_ok=True)
    return found


def _cached(table: PushedTable) -> int:
    store = SqlStore(table.settings.state_url)
    count = store.count_enriched_rows("crm")
    store.close()
    return count


def _check_complete(table: PushedTable, names: dict[int, str]) -> None:
    cities = {row["id"]: row["city"] for row in table.received()}
    assert cities == {number: f"city {number}" for number in names}
    assert {number: row["name"] for number, row in table.held().items()} == names
    assert table.kept_names() == names
    assert _cached(table) == len(names)


@pytest.mark.everyday("enrichment.kept-2")
@pytest.mark.parametrize(("point", "number"), _POINTS)
def test_a_killed_push_neither_loses_nor_makes_up_what_is_kept(
    server: PushForkServer, table: PushedTable, point: str, number: int
) -> None:
    names = {each: f"person {each}" for each in _ALL}
    assert server.push(table, (point, number)) == _KILLED
    asked, cached = _asked(table), _cached(table)
    ended = {"enrichment.ended": number - 1, "enrichment.kept": number, "run.begun": 0}.get(point, -1)
    assert cached == _KEPT[ended]
    proved, at_death = {each for each, _ in table.acknowledged_ids()}, len(table.received())
    assert table.kept_names() in ({each: names[each] for each in proved}, names)

    for _ in range(3):
        if server.push(table) == 0:
            break
    assert len(_asked(table)) == _ROWS - cached  # none is asked again whose process had ended
    assert len(asked) >= cached
    assert {row["id"] for row in table.received()[at_death:]}.isdisjoint(proved)
    _check_complete(table, names)

    names |= {3: "renamed", 99: "new"}
    table.fill([person(each, name) for each, name in names.items()])
    assert server.push(table) == 0
    assert _asked(table) == [99]
    _check_complete(table, names)


@pytest.mark.everyday("push.sealed")
@pytest.mark.parametrize("point", ["run.begun", *PUSH_POINTS, "load.announced", "load.committed", "run.ended"])
def test_a_killed_push_keeps_for_an_enrichment_what_its_rows_say(
    server: PushForkServer, table: PushedTable, point: str
) -> None:
    """Each row has its number among all rows of the stream, which the enrichment keeps itself, without a cache."""
    table.options["transforms"] = [numbering()]
    assert server.push(table, (point, 1)) == _KILLED
    assert table.tally() in (0, _ROWS)
    for _ in range(3):
        if server.push(table) == 0:
            break
    table.fill([person(each) for each in range(_ROWS + 3)])
    assert server.push(table) == 0
    cities = {row["id"]: int(row["city"]) for row in table.received()}
    assert sorted(cities.values()) == list(range(1, _ROWS + 4))
    assert table.tally() == _ROWS + 3


_FAULTS = [
    (call, number, fault)
    for call, numbers in (("enriched_rows", (1,)), ("keep_enriched_rows", (1, 2, 4)), ("seal_plan", (1,)),
                          ("announce_rows", (1, 2)), ("acknowledge_rows", (1, 2)))
    for number in numbers
    for fault in (CallFault.BEFORE, CallFault.AFTER)
]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize(("call", "number", "fault"), _FAULTS)
def test_a_call_that_fails_neither_loses_nor_makes_up_what_is_kept(
    table: PushedTable, call: str, number: int, fault: CallFault
) -> None:
    table.faults = CallFaults({(call, number): fault})
    with suppress(ProtoError):
        report = table.contacts()
        assert report.status == "complete" or report.error
    assert table.faults.fired
    table.faults = None
    cached, names = _cached(table), {each: f"person {each}" for each in _ALL}
    proved, at_fault = {each for each, _ in table.acknowledged_ids()}, len(table.received())
    assert table.kept_names() in ({each: names[each] for each in proved}, names)
    _asked(table)
    assert table.contacts(retries_unknown=True).status == "complete"
    assert len(_asked(table)) == _ROWS - cached
    assert {row["id"] for row in table.received()[at_fault:]}.isdisjoint(proved)
    _check_complete(table, names)
