"""Rows that are rejected, by us or by the destination: counted once, remembered, and sent once they are mended."""

from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.loads.push import RejectedRow, SealedPlan
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.push.content import refused_rows
from dagster_airbyte_proto.sync.push.content.refused_rows import RefusedRows
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults
from tests.sync.push.pushed_table import PushedTable, person

_NAN = float("nan")


def test_a_row_of_a_later_batch_waits_for_its_proof_though_it_was_refused_first() -> None:
    refused, ours, shown = RefusedRows(), RejectedRow(15, "no text"), RejectedRow(3, "no home")
    refused.add([ours])
    refused.add([shown])
    assert refused.before(10) == [shown]
    refused.stored(10)
    assert refused.before(20) == [ours]
    assert refused.count == 2


def test_rows_that_another_attempt_rejects_again_are_counted_once(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="overwrite")
    table.push["max_rejected"] = "50 %"
    table.config |= {"rejects": True, "hangs_after": 8, "once": str(table.folder / "once")}
    table.silence_seconds = 2.0
    table.fill([person(number, bad=number < 3, score=_NAN if number == 4 else 0.5) for number in range(10)])
    report = table.contacts()
    assert (report.status, report.sent, report.rejected, report.unnamed) == ("complete", 10, 4, 3)
    assert report.rejections == {"score is nan, which JSON does not have": 1}


_NOT_IN_JSON = {"score is nan, which JSON does not have": 1}


def test_the_push_that_brings_a_plan_to_its_end_says_what_was_rejected_before(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.config |= {"dies_after": 13, "once": str(table.folder / "once")}
    table.fill([person(number, score=_NAN if number in (2, 23) else 0.5) for number in range(1, 24)])
    died = table.contacts()
    assert (died.status, died.rejected, died.rejections_before) == ("failed", 1, {})
    again = table.contacts()
    assert (again.status, again.rejections, again.rejections_before) == ("complete", _NOT_IN_JSON, _NOT_IN_JSON)
    assert table.contacts().rejections_before == {}


def test_a_push_says_what_was_rejected_where_the_one_before_could_not_remember_it(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(number, score=_NAN if number == 2 else 0.5) for number in range(1, 8)])
    table.faults = CallFaults({("commit _pushes.crm__contacts", 1): CallFault.BEFORE})
    assert (table.contacts().status, table.faults.fired != []) == ("failed", True)
    table.faults = None
    again = table.contacts()
    assert (again.status, again.sent, again.rejections_before) == ("complete", 0, _NOT_IN_JSON)
    assert table.contacts().rejections_before == {}


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
def test_rows_of_which_the_destination_counts_too_few_are_not_acknowledged(quick_folder: Path, mode: str) -> None:
    table = PushedTable(quick_folder, mode=mode)
    table.config["loses"] = True
    table.fill([person(number, bad=number == 7) for number in range(1, 24)])
    report = table.contacts()
    acknowledged = 5 if mode == "upsert" else 0
    assert (report.status, report.acknowledged, report.retryable) == ("failed", acknowledged, False)
    assert report.sent == report.acknowledged + report.unknown
    assert "too small a count: it counted 4 records and rejected 0, of 5 that were sent" in (report.error or "")
    assert "None of these rows counts as acknowledged" in (report.error or "")
    if mode == "upsert":
        assert table.delivered().keys() == set(range(1, 6))
    table.config["loses"] = False
    assert table.contacts().acknowledged == 23 - acknowledged
    rows = list(table.held().values()) if mode == "upsert" else table.shown()
    assert {row["id"] for row in rows} == set(range(1, 24))


@pytest.mark.parametrize(("counted", "proof"), [(1, "exit"), (99, "state")])
def test_counts_of_the_destination_that_differ_are_in_the_report(quick_folder: Path, counted: int, proof: str) -> None:
    table = PushedTable(quick_folder)
    table.config["miscounts"] = counted
    table.options["acknowledge"] = proof
    table.fill([person(number) for number in range(1, 6)])
    report = table.run()
    assert (report.status, report.streams["contacts"].acknowledged) == ("complete", 5)
    assert report.warnings == (
        f"the destination's counts of contacts differ: it counted {counted} records where 5 were sent",
    )


def test_rejected_rows_are_remembered_a_page_at_a_time(quick_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int | None] = []
    rejected_rows = SqlStore.rejected_rows

    def watched(store: SqlStore, plan: SealedPlan, *, start: int = 0, limit: int | None = None) -> Any:
        limits.append(limit)
        return rejected_rows(store, plan, start=start, limit=limit)

    monkeypatch.setattr(refused_rows, "_PAGE_ROWS", 3)
    monkeypatch.setattr(SqlStore, "rejected_rows", watched)
    table = PushedTable(quick_folder, mode="mirror")
    table.fill([person(number, score=_NAN if number % 2 else 0.5) for number in range(30)])
    report = table.contacts()
    assert (report.status, report.acknowledged, report.rejected) == ("complete", 15, 15)
    assert report.rejections == {"score is nan, which JSON does not have": 15}
    found = table.delivered()
    assert all((found[number]["_status"] == "rejected") == bool(number % 2) for number in range(30))
    assert set(limits) == {1, 3}


