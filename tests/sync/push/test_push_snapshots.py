"""Pushes with `changes: snapshots`: which snapshot they go on from, and what the table keeps for them."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.maintenance.care import clean
from dagster_airbyte_proto.sync.push_report import PushedStreamReport
from dagster_airbyte_proto.tables.care import CompactionResult, ProtectedFiles, SnapshotChange, TableFacts, TableHistory
from tests.sync.push.plan.spark_table import SparkPushedTable
from tests.sync.push.pushed_table import PEOPLE, PushedTable, Row, person

_COMPARED = "all rows of"
DAY = 86400.0


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, mode="mirror")
    pushed.push["changes"] = "snapshots"
    pushed.fill([person(number) for number in range(1, 24)])
    return pushed


def _pushed(table: PushedTable, *, retries_rejected: bool = False) -> tuple[PushedStreamReport, str]:
    """Pushes. Returns the report, and the notes of the log on what was compared."""
    report = table.run(retries_rejected=retries_rejected)
    notes = [line for line in Path(report.log).read_text().splitlines() if _COMPARED in line]
    return report.streams["contacts"], "\n".join(notes)


def test_a_push_without_a_new_snapshot_looks_at_no_row(table: PushedTable) -> None:
    first, notes = _pushed(table)
    assert (first.planned.added, first.acknowledged, notes) == (23, 23, "")
    nothing, notes = _pushed(table)
    assert (nothing.planned.to_send, nothing.sent, notes) == (0, 0, "")
    assert nothing.snapshot == first.snapshot


def test_a_mapping_of_the_same_fields_to_other_values_sends_them(table: PushedTable) -> None:
    """The table has no new snapshot, and the fields have the types of before."""
    for title in ("old", "new"):
        table.push["map"] = {"id": "id", "title": {"value": title}}
        report, notes = _pushed(table)
        assert report.acknowledged == 23
        assert {row["title"] for row in table.received()[-23:]} == {title}
    assert "its mapping or mode was changed" in notes
    assert _pushed(table)[0].sent == 0


def test_changes_that_cannot_be_found_are_compared(table: PushedTable) -> None:
    _pushed(table)
    table.fill([person(1, "renamed"), *(person(number) for number in range(2, 20))])
    report, notes = _pushed(table)
    assert (report.planned.changed, report.planned.removed) == (1, 4)
    assert "folder tables keep no snapshots" in notes
    assert _pushed(table)[0].sent == 0


def test_a_snapshot_with_the_same_rows_is_taken_note_of(table: PushedTable) -> None:
    _pushed(table)
    renamed = [person(number) for number in range(23, 0, -1)]
    table.fill(renamed)
    same, notes = _pushed(table)
    assert (same.sent, _COMPARED in notes) == (0, True)
    assert _pushed(table)[1] == ""


@pytest.mark.nightly
def test_all_rows_are_compared_after_a_version_that_was_given_up(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, protocol="singer", mode="mirror")
    table.push |= {"changes": "snapshots", "removals": "version"}
    table.fill([person(number) for number in range(1, 24)])
    _pushed(table)
    table.fill([person(number) for number in range(2, 24)])
    table.config |= {"dies_after": 12, "once": str(table.folder / "once")}
    assert _pushed(table)[0].status == "failed"
    table.push["removals"] = "deleted_at"
    report, notes = _pushed(table)
    assert (report.status, report.planned.removed) == ("complete", 1)
    assert "a plan since then was given up" in notes
    assert table.held().keys() == {*range(2, 24)}


def test_a_plan_that_is_given_up_leaves_the_snapshot_where_it_was(table: PushedTable) -> None:
    first = _pushed(table)[0].snapshot
    table.fill([person(number, "again") for number in range(1, 24)])
    table.config["dies_after"] = 7
    broken, _ = _pushed(table)
    assert broken.status == "failed"
    del table.config["dies_after"]
    table.push["map"] = {"id": "id", "called": "name"}
    second, notes = _pushed(table)
    assert "a plan since then was given up" in notes
    assert (second.planned.changed, second.acknowledged) == (23, 23)
    assert second.snapshot != first


def test_a_plan_of_another_mapping_that_is_forgotten_halfway_leaves_no_row_out(table: PushedTable) -> None:
    table.push["map"] = {"id": "id", "title": {"value": "old"}}
    _pushed(table)
    table.push["map"] = {"id": "id", "title": {"value": "new"}}
    table.config |= {"dies_after": 7, "once": str(table.folder / "once")}
    assert _pushed(table)[0].acknowledged == 5
    with table.engine() as engine, acquire_lease(engine.store, "crm", "set", 30) as renewal:
        [stored] = engine.store.states("crm")
        engine.store.change_state(renewal.lease, StreamId.of("contacts"), stored.state, who="a person")
    assert _pushed(table)[0].planned.changed == 18
    assert {row["id"]: row["title"] for row in table.received()} == dict.fromkeys(range(1, 24), "new")


def test_rows_of_a_table_that_is_set_back_are_found_though_it_has_no_changes_since(table: PushedTable) -> None:
    table.push["max_rejected"] = 0
    before = [person(number) for number in range(1, 24)]
    _pushed(table)
    bad = [person(number, "renamed", score=float("nan") if number == 20 else 0.5) for number in range(1, 24)]
    table.fill([person(0), *bad])
    stopped, _ = _pushed(table)
    assert stopped.status == "failed" and stopped.acknowledged > 0
    table.fill(before)
    report, notes = _pushed(table)
    assert (report.status, report.planned.removed) == ("complete", 1)
    assert "the push of those after it was given up before its end" in notes
    assert list(table.held().values()) == before
    assert (_pushed(table)[0].sent, _pushed(table)[1]) == (0, "")


def test_rows_that_a_mapping_sent_in_vain_are_sent_as_they_were_once_it_is_taken_back(table: PushedTable) -> None:
    table.push["map"] = {"id": "id", "title": {"value": "old"}}
    _pushed(table)
    table.push["map"] = {"id": "id", "title": {"value": "new"}}
    table.config |= {"dies_after": 4, "once": str(table.folder / "once")}
    assert _pushed(table)[0].acknowledged == 0
    table.push["map"] = {"id": "id", "title": {"value": "old"}}
    assert _pushed(table)[0].status == "complete"
    assert {row["id"]: row["title"] for row in table.received()} == dict.fromkeys(range(1, 24), "old")
    assert (_pushed(table)[0].sent, _pushed(table)[1]) == (0, "")


@pytest.mark.parametrize("changed", [{"mode": "upsert"}, {"nulls": "omit"}])
def test_another_mode_or_mapping_compares_all_rows(table: PushedTable, changed: Row) -> None:
    _pushed(table)
    table.push.update(changed)
    assert "mapping or mode was changed" in _pushed(table)[1]


def test_diff_and_snapshots_share_what_they_remember(table: PushedTable) -> None:
    table.push["changes"] = "diff"
    _pushed(table)
    table.push["changes"] = "snapshots"
    report, notes = _pushed(table)
    assert (report.sent, notes) == (0, "")


def test_rows_that_a_cursor_has_passed_over_are_found_by_the_first_push_by_snapshots(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.push |= {"changes": "cursor", "cursor": "id"}
    table.fill([person(number) for number in range(2, 24)])
    assert table.contacts().acknowledged == 22
    table.fill([person(number) for number in range(1, 25)])
    assert table.contacts().acknowledged == 1
    del table.push["cursor"]
    table.push["changes"] = "snapshots"
    assert "no snapshot was pushed" in _pushed(table)[1]
    assert table.held().keys() == {*range(1, 25)}
    assert (_pushed(table)[0].sent, _pushed(table)[1]) == (0, "")


def test_rejected_rows_are_looked_for_in_all_rows(table: PushedTable) -> None:
    table.fill([person(1), person(2, score=float("nan"))])
    assert _pushed(table)[0].rejected == 1
    assert _pushed(table)[0].sent == 0
    retried, _ = _pushed(table, retries_rejected=True)
    assert retried.rejected == 1


class _Care:
    """The care of a table with this history, which notes what it is to expire."""

    def __init__(self, history: TableHistory) -> None:
        self._history, self.expired = history, frozenset[str]()

    def history(self, name: TableName) -> TableHistory:  # noqa: ARG002 - as TableCare has it
        return self._history

    def expire(self, _: TableName, snapshot_ids: Collection[str]) -> int:
        self.expired = frozenset(snapshot_ids)
        return len(snapshot_ids)

    def names(self) -> Sequence[TableName]:
        return [PEOPLE]

    def facts(self, name: TableName) -> TableFacts:
        raise NotImplementedError

    def compact(self, name: TableName, *, keeps_deletes: bool = False) -> CompactionResult:
        raise NotImplementedError

    def remove_orphans(self, _: TableName, *, before: datetime, protected: ProtectedFiles) -> tuple[str, ...]:  # noqa: ARG002
        return ()


_FEED = "USING delta TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
_ICEBERG = "USING iceberg TBLPROPERTIES ('write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')"


@pytest.mark.spark
@pytest.mark.nightly
def test_a_real_table_goes_whole_as_a_version_when_rows_are_gone(
    quick_folder: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    table = SparkPushedTable(quick_folder, spark, request.getfixturevalue("spark_settings"), _ICEBERG)
    table.protocol = "singer"
    table.push["removals"] = "version"
    table.sql(f"INSERT INTO {table.name} SELECT id, concat('person ', id), 0.5, false FROM range(100)")
    assert _pushed(table)[0].acknowledged == 100
    table.sql(f"UPDATE {table.name} SET name = 'renamed' WHERE id < 3")
    assert _pushed(table)[0].sent == 3
    table.sql(f"INSERT INTO {table.name} VALUES (100, 'new', 0.5, false)")
    table.sql(f"DELETE FROM {table.name} WHERE id = 50")
    report, _ = _pushed(table)
    planned = report.planned
    assert (planned.added, planned.changed, planned.removed, planned.unchanged) == (1, 99, 1, 0)
    assert (report.status, report.acknowledged) == ("complete", 101)
    assert table.held_by_version() == table.rows()
    assert table.tagged() == [report.snapshot]
    assert _pushed(table)[0].sent == 0


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_real_table_is_pushed_from_snapshot_to_snapshot(
    quick_folder: Path, spark: SparkSession, request: pytest.FixtureRequest, kind: str
) -> None:
    settings = request.getfixturevalue("spark_settings")
    if kind == "delta":
        settings = settings._replace(
            catalog="spark_catalog", format="delta", warehouse=settings.warehouse.replace("ware house", "del ta")
        )
    table = SparkPushedTable(quick_folder, spark, settings, _FEED if kind == "delta" else _ICEBERG)
    table.sql(f"INSERT INTO {table.name} SELECT id, concat('person ', id), 0.5, false FROM range(100)")
    first, _ = _pushed(table)
    assert (first.planned.added, first.acknowledged) == (100, 100)
    if kind == "iceberg":
        assert table.tagged() == [first.snapshot]
    table.sql(f"INSERT INTO {table.name} SELECT id, concat('person ', id), 0.5, false FROM range(100, 105)")
    table.sql(f"UPDATE {table.name} SET name = 'renamed' WHERE id < 3")
    table.sql(f"DELETE FROM {table.name} WHERE id = 50")
    table.config["dies_after"] = 4
    assert _pushed(table)[0].status == "failed"
    if kind == "iceberg":
        assert table.tagged() == [first.snapshot]
    del table.config["dies_after"]
    second, notes = _pushed(table)
    assert (second.planned.added, second.planned.changed, second.planned.removed, notes) == (5, 3, 1, "")
    assert table.held() == table.rows()
    if kind == "iceberg":
        assert table.tagged() == [second.snapshot]
    nothing, notes = _pushed(table)
    assert (nothing.sent, notes) == (0, "")
    with table.engine() as engine, acquire_lease(engine.store, str(table.options["name"]), "by-hand", 30) as renewal:
        engine.store.change_state(renewal.lease, StreamId.of("contacts"), None, who="ada")
    again, _ = _pushed(table)
    assert again.planned.added == 104


def test_care_keeps_the_snapshot_from_which_a_push_goes_on(table: PushedTable) -> None:
    """Delta has no tags, and its feed ends where the log does."""
    pushed = _pushed(table)[0].snapshot
    assert pushed is not None
    moment = datetime.now(UTC)
    changes = [
        SnapshotChange(each, moment, "append", 1, 0, 0) for each in ("first", "second", pushed, "later", "current")
    ]
    shown = tuple((moment + timedelta(seconds=place), each.snapshot_id) for place, each in enumerate(changes))
    care = _Care(TableHistory(tuple(changes), shown, "current"))
    with table.engine() as engine:
        clean(engine.store, care, PEOPLE, keep_seconds=-60, orphan_seconds=DAY)
        assert care.expired == {"first", "second"}
        clean(engine.store, care, TableName("shop", "others"), keep_seconds=-60, orphan_seconds=DAY)
        assert care.expired == {"first", "second", pushed, "later"}
        with acquire_lease(engine.store, "crm", "by-hand", 30) as renewal:
            engine.store.change_state(renewal.lease, StreamId.of("contacts"), None, who="ada")
        clean(engine.store, care, PEOPLE, keep_seconds=-60, orphan_seconds=DAY)
        assert care.expired == {"first", "second", pushed, "later"}
