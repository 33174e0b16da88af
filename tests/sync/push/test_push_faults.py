"""A push in which any call of the store or the tables fails, before its effect or after it.

No row is skipped, none that the store knows as acknowledged is sent again, and what a destination keeps is that of the
rows that were acknowledged.
"""

from contextlib import suppress
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults
from tests.sync.push.pushed_table import PushedTable, Row, is_removal, person

_CASES = [
    (protocol, mode, fault)
    for protocol in ("airbyte", "singer", "syncmaven")
    for mode in ("mirror", "upsert", "append")
    for fault in (CallFault.BEFORE, CallFault.AFTER)
    if (protocol, mode) != ("syncmaven", "mirror")
]
_EVERY_TIME = (("airbyte", "mirror", CallFault.BEFORE),)
# Calls that change something; the others are read again as often as one likes.
_CALLS = (
    "seal_plan", "begin_delivery", "announce_rows", "acknowledge_rows", "announce", "promote", "begin_run", "end_run",
    "note_protocol", "prepare", "commit", "deliveries", "states", "rejected_rows", "planner",
)  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "mode", "fault"),
    [pytest.param(*case, marks=[] if case in _EVERY_TIME else [pytest.mark.nightly]) for case in _CASES],
)
def test_nothing_is_skipped_and_nothing_acknowledged_is_sent_again(
    quick_folder: Path, protocol: str, mode: str, fault: CallFault
) -> None:
    table = PushedTable(quick_folder, protocol=protocol, mode=mode)
    table.push["key"] = ["id"]
    table.options["checkpoint_rows"] = 8
    if protocol == "syncmaven":
        table.config["keeps"] = True
    people: dict[int, Row] = {number: person(number) for number in range(12)}
    fired = 0
    for turn, (call, number) in enumerate(((call, number) for call in _CALLS for number in (1, 2)), start=1):
        _change(people, turn, may_remove=mode == "mirror")
        table.fill(list(people.values()))
        where = f"{call} {number} failed {fault} its effect"
        table.faults = CallFaults({(call, number): fault})
        had = len(table.received())
        with suppress(ProtoError):
            report = table.contacts()
            assert report.sent == report.acknowledged + report.rejected + report.unknown, where
            assert report.status == "complete" or report.error, where
        fired += len(table.faults.fired)
        table.faults = None
        proved, had_then = table.acknowledged_ids(), len(table.received())
        final = table.contacts(retries_unknown=True)
        assert (final.status, final.error) == ("complete", None), where
        rows = table.received()
        again = {(row["id"], is_removal(row)) for row in rows[had_then:]} & proved
        assert again == set(), where
        assert len(rows) > had, where
        _check(table, people, where)
    assert fired > len(_CALLS)


def _change(people: dict[int, Row], turn: int, *, may_remove: bool) -> None:
    for number in list(people)[turn % 3 :: 3]:
        people[number] = person(number, f"{number} in turn {turn}")
    people[100 + turn] = person(100 + turn)
    if may_remove:
        people.pop(99 + turn, None)


def _check(table: PushedTable, people: dict[int, Row], where: str) -> None:
    if table.push["mode"] == "append":
        sent = {(row["id"], row["name"]) for row in table.received()}
        assert sent >= {(each["id"], each["name"]) for each in people.values()}, where
        return
    assert table.held() == people, where
    assert table.delivered().keys() == people.keys(), where
    if table.protocol == "syncmaven":
        assert table.kept_names() == {number: each["name"] for number, each in people.items()}, where


_STREAM_CALLS = (
    "deliveries", "states", "landed_tables", "seal_plan", "begin_delivery", "announce_rows", "acknowledge_rows",
    "rejected_rows", "announce", "promote", "prepare _pushes.crm__contacts", "witness _pushes.crm__contacts",
    "commit _pushes.crm__contacts",
)  # fmt: skip
_AFTER_DELIVERY = (("deliveries", 3), ("deliveries", 4), ("deliveries", 5), ("states", 2), ("rejected_rows", 2))
_OF_FIRST_STREAM = [
    (call, number, fault)
    for call, number in (*((call, 1) for call in _STREAM_CALLS), *_AFTER_DELIVERY)
    for fault in (CallFault.BEFORE, CallFault.AFTER)
]
_BY_DAY = (("commit _pushes.crm__contacts", 1, CallFault.AFTER), ("states", 2, CallFault.BEFORE))


@pytest.mark.parametrize(
    ("call", "number", "fault"),
    [pytest.param(*case, marks=[] if case in _BY_DAY else [pytest.mark.nightly]) for case in _OF_FIRST_STREAM],
)
def test_a_stream_that_fails_leaves_the_others_alone(
    quick_folder: Path, call: str, number: int, fault: CallFault
) -> None:
    table = PushedTable(quick_folder)
    table.other_streams = {"vendors": table.push}
    people = {number: person(number) for number in range(12)}
    table.fill(list(people.values()))
    table.faults = CallFaults({(call, number): fault})
    report = table.run()
    assert table.faults.fired
    contacts, vendors = report.streams["contacts"], report.streams["vendors"]
    assert (vendors.status, vendors.acknowledged, vendors.error) == ("complete", 12, None)
    assert (report.status, contacts.status) == ("partial", "failed")
    assert contacts.error
    assert contacts.sent == contacts.acknowledged + contacts.rejected + contacts.unknown
    assert contacts.sent >= len(table.received("contacts"))
    table.faults = None
    again = table.run()
    assert again.status == "complete"
    assert again.streams["vendors"].sent == 0
    assert {row["id"] for row in table.received("contacts")} == people.keys()
    assert table.delivered().keys() == people.keys()
