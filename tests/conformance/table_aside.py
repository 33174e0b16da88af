"""What every TableWriter must do whose tables keep loads aside. Part of its conformance, with the same `bench`."""

from collections.abc import Sequence
from functools import partial

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import InternalError, TableError
from dagster_airbyte_proto.loads.load import Aside, FileContent, Newest, StagedRows
from dagster_airbyte_proto.loads.table import REPLACING, Sought, TableSpec, TableTarget
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.schema.evolution import What
from dagster_airbyte_proto.tables.writer import KeepsAside, KnowsItsRows, TableWriter
from tests.conformance.table_writer import (
    SCHEMA,
    Bench,
    meanwhile,
    names,
    part,
    part_of,
    staged,
    table_name,
    taken_out,
)

BRANCH = "airbyte_proto_shop_generation_2"
OLD = [(1, "old"), (2, "old")]


def put_aside(
    target: TableTarget,
    write: WriteMode,
    rows: Sequence[tuple[int, str]],
    *,
    after: str | None = None,
    publishes: bool = False,
    branch: str = BRANCH,
) -> StagedRows:
    """Rows as staging hands them over: from the second load on with the keys that they upsert."""
    is_upsert = write is WriteMode.OVERWRITE_DEDUP and after is not None
    written = [{"id": number, "name": text} for number, text in rows]
    made = part(target, WriteMode.APPEND_DEDUP if is_upsert else write, written)
    return msgspec.structs.replace(made, write=write, aside=Aside(branch, after, publishes))


def aside(writer: TableWriter, target: TableTarget) -> dict[str, str]:
    assert isinstance(writer, KeepsAside)
    return dict(writer.aside(target.name))


def drop(writer: TableWriter, target: TableTarget, branch: str = BRANCH) -> None:
    assert isinstance(writer, KeepsAside)
    writer.drop_aside(target.name, branch)


def _ids(target: TableTarget) -> list[int]:
    return [int(field.metadata[b"PARQUET:field_id"]) for field in target.schema]


def _landed(writer: TableWriter, load_id: str, load: StagedRows) -> None:
    assert not writer.commit(load_id, load).was_there


def _columns_change(bench: Bench, old: TableTarget, loads: int) -> None:
    """The key is a text from then on, a column is gone, another comes: none of it is seen before its rows are. What
    comes in by the columns of before goes with them."""
    write = WriteMode.OVERWRITE_DEDUP
    spec = TableSpec(old.name, pa.schema([("id", pa.string()), ("size", pa.int64())]), replaces=True)
    target = bench.writer.prepare(spec)
    told = {(change.what, change.column) for change in target.fit.changes}
    assert told >= {(What.COLUMN_RETYPED, "id"), (What.COLUMN_DROPPED, "name"), (What.COLUMN_ADDED, "size")}
    assert (target.schema.names, target.schema_id is None) == (["id", "size"], False)
    # Whoever asks again, and whoever comes to land a load of a dead run, finds the same.
    for writer in (bench.other, bench.writer):
        again = writer.prepare(spec)
        assert (again.schema, again.schema_id) == (target.schema, target.schema_id)
    # What another puts in by the old columns meanwhile has no id in common with the new ones.
    wider = bench.other.prepare(TableSpec(old.name, pa.schema([*SCHEMA, ("more", pa.string())]), ("id",)))
    assert not set(_ids(wider)[-1:]) & set(_ids(target))
    rows: list[list[dict[str, object]]] = [[{"id": "a", "size": 1}, {"id": "b", "size": 1}]]
    if loads == 2:
        rows.append([{"id": "b", "size": 2}])
    assert names(bench.read(old)) == OLD
    for number, some in enumerate(rows):
        after, publishes = f"l{number - 1}" if number else None, number == len(rows) - 1
        made = part(target, WriteMode.APPEND_DEDUP if number else write, some)
        place = Aside(BRANCH, after, publishes, schema_id=target.schema_id)
        load = msgspec.structs.replace(made, write=write, aside=place)
        if publishes:
            late = part(wider, WriteMode.APPEND, [{"id": 7, "name": "x", "more": "m"}])
            meanwhile(partial(_landed, bench.other, "x1", late))
        committed = bench.writer.commit(f"l{number}", load)
        if publishes:
            assert bench.other.commit(f"l{number}", load).was_there
            break
        assert (names(bench.read(old)), committed.deleted) == (OLD, 0)
        assert "size" not in bench.read(old)[0]
        assert bench.writer.prepare(spec._replace(begun=BRANCH)).schema == target.schema
        if isinstance(bench.writer, KnowsItsRows):
            sought = Sought(pa.table({"id": ["b"]}), ("id", "size"))
            assert bench.writer.rows_of(old.name, sought, BRANCH).to_pylist() == [{"id": "b", "size": 1}]
    expected = [{"id": "a", "size": 1}, {"id": "b", "size": loads}]
    assert sorted(bench.read(target), key=lambda row: str(row["id"])) == expected
    assert bench.writer.prepare(spec).schema_id is None
    plain = bench.writer.prepare(spec._replace(replaces=False))
    assert (plain.schema, plain.fit.changes) == (target.schema, ())
    bench.writer.commit("p1", part(plain, WriteMode.APPEND_DEDUP, [{"id": "a", "size": 9}]))
    assert sorted((row["id"], row["size"]) for row in bench.read(target)) == [("a", 9), ("b", loads)]


