"""The totals of a snapshot that say how much a reader has to open."""

import pytest

from dagster_airbyte_proto.loads.load import TableTotals
from dagster_airbyte_proto.tables.iceberg.log import History, Snapshot


@pytest.mark.parametrize(
    ("version", "counted", "expected"),
    [
        (2, {"total-delete-files": 6, "total-equality-deletes": 5, "added-position-delete-files": 3}, (6, 0.0)),
        (2, {"total-delete-files": 6, "total-position-deletes": 5, "added-position-delete-files": 1}, (6, 0.0)),
        # A load changed three partitions, as an earlier one did.
        (2, {"total-delete-files": 6, "total-position-deletes": 5, "added-position-delete-files": 3}, (2, 0.0)),
        (3, {"total-delete-files": 6, "total-position-deletes": 25}, (0, 0.25)),
        (3, {"total-delete-files": 6, "total-position-deletes": 25, "total-equality-deletes": 1}, (6, 0.0)),
        (3, {}, (0, 0.0)),
    ],
)
def test_delete_files_count_as_a_reader_of_a_data_file_opens_them(
    version: int, counted: dict[str, int], expected: tuple[int, float]
) -> None:
    zeros = ("total-files-size", "total-delete-files", "total-position-deletes", "total-equality-deletes")
    numbers = {**dict.fromkeys(zeros, 0), "total-records": 100, "total-data-files": 9, **counted}
    totals = Snapshot(1, summary={key: str(number) for key, number in numbers.items()}).totals_for_readers(version)
    assert totals == TableTotals(9, expected[0], 0, expected[1])


def test_totals_that_another_writer_leaves_out_are_unknown_and_not_zero() -> None:
    snapshot = Snapshot(1, summary={"operation": "append", "added-records": "5"})
    history = History(snapshot, {}, 0, snapshot)
    assert (snapshot.rows, snapshot.stored_rows, snapshot.totals_for_readers(2)) == (None, None, None)
    assert (history.may_have_rows, history.freshness.has_rows, snapshot.may_have_deletes) == (True, True, True)
    assert not History(Snapshot(1, summary={"total-records": "0"}), {}, 0, None).may_have_rows