def test_a_row_is_removed_whose_last_version_was_rejected(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="mirror")
    table.fill([person(0), person(1)])
    table.contacts()
    table.fill([person(0), person(1, "new", score=_NAN)])
    assert table.contacts().rejected == 1
    table.fill([person(0)])
    assert table.contacts().planned.removed == 1
    assert table.held().keys() == table.delivered().keys() == {0}


@pytest.mark.parametrize("resets", [False, True])
def test_a_row_that_is_gone_is_removed_though_all_rows_are_sent_again(quick_folder: Path, *, resets: bool) -> None:
    table = PushedTable(quick_folder, mode="mirror")
    table.fill([person(0), person(1)])
    table.contacts()
    table.fill([person(0)])
    if resets:
        with table.engine() as engine, acquire_lease(engine.store, "crm", "reset", 30) as renewal:
            engine.store.change_state(renewal.lease, StreamId.of("contacts"), None, who="a person")
    planned = table.contacts(is_full=not resets).planned
    assert (planned.added, planned.removed) == (1, 1)
    assert table.held().keys() == table.delivered().keys() == {0}


@pytest.mark.parametrize("stops", ["rejected", pytest.param("hangs", marks=pytest.mark.nightly)])
def test_what_is_to_be_removed_is_not_forgotten_when_all_rows_are_sent_again(quick_folder: Path, stops: str) -> None:
    table = PushedTable(quick_folder, mode="mirror")
    table.fill([person(number) for number in range(20)])
    table.contacts()
    table.fill([person(number, score=_NAN if (number, stops) == (17, "rejected") else 0.5) for number in range(18)])
    if stops == "rejected":
        table.push["max_rejected"] = 0
    else:
        table.config["hangs_after"], table.silence_seconds = 8, 1.0
    assert table.contacts(is_full=True).status == "failed"
    table.config.pop("hangs_after", None)
    table.fill([person(number) for number in range(18)])
    assert table.contacts(retries_rejected=stops == "hangs").planned.removed == 2
    assert table.held().keys() == table.delivered().keys() == set(range(18))


def test_a_stopped_plan_that_could_not_be_remembered_goes_on(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="insert")
    table.push["max_rejected"] = 0
    table.fill([person(number, score=_NAN if number == 17 else 0.5) for number in range(20)])
    table.faults = CallFaults({("announce", 1): CallFault.BEFORE})
    report = table.contacts()
    assert (report.status, report.acknowledged) == ("failed", 15)
    assert "more than max_rejected" in (report.error or "")
    assert "a planned fault" in (report.error or "")
    table.faults = None
    table.fill([person(number) for number in range(20)])
    assert table.contacts().status == "failed"  # It is remembered first, and the rest is stopped again.
    assert table.contacts().status == "complete"
    assert sorted(row["id"] for row in table.received()) == list(range(20))


def test_an_insert_sends_a_rejected_row_once_it_is_mended(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, protocol="singer", mode="insert")
    table.fill([person(0), person(1, score=_NAN)])
    assert table.contacts().rejected == 1
    assert table.contacts().planned.to_send == 0
    table.fill([person(0, "renamed"), person(1)])
    assert table.contacts().acknowledged == 1
    assert table.held() == {0: person(0), 1: person(1)}


@pytest.mark.parametrize("limit", [{"max_rejected": "1 %"}, {"on_error": "fail"}])
def test_after_too_many_rejected_rows_the_next_push_has_them_as_they_are_by_then(
    quick_folder: Path, limit: dict[str, str]
) -> None:
    table = PushedTable(quick_folder)
    (table.options if "on_error" in limit else table.push).update(limit)
    table.fill([person(number, score=_NAN if number == 7 else 0.5) for number in range(10)])
    assert table.contacts().status == "failed"
    table.fill([person(number) for number in range(10)])
    assert table.contacts().status == "complete"
    assert table.held() == {number: person(number) for number in range(10)}


def test_a_stopped_plan_whose_rows_nobody_remembers_goes_on_and_says_so(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.push |= {"max_rejected": 0, "changes": "cursor", "cursor": "id"}
    table.fill([person(number, score=_NAN if number == 7 else 0.5) for number in range(8)])
    assert "A push without --full goes on with the rows as they were planned" in (table.contacts().error or "")
    table.fill([person(number) for number in range(8)])
    assert table.contacts().status == "failed"
    assert table.contacts(is_full=True).acknowledged == 8
