"""A push in which any call of the store or the tables fails, before its effect or after it.

No row is skipped, none that the store knows as acknowledged is sent again, and what a destination keeps is that of the
rows that were acknowledged.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.push.swept_push import SweptPush

_CASES = [
    *(("airbyte", mode, "each") for mode in ("mirror", "upsert", "append", "insert", "update", "overwrite")),
    *(("singer", mode, "each") for mode in ("mirror", "upsert", "append", "insert", "overwrite")),
    *(("syncmaven", mode, "each") for mode in ("upsert", "append")),
    *(("rapidbyte", mode, "each") for mode in ("upsert", "append", "insert")),
    *(("airbyte", mode, "bare") for mode in ("mirror", "insert")),
    *((protocol, mode, "exit") for protocol in ("airbyte", "singer") for mode in ("mirror", "append", "overwrite")),
]
_EVERY_TIME = (("airbyte", "mirror", "each", CallFault.BEFORE),)
# Calls that change something; the others are read again as often as one likes.
_CALLS = (
    "seal_plan", "begin_delivery", "announce_rows", "acknowledge_rows", "announce", "promote", "begin_run", "end_run",
    "note_protocol", "prepare", "commit", "deliveries", "states", "rejected_rows", "planner",
)  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "mode", "echo", "fault"),
    [
        pytest.param(*case, fault, marks=[] if (*case, fault) in _EVERY_TIME else [pytest.mark.nightly])
        for case in _CASES
        for fault in (CallFault.BEFORE, CallFault.AFTER)
    ],
)
def test_nothing_is_skipped_and_nothing_acknowledged_is_sent_again(
    quick_folder: Path, protocol: str, mode: str, echo: str, fault: CallFault
) -> None:
    swept = SweptPush.of_fake(quick_folder, protocol, mode, echo)
    assert _faults_fired(swept, [(call, number) for call in _CALLS for number in (1, 2)], fault) > len(_CALLS)


@pytest.mark.parametrize(
    ("mode", "echo"),
    [("insert", "each"), ("update", "each"), ("overwrite", "each"), ("mirror", "bare"), ("append", "exit")],
)
def test_an_acknowledgement_that_fails_is_no_loss_in_any_mode(quick_folder: Path, mode: str, echo: str) -> None:
    swept = SweptPush.of_fake(quick_folder, "airbyte", mode, echo)
    assert _faults_fired(swept, [("acknowledge_rows", 1)] * 2, CallFault.BEFORE) == 2


def _faults_fired(swept: SweptPush, calls: Sequence[tuple[str, int]], fault: CallFault) -> int:
    """Pushes once with each fault and once without. Returns how many faults there were."""
    table, fired = swept.table, 0
    swept.people = {number: person(number) for number in range(12)}
    for turn, (call, number) in enumerate(calls, start=1):
        swept.change(turn)
        where = f"{call} {number} failed {fault} its effect"
        table.faults = CallFaults({(call, number): fault})
        had, shown = len(table.received()), table.shown() if swept.mode == "overwrite" else []
        with suppress(ProtoError):
            report = table.contacts()
            assert report.sent == report.acknowledged + report.rejected + report.unknown, where
            assert report.status == "complete" or report.error, where
        fired += len(table.faults.fired)
        table.faults = None
        swept.check_shown(shown, where)
        proved, had_then = swept.proved(), len(table.received())
        final = table.contacts(retries_unknown=True)
        assert (final.status, final.error) == ("complete", None), where
        swept.check_sent_since(had_then, proved, where)
        assert len(table.received()) > had, where
        swept.check(where)
    return fired


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
    # The delivered table may have the rows, or not: the next push finds out.
    is_unknown = call.startswith("commit") and fault is CallFault.AFTER
    assert (report.status, contacts.status) == (("unknown", "unknown") if is_unknown else ("partial", "failed"))
    assert contacts.error
    assert contacts.sent == contacts.acknowledged + contacts.rejected + contacts.unknown
    assert contacts.sent >= len(table.received("contacts"))
    table.faults = None
    again = table.run()
    assert again.status == "complete"
    assert again.streams["vendors"].sent == 0
    assert {row["id"] for row in table.received("contacts")} == people.keys()
    assert table.delivered().keys() == people.keys()