class NewColumnsConformance:
    """What every TableWriter must do of which a generation's columns come with its rows, with branches or without."""

    @pytest.fixture
    def old(self, bench: Bench) -> TableTarget:
        """A table that two loads, the second one an upsert, have left two rows in."""
        target = bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
        for number in range(2):
            rows = [{"id": i, "name": "old"} for i in (1, 2)]
            bench.writer.commit(f"old{number}", part(target, WriteMode.APPEND_DEDUP, rows))
        return target

    def test_columns_change_with_the_rows(self, bench: Bench, old: TableTarget) -> None:
        _columns_change(bench, old, loads=1)


class AsideConformance(NewColumnsConformance):
    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_what_is_put_aside_is_shown_all_at_once(self, bench: Bench, old: TableTarget, write: WriteMode) -> None:
        first = bench.writer.commit("l1", put_aside(old, write, [(1, "a"), (3, "a")]))
        assert (names(bench.read(old)), first.deleted) == (OLD, 0)
        bench.other.commit("l2", put_aside(old, write, [(4, "b")], after="l1"))
        assert names(bench.read(old)) == OLD
        assert aside(bench.writer, old) == aside(bench.other, old) == {BRANCH: "l2"}
        last = bench.writer.commit("l3", put_aside(old, write, [(5, "c")], after="l2", publishes=True))
        assert names(bench.read(old)) == [(1, "a"), (3, "a"), (4, "b"), (5, "c")]
        assert last.deleted >= len(OLD)
        assert aside(bench.writer, old) == {}

    def test_an_upsert_aside_reaches_older_loads_of_the_branch(self, bench: Bench, old: TableTarget) -> None:
        write = WriteMode.OVERWRITE_DEDUP
        bench.writer.commit("l1", put_aside(old, write, [(1, "a"), (2, "a"), (3, "a")]))
        bench.writer.commit("l2", put_aside(old, write, [(2, "b"), (4, "b")], after="l1"))
        files = [staged(old, [{"id": 3, "name": "lost"}, {"id": 3, "name": "c"}])]
        keys = part(old, WriteMode.APPEND_DEDUP, [{"id": 3}]).files
        files += [taken_out(old, files[0], 0), *(file for file in keys if file.content is FileContent.EQUALITY_DELETES)]
        load = part_of(old, write, *files)
        bench.writer.commit("l3", msgspec.structs.replace(load, aside=Aside(BRANCH, "l2", publishes=True)))
        assert names(bench.read(old)) == [(1, "a"), (2, "b"), (3, "c"), (4, "b")]
        bench.writer.commit("l4", part(old, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "newer"}]))
        assert names(bench.read(old))[0] == (1, "newer")

    def test_rows_of_a_branch_are_found_and_how_new_they_are_is_known(self, bench: Bench, old: TableTarget) -> None:
        writer, write = bench.writer, WriteMode.OVERWRITE_DEDUP
        if not isinstance(writer, KnowsItsRows):
            pytest.skip("its tables are not asked for rows")
        before = writer.standing(old.name)
        assert writer.standing(old.name, BRANCH).has_rows is False
        loads = [put_aside(old, write, [(1, "a"), (3, "a")]), put_aside(old, write, [(1, "b")], after="l0")]
        loads.append(put_aside(old, write, [(4, "c")], after="l1", publishes=True))
        versions = {before.version}
        for number, load in enumerate(loads):
            version = writer.standing(old.name, BRANCH).version if number else ""
            newest = Newest(("name",), ("z",), "2026", "another" if number == 1 else version)
            writer.commit(f"l{number}", msgspec.structs.replace(load, newest=newest))
            standing = writer.standing(old.name, None if number == 2 else BRANCH)
            assert (standing.has_rows, standing.newest) == (True, None if number == 1 else newest)
            versions.add(standing.version)
            if number == 1:
                keys = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
                found = writer.rows_of(old.name, Sought(keys, ("id", "name")), BRANCH).to_pylist()
                assert names(found) == [(1, "b"), (3, "a")]
                assert writer.greatest(old.name, ["id"], BRANCH).to_pylist() == [{"id": 3}]
                assert writer.standing(old.name) == before
        assert len(versions) == 4

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_branch_of_a_new_table_is_published(self, bench: Bench, write: WriteMode) -> None:
        target = bench.writer.prepare(TableSpec(table_name(), SCHEMA))
        bench.writer.commit("l1", put_aside(target, write, [(1, "a")]))
        assert bench.read(target) == []
        committed = bench.writer.commit("l2", put_aside(target, write, [(2, "b")], after="l1", publishes=True))
        assert names(bench.read(target)) == [(1, "a"), (2, "b")]
        assert (committed.was_there, committed.deleted) == (False, 0)
        bench.writer.commit("l3", part(target, WriteMode.APPEND, [{"id": 3, "name": "c"}]))
        assert len(bench.read(target)) == 3

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_part_without_rows_publishes(self, bench: Bench, old: TableTarget, write: WriteMode) -> None:
        bench.writer.commit("l1", put_aside(old, write, [(3, "a")]))
        nothing = put_aside(old, write, [], after="l1", publishes=True)
        first = bench.writer.commit("l2", nothing)
        assert names(bench.read(old)) == [(3, "a")]
        again = bench.other.commit("l2", nothing)
        assert (again.was_there, again.snapshot_id) == (True, first.snapshot_id)

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_load_lands_aside_once(self, bench: Bench, old: TableTarget, write: WriteMode) -> None:
        loads = {
            "l1": put_aside(old, write, [(1, "a")]),
            "l2": put_aside(old, write, [(2, "b")], after="l1"),
            "l3": put_aside(old, write, [(3, "c")], after="l2", publishes=True),
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
        assert aside(bench.writer, old) == {}

    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_a_paused_writer_lands_nothing_aside_again(self, bench: Bench, old: TableTarget, number: int) -> None:
        """It wakes up when another has landed its load and all after it, and the next generation too."""
        write = WriteMode.OVERWRITE
        loads = [
            put_aside(old, write, [(1, "a")]),
            put_aside(old, write, [(2, "b")], after="l0"),
            put_aside(old, write, [(3, "c")], after="l1", publishes=True),
        ]
        for i in range(number):
            bench.writer.commit(f"l{i}", loads[i])

        def recovered() -> None:
            for i in range(number, len(loads)):
                _landed(bench.other, f"l{i}", loads[i])
            branch = "airbyte_proto_shop_generation_3"
            _landed(bench.other, "m0", put_aside(old, write, [(8, "n")], branch=branch))
            _landed(bench.other, "m1", put_aside(old, write, [(9, "n")], after="m0", publishes=True, branch=branch))

        meanwhile(recovered)
        assert bench.writer.commit(f"l{number}", loads[number]).was_there
        assert names(bench.read(old)) == [(8, "n"), (9, "n")]
        assert aside(bench.writer, old) == {}

    def test_a_paused_writer_lands_nothing_on_a_branch_that_went_on(self, bench: Bench, old: TableTarget) -> None:
        first = put_aside(old, WriteMode.OVERWRITE, [(1, "a")])

        def gone_on() -> None:
            _landed(bench.other, "l1", first)
            _landed(bench.other, "l2", put_aside(old, WriteMode.OVERWRITE, [(2, "b")], after="l1"))

        meanwhile(gone_on)
        assert bench.writer.commit("l1", first).was_there
        assert aside(bench.writer, old) == {BRANCH: "l2"}

    def test_what_comes_into_the_table_meanwhile_is_replaced_with_the_rest(
        self, bench: Bench, old: TableTarget
    ) -> None:
        bench.writer.commit("l1", put_aside(old, WriteMode.OVERWRITE, [(5, "a")]))
        bench.writer.commit("x1", part(old, WriteMode.APPEND, [{"id": 7, "name": "x"}]))
        assert names(bench.read(old)) == [*OLD, (7, "x")]
        last = put_aside(old, WriteMode.OVERWRITE, [(6, "b")], after="l1", publishes=True)
        meanwhile(lambda: _landed(bench.other, "x2", part(old, WriteMode.APPEND, [{"id": 8, "name": "x"}])))
        assert not bench.writer.commit("l2", last).was_there
        assert names(bench.read(old)) == [(5, "a"), (6, "b")]

    def test_a_load_that_comes_after_another_than_the_last_is_refused(self, bench: Bench, old: TableTarget) -> None:
        bench.writer.commit("l1", put_aside(old, WriteMode.OVERWRITE, [(1, "a")]))
        bench.writer.commit("l2", put_aside(old, WriteMode.OVERWRITE, [(2, "b")], after="l1"))
        for publishes in (False, True):
            stray = put_aside(old, WriteMode.OVERWRITE, [(3, "c")], after="l1", publishes=publishes)
            with pytest.raises(TableError, match="ends with load l2"):
                bench.writer.commit("l3", stray)
        assert (names(bench.read(old)), aside(bench.writer, old)) == (OLD, {BRANCH: "l2"})

    def test_a_branch_is_begun_anew(self, bench: Bench, old: TableTarget) -> None:
        bench.writer.commit("l1", put_aside(old, WriteMode.OVERWRITE, [(1, "a")]))
        bench.writer.commit("m1", put_aside(old, WriteMode.OVERWRITE, [(2, "b")]))
        assert aside(bench.writer, old) == {BRANCH: "m1"}
        bench.writer.commit("m2", put_aside(old, WriteMode.OVERWRITE, [], after="m1", publishes=True))
        assert names(bench.read(old)) == [(2, "b")]

    def test_a_dropped_branch_is_gone_and_takes_no_load(self, bench: Bench, old: TableTarget) -> None:
        other_branch = "airbyte_proto_shop_generation_9"
        bench.writer.commit("l1", put_aside(old, WriteMode.OVERWRITE, [(3, "a")]))
        bench.writer.commit("k1", put_aside(old, WriteMode.OVERWRITE, [(4, "k")], branch=other_branch))
        for writer in (bench.writer, bench.other):
            drop(writer, old)
        assert aside(bench.writer, old) == {other_branch: "k1"}
        for publishes in (False, True):
            late = put_aside(old, WriteMode.OVERWRITE, [(5, "b")], after="l1", publishes=publishes)
            with pytest.raises(TableError, match="not there any more"):
                bench.writer.commit("l2", late)
        assert names(bench.read(old)) == OLD
        bench.writer.commit("n1", part(old, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "newer"}]))
        last = put_aside(old, WriteMode.OVERWRITE, [], after="k1", publishes=True, branch=other_branch)
        assert bench.writer.commit("k2", last).table_rows == 1
        assert names(bench.read(old)) == [(4, "k")]

    def test_columns_change_with_the_rows_of_several_loads(self, bench: Bench, old: TableTarget) -> None:
        _columns_change(bench, old, loads=2)

    def test_columns_of_a_generation_that_is_dropped_are_never_seen(self, bench: Bench, old: TableTarget) -> None:
        spec = TableSpec(old.name, pa.schema([("id", pa.string())]), replaces=True)
        target = bench.writer.prepare(spec)
        made = part(target, WriteMode.OVERWRITE, [{"id": "a"}])
        bench.writer.commit("l1", msgspec.structs.replace(made, aside=Aside(BRANCH, schema_id=target.schema_id)))
        drop(bench.writer, old)
        assert names(bench.read(old)) == OLD
        again = bench.writer.prepare(TableSpec(old.name, SCHEMA, ("id",)))
        assert (again.schema, again.fit.changes) == (old.schema, ())
        bench.writer.commit("p1", part(again, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "newer"}]))
        assert names(bench.read(old)) == [(1, "newer"), (2, "old")]

    def test_a_table_that_was_never_there_has_nothing_aside(self, bench: Bench, old: TableTarget) -> None:
        missing = old._replace(name=table_name())
        assert aside(bench.writer, missing) == {}
        drop(bench.writer, missing)

    def test_only_what_replaces_a_table_is_put_aside(self, bench: Bench, old: TableTarget) -> None:
        load = put_aside(old, WriteMode.OVERWRITE, [(1, "a")])
        with pytest.raises(InternalError):
            bench.writer.commit("l1", msgspec.structs.replace(load, write=WriteMode.APPEND))
