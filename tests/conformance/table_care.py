"""The conformance of a TableCare and a TableRewinder, for formats that have snapshots. It uses the same
`bench`."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.tables.care import CompactionResult, ProtectedFiles, TableCare
from dagster_airbyte_proto.tables.formats import care_of, rewinder_of
from tests.conformance.table_rows import Bench, NewTable, before_commit, names, part, part_of, position_deletes, staged

LONG_AGO = datetime.now(UTC) - timedelta(days=9)


def _upserted(bench: Bench, target: TableTarget, loads: Sequence[int]) -> list[str]:
    """Commits loads that each have a row of their own and a row that all have. Returns their snapshots."""
    rows = [[{"id": 0, "name": f"n{number}"}, {"id": number + 1, "name": "own"}] for number in loads]
    parts = [(number, part(target, WriteMode.APPEND_DEDUP, each)) for number, each in zip(loads, rows, strict=True)]
    return [bench.writer.commit(f"l{number}", each).snapshot_id for number, each in parts]


def _appended(bench: Bench, target: TableTarget) -> None:
    """Five loads with a file each."""
    for number in range(5):
        bench.writer.commit(f"p{number}", part(target, WriteMode.APPEND, [{"id": 100 + number, "name": "plain"}]))


def _left_behind(target: TableTarget, name: str) -> str:
    """Writes a file that is in no snapshot, and is old enough to be removed."""
    path = Path(target.location) / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows")
    os.utime(path, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))
    return str(path)


class CaredForTableConformance(NewTable):
    @pytest.fixture
    def care(self, bench: Bench) -> TableCare:
        return care_of(bench.writer)

    def test_a_table_that_is_compacted_and_rid_of_its_past_has_the_same_rows(
        self, bench: Bench, care: TableCare, target: TableTarget
    ) -> None:
        _appended(bench, target)
        _upserted(bench, target, range(2))
        before = names(bench.read(target))
        assert len(before) == 8
        facts = care.facts(target.name)
        assert (facts.table, facts.rows, facts.last_load) == (str(target.name), 8, "l1")
        assert facts.files >= 7 and facts.small_files == facts.files and facts.delete_files > 0
        assert [name for name, _ in facts.columns] == target.schema.names
        loads = {change.load_id: change for change in care.history(target.name).changes if change.load_id}
        assert [*loads] == [*(f"p{number}" for number in range(5)), "l0", "l1"]
        assert (loads["p0"].added_rows, loads["p0"].removed_rows, loads["p0"].stream) == (1, 0, "users")
        assert loads["l1"].added_rows == 2 and loads["l1"].deletes > 0

        done = care.compact(target.name)

        assert (done.rewritten_files, done.written_files, done.attempts) == (facts.files, 1, 1)
        assert names(bench.read(target)) == before
        facts = care.facts(target.name)
        assert (facts.files, facts.delete_files, facts.rows) == (1, 0, 8)
        assert care.history(target.name).changes[-1].operation == "compact"
        again = care.compact(target.name)
        assert (again.rewritten_files, again.removed_delete_files) == (0, 0)

        history = care.history(target.name)
        old = [change.snapshot_id for change in history.changes if change.snapshot_id != history.current]
        files = len([*Path(target.location).rglob("*.parquet")])
        assert care.expire(target.name, old) == len(old)
        assert care.expire(target.name, old) == 0
        assert files - len([*Path(target.location).rglob("*.parquet")]) >= 7
        assert set(old).isdisjoint(change.snapshot_id for change in care.history(target.name).changes)
        assert names(bench.read(target)) == before
        bench.writer.commit("l9", part(target, WriteMode.APPEND_DEDUP, [{"id": 0, "name": "last"}]))
        assert names(bench.read(target))[0] == (0, "last")
        assert len(bench.read(target)) == 8

    def test_a_compaction_that_keeps_deletes_writes_no_file_again_for_a_few_deleted_rows(
        self, bench: Bench, care: TableCare, target: TableTarget
    ) -> None:
        first = [{"id": number, "name": "first"} for number in range(10)]
        bench.writer.commit("l0", part(target, WriteMode.APPEND, first))
        bench.writer.commit("l1", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "newer"}]))
        facts = care.facts(target.name)
        assert facts.delete_files == 1
        assert care.compact(target.name, keeps_deletes=True) == CompactionResult()
        assert care.facts(target.name) == facts
        for number in range(3):
            bench.writer.commit(f"p{number}", part(target, WriteMode.APPEND, [{"id": 100 + number, "name": "plain"}]))
        before, files = names(bench.read(target)), care.facts(target.name).files
        assert care.compact(target.name, keeps_deletes=True).rewritten_files == files
        assert (names(bench.read(target)), care.facts(target.name).files) == (before, 1)

    @pytest.mark.parametrize("write", [WriteMode.APPEND, WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE])
    def test_a_load_that_comes_while_its_table_is_compacted_is_neither_lost_nor_doubled(
        self, bench: Bench, care: TableCare, target: TableTarget, write: WriteMode
    ) -> None:
        _appended(bench, target)
        load = part(target, write, [{"id": 100, "name": "late"}])
        before_commit(lambda: _compacts(care, target))
        assert not bench.writer.commit("late", load).was_there
        kept = [] if write is WriteMode.OVERWRITE else [(100 + number, "plain") for number in range(5)]
        old = [(100, "plain")] if write is WriteMode.APPEND_DEDUP else []
        expected = [each for each in kept if each not in old]
        assert names(bench.read(target)) == sorted([(100, "late"), *expected], key=repr)
        assert bench.other.commit("late", load).was_there

    def test_files_that_no_snapshot_has_go_but_those_that_may_still_be_committed(
        self, bench: Bench, care: TableCare, target: TableTarget
    ) -> None:
        _upserted(bench, target, range(2))
        dead, at_work = _left_behind(target, "run-dead/a b.parquet"), _left_behind(target, "run-live/a.parquet")
        announced = _left_behind(target, "run-other/a.parquet")
        young = staged(target, [{"id": 1, "name": "x"}])
        before = datetime.now(UTC) - timedelta(days=3)
        but = ProtectedFiles(frozenset((announced,)), frozenset(("live",)))
        assert care.remove_orphans(target.name, before=before, protected=but) == (dead,)
        assert [Path(path).exists() for path in (dead, at_work, announced, young.path)] == [False, True, True, True]
        assert len(bench.read(target)) == 3
        bench.writer.commit("young", part_of(target, WriteMode.APPEND, young))
        assert len(bench.read(target)) == 4

    def test_a_table_is_taken_back_and_forward_and_nothing_undone_lands_again(
        self, bench: Bench, care: TableCare, target: TableTarget
    ) -> None:
        rewinder = rewinder_of(bench.writer)
        snapshots = _upserted(bench, target, range(3))
        load = part_of(target, WriteMode.APPEND, staged(target, [{"id": 7, "name": "undone"}]))
        bench.writer.commit("undone", load)
        latest = care.history(target.name).current
        care.compact(target.name)
        seen = rewinder.past(target.name)
        assert not rewinder.rewind(target.name, latest, seen=seen, version=1)
        assert rewinder.rewind(target.name, snapshots[1], seen=seen, version=3)
        assert names(bench.read(target)) == [(0, "n1"), (1, "own"), (2, "own")]
        for writer in (bench.writer, bench.other):
            assert writer.commit("undone", load).was_there
        with pytest.raises(TableError, match="has changed since it was looked at"):
            rewinder.rewind(target.name, snapshots[0], seen=seen, version=4)
        assert not rewinder.rewind(target.name, snapshots[1], seen=rewinder.past(target.name), version=4)
        past = rewinder.past(target.name)
        assert [each.version for each in past.rewinds] == [3]
        assert care.history(target.name).changes[-1].operation == "rollback"
        file = staged(target, [{"id": 0, "name": "twice"}, {"id": 0, "name": "newer"}])
        keys = part(target, WriteMode.APPEND_DEDUP, [{"id": 0, "name": ""}]).files[1]
        upsert = part_of(target, WriteMode.APPEND_DEDUP, file, keys, position_deletes(target, file, 0))
        bench.writer.commit("l8", upsert)
        assert names(bench.read(target)) == [(0, "newer"), (1, "own"), (2, "own")]
        assert rewinder.rewind(target.name, latest, seen=rewinder.past(target.name), version=5)
        assert names(bench.read(target)) == [(0, "n2"), *((i, "own") for i in range(1, 4)), (7, "undone")]
        assert rewinder.rewind(target.name, None, seen=rewinder.past(target.name), version=6)
        assert bench.read(target) == []
        bench.writer.commit("l9", part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
        assert names(bench.read(target)) == [(1, "a")]


def _compacts(care: TableCare, target: TableTarget) -> None:
    assert care.compact(target.name).rewritten_files >= 5
