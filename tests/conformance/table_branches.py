"""The conformance of a TableWriter that supports branches. It uses the same `bench` as the rest of the conformance."""

from collections.abc import Sequence
from functools import partial

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import InternalError, TableError
from dagster_airbyte_proto.loads.load import BranchPosition, FileContent, HighWaterMark, StagedRows
from dagster_airbyte_proto.loads.table import KeyQuery, TableSpec, TableTarget
from dagster_airbyte_proto.model import REPLACING, WriteMode
from dagster_airbyte_proto.schema.evolution import ChangeKind
from dagster_airbyte_proto.tables.writer import SupportsBranches, SupportsKeyLookup, TableWriter
from tests.conformance.table_rows import (
    SCHEMA,
    Bench,
    before_commit,
    names,
    part,
    part_of,
    position_deletes,
    staged,
    table_name,
)

BRANCH = "airbyte_proto_shop_generation_2"
OLD = [(1, "old"), (2, "old")]


def branch_part(
    target: TableTarget,
    write: WriteMode,
    rows: Sequence[tuple[int, str]],
    *,
    after: str | None = None,
    publishes: bool = False,
    branch: str = BRANCH,
) -> StagedRows:
    """Returns a part on a branch as staging makes it: from the second load on with the keys that it upserts."""
    is_upsert = write is WriteMode.OVERWRITE_DEDUP and after is not None
    written = [{"id": number, "name": text} for number, text in rows]
    made = part(target, WriteMode.APPEND_DEDUP if is_upsert else write, written)
    return msgspec.structs.replace(made, write=write, branch_position=BranchPosition(branch, after, publishes))


def branches(writer: TableWriter, target: TableTarget) -> dict[str, str]:
    assert isinstance(writer, SupportsBranches)
    return dict(writer.branches(target.name))


def drop(writer: TableWriter, target: TableTarget, branch: str = BRANCH) -> None:
    assert isinstance(writer, SupportsBranches)
    writer.drop_branch(target.name, branch)


def _ids(target: TableTarget) -> list[int]:
    return [int(field.metadata[b"PARQUET:field_id"]) for field in target.schema]


def _landed(writer: TableWriter, load_id: str, load: StagedRows) -> None:
    assert not writer.commit(load_id, load).was_there


def _columns_change(bench: Bench, old: TableTarget, loads: int) -> None:
    """The key becomes text, one column is dropped and another added. Readers see none of it before the new rows.

    Rows that another writer adds with the old columns are replaced with them.
    """
    write = WriteMode.OVERWRITE_DEDUP
    spec = TableSpec(old.name, pa.schema([("id", pa.string()), ("size", pa.int64())]), replaces=True)
    target = bench.writer.prepare(spec)
    changes = {(change.kind, change.column) for change in target.fit.changes}
    assert changes >= {
        (ChangeKind.COLUMN_RETYPED, "id"),
        (ChangeKind.COLUMN_DROPPED, "name"),
        (ChangeKind.COLUMN_ADDED, "size"),
    }
    assert (target.schema.names, target.schema_id is None) == (["id", "size"], False)
    # A second call, and a writer that lands the load of a dead run, get the same answer.
    for writer in (bench.other, bench.writer):
        again = writer.prepare(spec)
        assert (again.schema, again.schema_id) == (target.schema, target.schema_id)
    # Columns that another writer adds at the same time share no field id with the new ones.
    wider = bench.other.prepare(TableSpec(old.name, pa.schema([*SCHEMA, ("more", pa.string())]), ("id",)))
    assert not set(_ids(wider)[-1:]) & set(_ids(target))
    rows: list[list[dict[str, object]]] = [[{"id": "a", "size": 1}, {"id": "b", "size": 1}]]
    if loads == 2:
        rows.append([{"id": "b", "size": 2}])
    assert names(bench.read(old)) == OLD
    for number, some in enumerate(rows):
        after, publishes = f"l{number - 1}" if number else None, number == len(rows) - 1
        made = part(target, WriteMode.APPEND_DEDUP if number else write, some)
        place = BranchPosition(BRANCH, after, publishes, schema_id=target.schema_id)
        load = msgspec.structs.replace(made, write=write, branch_position=place)
        if publishes:
            late = part(wider, WriteMode.APPEND, [{"id": 7, "name": "x", "more": "m"}])
            before_commit(partial(_landed, bench.other, "x1", late))
        committed = bench.writer.commit(f"l{number}", load)
        if publishes:
            assert bench.other.commit(f"l{number}", load).was_there
            break
        assert (names(bench.read(old)), committed.deleted) == (OLD, 0)
        assert "size" not in bench.read(old)[0]
        assert bench.writer.prepare(spec._replace(resumed_branch=BRANCH)).schema == target.schema
        if isinstance(bench.writer, SupportsKeyLookup):
            query = KeyQuery(pa.table({"id": ["b"]}), ("id", "size"))
            assert bench.writer.rows_with_keys(old.name, query, BRANCH).to_pylist() == [{"id": "b", "size": 1}]
    expected = [{"id": "a", "size": 1}, {"id": "b", "size": loads}]
    assert sorted(bench.read(target), key=lambda row: str(row["id"])) == expected
    assert bench.writer.prepare(spec).schema_id is None
    plain = bench.writer.prepare(spec._replace(replaces=False))
    assert (plain.schema, plain.fit.changes) == (target.schema, ())
    bench.writer.commit("p1", part(plain, WriteMode.APPEND_DEDUP, [{"id": "a", "size": 9}]))
    assert sorted((row["id"], row["size"]) for row in bench.read(target)) == [("a", 9), ("b", loads)]


