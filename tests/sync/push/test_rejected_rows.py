"""Rows that are rejected, by us or by the destination: counted once, remembered, and sent once they are mended."""

from pathlib import Path

from dagster_airbyte_proto.loads.push import RejectedRow
from dagster_airbyte_proto.sync.push.content.refused_rows import RefusedRows
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
