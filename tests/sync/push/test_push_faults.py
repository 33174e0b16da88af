"""A push in which any call of the store, the tables, their files or the connector fails, before its effect or after it;
or the run dies there, or sleeps past its lease while another one works.

No row is skipped, none that the store knows as acknowledged is sent again, and what a destination keeps is that of the
rows that were acknowledged. `python -m tests.simulation --through push` puts such faults together.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, SimulatedDeath
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.push.swept_push import SweptPush

_CASES = [
    *(("airbyte", mode, "each") for mode in ("mirror", "upsert", "append", "insert", "update", "overwrite")),
    *(("singer", mode, "each") for mode in ("mirror", "upsert", "append", "insert", "overwrite")),
    *(("syncmaven", mode, "each") for mode in ("upsert", "append")),
    *(("rapidbyte", mode, "each") for mode in ("upsert", "append", "insert")),
    *(("airbyte", mode, "bare") for mode in ("mirror", "insert")),
    ("singer", "mirror", "by versions"),
    *((protocol, mode, "exit") for protocol in ("airbyte", "singer") for mode in ("mirror", "append", "overwrite")),
]
# Calls that change something; the others are read again as often as one likes.
_CALLS = (
    "seal_plan", "begin_delivery", "announce_rows", "acknowledge_rows", "announce", "promote", "begin_run", "end_run",
    "note_protocol", "prepare", "commit", "deliveries", "states", "rejected_rows", "planner",
)  # fmt: skip


_TYPICAL_CALLS = (("announce_rows", 2), ("acknowledge_rows", 1), ("commit", 1), ("promote", 1))


def test_a_call_that_fails_loses_no_row_and_sends_none_again(quick_folder: Path) -> None:
    swept = SweptPush.of_fake(quick_folder, "airbyte", "mirror")
    assert _faults_fired(swept, _TYPICAL_CALLS, CallFault.BEFORE) == len(_TYPICAL_CALLS)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [CallFault.BEFORE, CallFault.AFTER])
@pytest.mark.parametrize(("protocol", "mode", "echo"), _CASES)
def test_nothing_is_skipped_and_nothing_acknowledged_is_sent_again(
    quick_folder: Path, protocol: str, mode: str, echo: str, fault: CallFault
) -> None:
    swept = SweptPush.of_fake(quick_folder, protocol, mode, echo)
    assert _faults_fired(swept, [(call, number) for call in _CALLS for number in (1, 2)], fault) > len(_CALLS)


_OF_EACH_PROTOCOL = (
    ("airbyte", "mirror", "each"),
    ("airbyte", "append", "exit"),
    ("airbyte", "overwrite", "each"),
    ("singer", "insert", "each"),
    ("syncmaven", "upsert", "each"),
    ("rapidbyte", "append", "each"),
)
_ENDS = (CallFault.DEATH_BEFORE, CallFault.DEATH_AFTER, CallFault.PAUSED, CallFault.HUNG)


def test_a_death_in_a_call_loses_no_row_and_sends_none_again(quick_folder: Path) -> None:
    swept = SweptPush.of_fake(quick_folder, "airbyte", "append", "exit")
    assert _faults_fired(swept, _TYPICAL_CALLS[:2], CallFault.DEATH_AFTER) > 0


@pytest.mark.nightly
@pytest.mark.parametrize("fault", _ENDS)
@pytest.mark.parametrize(("protocol", "mode", "echo"), _OF_EACH_PROTOCOL)
def test_the_same_holds_where_the_run_dies_or_sleeps_past_its_lease(
    quick_folder: Path, protocol: str, mode: str, echo: str, fault: CallFault
) -> None:
    swept = SweptPush.of_fake(quick_folder, protocol, mode, echo)
    calls = [(call, number) for call in _CALLS for number in (1, 2)]
    assert _faults_fired(swept, calls, fault) > len(calls) / 3


# A connector that writes is called in any order of reads and writes; of a component all is one call.
_OUTER_CALLS = (
    ("launch", 1), ("launch", 2), ("write write", 1), ("write write", 2), ("write write", 3), ("read write", 1),
    ("read write", 2), ("read write", 3), ("close_input write", 1), ("wait write", 1), ("open_input_file", 1),
    ("open_input_file", 2), ("open_input_file", 3), ("get_file_info", 1), ("get_file_info", 2), ("create_dir", 1),
    ("open_output_stream", 1), ("delete_file", 1), ("delete_dir", 1),
)  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [CallFault.BEFORE, CallFault.AFTER, CallFault.DEATH_BEFORE, CallFault.DEATH_AFTER])
@pytest.mark.parametrize(("protocol", "mode", "echo"), _OF_EACH_PROTOCOL)
def test_the_same_holds_where_the_connector_or_the_files_of_the_plan_fail(
    quick_folder: Path, protocol: str, mode: str, echo: str, fault: CallFault
) -> None:
    swept = SweptPush.of_fake(quick_folder, protocol, mode, echo)
    assert _faults_fired(swept, _OUTER_CALLS, fault) > len(_OUTER_CALLS) / 3


@pytest.mark.everyday("overwrite-each", "append-exit")
@pytest.mark.parametrize(
    ("mode", "echo"),
    [("insert", "each"), ("update", "each"), ("overwrite", "each"), ("mirror", "bare"), ("append", "exit")],
)
def test_an_acknowledgement_that_fails_is_no_loss_in_any_mode(quick_folder: Path, mode: str, echo: str) -> None:
    swept = SweptPush.of_fake(quick_folder, "airbyte", mode, echo)
    assert _faults_fired(swept, [("acknowledge_rows", 1)] * 2, CallFault.BEFORE) == 2


def _faults_fired(swept: SweptPush, calls: Sequence[tuple[str, int]], fault: CallFault) -> int:
    """Pushes once with each fault and once without. Returns how many faults there were. A push that is paused or hangs
    sleeps past its lease while another one runs to its end."""
    table, fired = swept.table, 0
    swept.people = {number: person(number) for number in range(12)}
    for turn, (call, number) in enumerate(calls, start=1):
        swept.change(turn)
        where = f"{call} {number} failed {fault} its effect"
        table.faults = CallFaults({(call, number): fault}, swept.run_meanwhile)
        had, shown = len(table.received()), table.shown() if swept.mode == "overwrite" else []
        swept.forget_meanwhile()
        with suppress(ProtoError, SimulatedDeath):
            report = table.contacts()
            assert report.sent == report.acknowledged + report.rejected + report.unknown, where
            assert report.status == "complete" or report.error, where
        fired += len(table.faults.fired)
        table.faults = None
        table.end_lease()
        swept.check_sent_meanwhile(where)
        swept.check_shown(shown, where)
        proved, had_then = swept.proved(), len(table.received())
        swept.have_unknown_sent()
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
