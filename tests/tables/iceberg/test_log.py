"""The totals of a snapshot that say how much a reader has to open."""

import pytest

from dagster_airbyte_proto.loads.load import TableTotals
from dagster_airbyte_proto.tables.formats import LOAD_ID
from dagster_airbyte_proto.tables.iceberg.log import History, Snapshot, TableLog, snapshots_since


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


def _log(*snapshots: tuple[int, int | None, str]) -> TableLog:
    made = [Snapshot(number, 0, parent, {LOAD_ID: load_id}) for number, parent, load_id in snapshots]
    return TableLog(2, "/t", 1, 0, (), 0, (), snapshots=tuple(made))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        # Snapshot 1 was cut off from its parent before, and stays so.
        ([(1, 0, "l1"), (2, 1, "l2")], []),
        ([(2, 1, "l2"), (3, 2, "l3")], []),
        ([(1, 0, "l1"), (2, 1, "l2"), (3, 1, "other"), (4, None, "own")], [4]),
        # On top of another load, of itself by the same id, and in no lineage: all count.
        ([(1, 0, "l1"), (2, 1, "l2"), (3, 2, "own"), (4, 3, "l4"), (5, 4, "own")], [3, 5]),
        ([(2, 1, "l2"), (4, 3, "l4")], None),
        ([(3, 2, "own"), (5, 4, "l5")], None),
    ],
)
def test_snapshots_since_a_log_are_those_of_the_load_unless_one_expired(
    now: list[tuple[int, int | None, str]], expected: list[int] | None
) -> None:
    found = snapshots_since(_log(*now), "own", before=_log((1, 0, "l1"), (2, 1, "l2")))
    assert (found if found is None else [each.snapshot_id for each in found]) == expected