class NewColumnsConformance:
    """The conformance of a TableWriter that changes columns together with the rows, with branches or without."""

    @pytest.fixture
    def old(self, bench: Bench) -> TableTarget:
        """A table with two rows from two loads. The second load is an upsert."""
        target = bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
        for number in range(2):
            rows = [{"id": i, "name": "old"} for i in (1, 2)]
            bench.writer.commit(f"old{number}", part(target, WriteMode.APPEND_DEDUP, rows))
        return target

    def test_columns_change_with_the_rows(self, bench: Bench, old: TableTarget) -> None:
        _columns_change(bench, old, loads=1)


class BranchConformance(NewColumnsConformance):
    @pytest.mark.everyday("overwrite_dedup")
    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_the_parts_of_a_branch_are_shown_all_at_once(
        self, bench: Bench, old: TableTarget, write: WriteMode
    ) -> None:
        first = bench.writer.commit("l1", branch_part(old, write, [(1, "a"), (3, "a")]))
        assert (names(bench.read(old)), first.deleted) == (OLD, 0)
        bench.other.commit("l2", branch_part(old, write, [(4, "b")], after="l1"))
        assert names(bench.read(old)) == OLD
        assert branches(bench.writer, old) == branches(bench.other, old) == {BRANCH: "l2"}
        last = bench.writer.commit("l3", branch_part(old, write, [(5, "c")], after="l2", publishes=True))
        assert names(bench.read(old)) == [(1, "a"), (3, "a"), (4, "b"), (5, "c")]
        assert last.deleted >= len(OLD)
        assert branches(bench.writer, old) == {}

    def test_an_upsert_on_a_branch_reaches_older_loads_of_the_branch(self, bench: Bench, old: TableTarget) -> None:
        write = WriteMode.OVERWRITE_DEDUP
        bench.writer.commit("l1", branch_part(old, write, [(1, "a"), (2, "a"), (3, "a")]))
        bench.writer.commit("l2", branch_part(old, write, [(2, "b"), (4, "b")], after="l1"))
        files = [staged(old, [{"id": 3, "name": "lost"}, {"id": 3, "name": "c"}])]
        keys = part(old, WriteMode.APPEND_DEDUP, [{"id": 3}]).files
        files += [
            position_deletes(old, files[0], 0),
            *(file for file in keys if file.content is FileContent.EQUALITY_DELETES),
        ]
        load = part_of(old, write, *files)
        bench.writer.commit(
            "l3", msgspec.structs.replace(load, branch_position=BranchPosition(BRANCH, "l2", publishes=True))
        )
        assert names(bench.read(old)) == [(1, "a"), (2, "b"), (3, "c"), (4, "b")]
        bench.writer.commit("l4", part(old, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "newer"}]))
        assert names(bench.read(old))[0] == (1, "newer")

    def test_rows_of_a_branch_are_found_and_how_new_they_are_is_known(self, bench: Bench, old: TableTarget) -> None:
        writer, write = bench.writer, WriteMode.OVERWRITE_DEDUP
        if not isinstance(writer, SupportsKeyLookup):
            pytest.skip("its tables are not asked for rows")
        before = writer.freshness(old.name)
        assert writer.freshness(old.name, BRANCH).has_rows is False
        loads = [branch_part(old, write, [(1, "a"), (3, "a")]), branch_part(old, write, [(1, "b")], after="l0")]
        loads.append(branch_part(old, write, [(4, "c")], after="l1", publishes=True))
        versions = {before.version}
        for number, load in enumerate(loads):
            version = writer.freshness(old.name, BRANCH).version if number else ""
            mark = HighWaterMark(("name",), ("z",), "2026", "another" if number == 1 else version)
            writer.commit(f"l{number}", msgspec.structs.replace(load, high_water_mark=mark))
            freshness = writer.freshness(old.name, None if number == 2 else BRANCH)
            assert (freshness.has_rows, freshness.high_water_mark) == (True, None if number == 1 else mark)
            versions.add(freshness.version)
            if number == 1:
                keys = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
                found = writer.rows_with_keys(old.name, KeyQuery(keys, ("id", "name")), BRANCH).to_pylist()
                assert names(found) == [(1, "b"), (3, "a")]
                assert writer.greatest_values(old.name, ["id"], BRANCH).to_pylist() == [{"id": 3}]
                assert writer.freshness(old.name) == before
        assert len(versions) == 4

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_branch_of_a_new_table_is_published(self, bench: Bench, write: WriteMode) -> None:
        target = bench.writer.prepare(TableSpec(table_name(), SCHEMA))
        bench.writer.commit("l1", branch_part(target, write, [(1, "a")]))
        assert bench.read(target) == []
        committed = bench.writer.commit("l2", branch_part(target, write, [(2, "b")], after="l1", publishes=True))
        assert names(bench.read(target)) == [(1, "a"), (2, "b")]
        assert (committed.was_there, committed.deleted) == (False, 0)
        bench.writer.commit("l3", part(target, WriteMode.APPEND, [{"id": 3, "name": "c"}]))
        assert len(bench.read(target)) == 3

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_part_without_rows_publishes(self, bench: Bench, old: TableTarget, write: WriteMode) -> None:
        bench.writer.commit("l1", branch_part(old, write, [(3, "a")]))
        nothing = branch_part(old, write, [], after="l1", publishes=True)
        first = bench.writer.commit("l2", nothing)
        assert names(bench.read(old)) == [(3, "a")]
        again = bench.other.commit("l2", nothing)
        assert (again.was_there, again.snapshot_id) == (True, first.snapshot_id)

    @pytest.mark.everyday("overwrite_dedup")
    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_load_lands_aside_once(self, bench: Bench, old: TableTarget, write: WriteMode) -> None:
        loads = {
            "l1": branch_part(old, write, [(1, "a")]),
            "l2": branch_part(old, write, [(2, "b")], after="l1"),
            "l3": branch_part(old, write, [(3, "c")], after="l2", publishes=True),
        }
        first = {}
        for load_id, load in loads.items():
            first[load_id] = bench.writer.commit(load_id, load).snapshot_id
            for writer in (bench.writer, bench.other):
                again = writer.commit(load_id, load)
                assert (again.was_there, again.snapshot_id) == (True, first[load_id])
        bench.writer.commit("l4", part(old, WriteMode.APPEND, [{"id": 4, "name": "d"}]))
        for load_id, load in loads.items():
            assert bench.other.commit(load_id, load).was_there
        assert names(bench.read(old)) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
        assert branches(bench.writer, old) == {}

    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_a_paused_writer_lands_nothing_on_a_branch_again(self, bench: Bench, old: TableTarget, number: int) -> None:
        """It wakes up after another writer has landed its load, all later ones, and the next generation."""
        write = WriteMode.OVERWRITE
        loads = [
            branch_part(old, write, [(1, "a")]),
            branch_part(old, write, [(2, "b")], after="l0"),
            branch_part(old, write, [(3, "c")], after="l1", publishes=True),
        ]
        for i in range(number):
            bench.writer.commit(f"l{i}", loads[i])

        def recovered() -> None:
            for i in range(number, len(loads)):
                _landed(bench.other, f"l{i}", loads[i])
            branch = "airbyte_proto_shop_generation_3"
            _landed(bench.other, "m0", branch_part(old, write, [(8, "n")], branch=branch))
            _landed(bench.other, "m1", branch_part(old, write, [(9, "n")], after="m0", publishes=True, branch=branch))

        before_commit(recovered)
        assert bench.writer.commit(f"l{number}", loads[number]).was_there
        assert names(bench.read(old)) == [(8, "n"), (9, "n")]
        assert branches(bench.writer, old) == {}

    def test_a_paused_writer_lands_nothing_on_a_branch_that_went_on(self, bench: Bench, old: TableTarget) -> None:
        first = branch_part(old, WriteMode.OVERWRITE, [(1, "a")])

        def continued() -> None:
            _landed(bench.other, "l1", first)
            _landed(bench.other, "l2", branch_part(old, WriteMode.OVERWRITE, [(2, "b")], after="l1"))

        before_commit(continued)
        assert bench.writer.commit("l1", first).was_there
        assert branches(bench.writer, old) == {BRANCH: "l2"}

    def test_rows_that_others_add_in_the_meantime_are_replaced_too(self, bench: Bench, old: TableTarget) -> None:
        bench.writer.commit("l1", branch_part(old, WriteMode.OVERWRITE, [(5, "a")]))
        bench.writer.commit("x1", part(old, WriteMode.APPEND, [{"id": 7, "name": "x"}]))
        assert names(bench.read(old)) == [*OLD, (7, "x")]
        last = branch_part(old, WriteMode.OVERWRITE, [(6, "b")], after="l1", publishes=True)
        before_commit(lambda: _landed(bench.other, "x2", part(old, WriteMode.APPEND, [{"id": 8, "name": "x"}])))
        assert not bench.writer.commit("l2", last).was_there
        assert names(bench.read(old)) == [(5, "a"), (6, "b")]

    def test_a_load_that_comes_after_another_than_the_last_is_refused(self, bench: Bench, old: TableTarget) -> None:
        bench.writer.commit("l1", branch_part(old, WriteMode.OVERWRITE, [(1, "a")]))
        bench.writer.commit("l2", branch_part(old, WriteMode.OVERWRITE, [(2, "b")], after="l1"))
        for publishes in (False, True):
            stray = branch_part(old, WriteMode.OVERWRITE, [(3, "c")], after="l1", publishes=publishes)
            with pytest.raises(TableError, match="ends with load l2"):
                bench.writer.commit("l3", stray)
        assert (names(bench.read(old)), branches(bench.writer, old)) == (OLD, {BRANCH: "l2"})

    def test_a_branch_starts_from_scratch(self, bench: Bench, old: TableTarget) -> None:
        bench.writer.commit("l1", branch_part(old, WriteMode.OVERWRITE, [(1, "a")]))
        bench.writer.commit("m1", branch_part(old, WriteMode.OVERWRITE, [(2, "b")]))
        assert branches(bench.writer, old) == {BRANCH: "m1"}
        bench.writer.commit("m2", branch_part(old, WriteMode.OVERWRITE, [], after="m1", publishes=True))
        assert names(bench.read(old)) == [(2, "b")]

    def test_a_dropped_branch_is_gone_and_takes_no_load(self, bench: Bench, old: TableTarget) -> None:
        other_branch = "airbyte_proto_shop_generation_9"
        bench.writer.commit("l1", branch_part(old, WriteMode.OVERWRITE, [(3, "a")]))
        bench.writer.commit("k1", branch_part(old, WriteMode.OVERWRITE, [(4, "k")], branch=other_branch))
        for writer in (bench.writer, bench.other):
            drop(writer, old)
        assert branches(bench.writer, old) == {other_branch: "k1"}
        for publishes in (False, True):
            late = branch_part(old, WriteMode.OVERWRITE, [(5, "b")], after="l1", publishes=publishes)
            with pytest.raises(TableError, match="no longer exists"):
                bench.writer.commit("l2", late)
        assert names(bench.read(old)) == OLD
        bench.writer.commit("n1", part(old, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "newer"}]))
        last = branch_part(old, WriteMode.OVERWRITE, [], after="k1", publishes=True, branch=other_branch)
        assert bench.writer.commit("k2", last).table_rows == 1
        assert names(bench.read(old)) == [(4, "k")]

    def test_columns_change_with_the_rows_of_several_loads(self, bench: Bench, old: TableTarget) -> None:
        _columns_change(bench, old, loads=2)

    def test_columns_of_a_generation_that_is_dropped_are_never_seen(self, bench: Bench, old: TableTarget) -> None:
        spec = TableSpec(old.name, pa.schema([("id", pa.string())]), replaces=True)
        target = bench.writer.prepare(spec)
        made = part(target, WriteMode.OVERWRITE, [{"id": "a"}])
        bench.writer.commit(
            "l1", msgspec.structs.replace(made, branch_position=BranchPosition(BRANCH, schema_id=target.schema_id))
        )
        drop(bench.writer, old)
        assert names(bench.read(old)) == OLD
        again = bench.writer.prepare(TableSpec(old.name, SCHEMA, ("id",)))
        assert (again.schema, again.fit.changes) == (old.schema, ())
        bench.writer.commit("p1", part(again, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "newer"}]))
        assert names(bench.read(old)) == [(1, "newer"), (2, "old")]

    def test_a_table_that_never_existed_has_no_branches(self, bench: Bench, old: TableTarget) -> None:
        missing = old._replace(name=table_name())
        assert branches(bench.writer, missing) == {}
        drop(bench.writer, missing)

    def test_only_parts_that_replace_a_table_go_to_a_branch(self, bench: Bench, old: TableTarget) -> None:
        load = branch_part(old, WriteMode.OVERWRITE, [(1, "a")])
        with pytest.raises(InternalError):
            bench.writer.commit("l1", msgspec.structs.replace(load, write=WriteMode.APPEND))

    def test_a_part_that_was_staged_for_a_table_of_before_goes_to_no_branch(
        self, bench: Bench, old: TableTarget
    ) -> None:
        load = branch_part(old, WriteMode.OVERWRITE, [(1, "a")], publishes=True)
        with pytest.raises(TableError, match="another table has its name now"):
            bench.writer.commit("l1", msgspec.structs.replace(load, table_id="that of before"))
        assert (names(bench.read(old)), branches(bench.writer, old)) == (OLD, {})
