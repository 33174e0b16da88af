"""The conformance of a TableWriter whose tables have slices. It uses the same `bench` as the rest."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, TableSpec, TableTarget
from dagster_airbyte_proto.model import REPLACING, WriteMode
from dagster_airbyte_proto.tables.writer import TableWriter
from tests.conformance.table_rows import MODES, SCHEMA, Bench, Row, before_commit, deletion, part, table_name

MONDAY, TUESDAY = "2026-01-05", "2026-01-06|eu/west é"


def in_slice(
    target: TableTarget,
    write: WriteMode,
    name: str,
    rows: Sequence[tuple[int, str]],
    *,
    keys: tuple[str, ...] = ("id",),
) -> StagedRows:
    staged = part(target, write, [{"id": number, "name": text} for number, text in rows], keys=keys)
    return msgspec.structs.replace(staged, slice=name)


def sliced(rows: Sequence[Row]) -> list[tuple[str, int, str]]:
    return sorted((row[SLICE_COLUMN], row["id"], row["name"]) for row in rows)


class SlicedTableConformance:
    @pytest.fixture
    def sliced_target(self, bench: Bench) -> TableTarget:
        return bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",), slice_column=SLICE_COLUMN))

    @pytest.fixture
    def filled(self, bench: Bench, sliced_target: TableTarget) -> TableTarget:
        for name in (MONDAY, TUESDAY):
            bench.writer.commit(f"l {name}", in_slice(sliced_target, WriteMode.APPEND, name, [(1, "old"), (2, "old")]))
        return sliced_target

    def test_files_of_slices_lack_the_column_and_readers_find_it(self, bench: Bench, filled: TableTarget) -> None:
        assert filled.schema.names == SCHEMA.names
        assert sliced(bench.read(filled)) == [(name, i, "old") for name in (MONDAY, TUESDAY) for i in (1, 2)]

    def test_preparing_a_sliced_table_again_adds_columns(self, bench: Bench, filled: TableTarget) -> None:
        wider = TableSpec(filled.name, pa.schema([*SCHEMA, ("email", pa.string())]), slice_column=SLICE_COLUMN)
        target = bench.writer.prepare(wider)
        assert target.schema.names == [*SCHEMA.names, "email"]
        assert bench.writer.prepare(wider).schema == target.schema
        bench.writer.commit("l3", in_slice(target, WriteMode.OVERWRITE, MONDAY, [(3, "new")]))
        assert sliced(bench.read(target))[0] == (MONDAY, 3, "new")

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_replace_takes_out_its_slice_alone(self, bench: Bench, filled: TableTarget, write: WriteMode) -> None:
        committed = bench.writer.commit("l3", in_slice(filled, write, MONDAY, [(1, "new")]))
        assert sliced(bench.read(filled)) == [(MONDAY, 1, "new"), (TUESDAY, 1, "old"), (TUESDAY, 2, "old")]
        assert (committed.deleted, committed.table_rows) == (2, 3)

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_replace_by_nothing_empties_its_slice(self, bench: Bench, filled: TableTarget, write: WriteMode) -> None:
        committed = bench.writer.commit("l3", in_slice(filled, write, MONDAY, []))
        assert sliced(bench.read(filled)) == [(TUESDAY, 1, "old"), (TUESDAY, 2, "old")]
        assert (committed.deleted, committed.table_rows) == (2, 2)
        assert bench.writer.commit("l3", in_slice(filled, write, MONDAY, [])).was_there

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_slice_that_never_was_can_be_emptied(self, bench: Bench, filled: TableTarget, write: WriteMode) -> None:
        first = bench.writer.commit("l3", in_slice(filled, write, "2026-01-07", []))
        assert (first.was_there, first.deleted, first.table_rows) == (False, 0, 4)
        assert bench.writer.commit("l3", in_slice(filled, write, "2026-01-07", [])).was_there

    def test_an_upsert_reaches_its_slice_alone(self, bench: Bench, filled: TableTarget) -> None:
        bench.writer.commit("l3", in_slice(filled, WriteMode.APPEND_DEDUP, MONDAY, [(2, "new"), (3, "new")]))
        monday = [(MONDAY, 1, "old"), (MONDAY, 2, "new"), (MONDAY, 3, "new")]
        assert sliced(bench.read(filled)) == [*monday, (TUESDAY, 1, "old"), (TUESDAY, 2, "old")]

    def test_a_deletion_reaches_its_slice_alone(self, bench: Bench, filled: TableTarget) -> None:
        bench.writer.commit("l3", msgspec.structs.replace(deletion(filled, 1, 7), slice=MONDAY))
        assert sliced(bench.read(filled)) == [(MONDAY, 2, "old"), (TUESDAY, 1, "old"), (TUESDAY, 2, "old")]

    def test_a_replace_leaves_upserts_of_other_slices(self, bench: Bench, filled: TableTarget) -> None:
        for number, name in enumerate((MONDAY, TUESDAY)):
            bench.writer.commit(f"u{number}", in_slice(filled, WriteMode.APPEND_DEDUP, name, [(1, "newer")]))
        bench.writer.commit("l3", in_slice(filled, WriteMode.OVERWRITE_DEDUP, MONDAY, [(1, "newest")]))
        assert sliced(bench.read(filled)) == [(MONDAY, 1, "newest"), (TUESDAY, 1, "newer"), (TUESDAY, 2, "old")]

    @pytest.mark.everyday("append", "overwrite_dedup")
    @pytest.mark.parametrize("write", MODES)
    def test_a_slice_lands_once(self, bench: Bench, filled: TableTarget, write: WriteMode) -> None:
        load = in_slice(filled, write, MONDAY, [(1, "new")])
        first = bench.writer.commit("l3", load)
        bench.writer.commit("l4", in_slice(filled, WriteMode.OVERWRITE, TUESDAY, []))
        again = bench.other.commit("l3", load)
        assert (again.was_there, again.snapshot_id) == (True, first.snapshot_id)
        kept = {
            WriteMode.APPEND: [(1, "new"), (1, "old"), (2, "old")],
            WriteMode.APPEND_DEDUP: [(1, "new"), (2, "old")],
        }
        assert sliced(bench.read(filled)) == [(MONDAY, *row) for row in kept.get(write, [(1, "new")])]

    @pytest.mark.everyday("append_dedup", "overwrite")
    @pytest.mark.parametrize("write", MODES)
    def test_another_slice_in_between_is_kept(self, bench: Bench, filled: TableTarget, write: WriteMode) -> None:
        load = in_slice(filled, write, MONDAY, [(1, "new")])
        other = in_slice(filled, WriteMode.OVERWRITE_DEDUP, TUESDAY, [(9, "new")])
        before_commit(lambda: _landed(bench.other, "l4", other))
        assert not bench.writer.commit("l3", load).was_there
        rows = sliced(bench.read(filled))
        assert (MONDAY, 1, "new") in rows
        assert [row for row in rows if row[0] == TUESDAY] == [(TUESDAY, 9, "new")]

    @pytest.mark.everyday("True-append", "False-append_dedup", "False-overwrite")
    @pytest.mark.parametrize("write", MODES)
    @pytest.mark.parametrize("is_new_slice", [True, False])
    def test_a_paused_writer_does_not_land_a_slice_again(
        self, bench: Bench, filled: TableTarget, write: WriteMode, is_new_slice: bool
    ) -> None:
        name = "2026-01-07" if is_new_slice else MONDAY
        load = in_slice(filled, write, name, [(1, "new")])
        newer = in_slice(filled, WriteMode.OVERWRITE, name, [(1, "newer")])

        def recovered() -> None:
            _landed(bench.other, "l3", load)
            _landed(bench.other, "l4", newer)

        before_commit(recovered)
        assert bench.writer.commit("l3", load).was_there
        assert [row for row in sliced(bench.read(filled)) if row[0] == name] == [(name, 1, "newer")]

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_paused_emptying_of_a_slice_does_not_undo_a_newer_load(
        self, bench: Bench, filled: TableTarget, write: WriteMode
    ) -> None:
        nothing = in_slice(filled, write, MONDAY, [])

        def recovered() -> None:
            _landed(bench.other, "l3", nothing)
            _landed(bench.other, "l4", in_slice(filled, WriteMode.APPEND, MONDAY, [(1, "newer")]))

        before_commit(recovered)
        assert bench.writer.commit("l3", nothing).was_there
        assert sliced(bench.read(filled))[0] == (MONDAY, 1, "newer")

    @pytest.mark.everyday("append_dedup")
    @pytest.mark.parametrize("write", MODES)
    def test_a_table_without_slices_refuses_them(self, bench: Bench, write: WriteMode) -> None:
        target = bench.writer.prepare(TableSpec(table_name(), SCHEMA))
        bench.writer.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "old"}]))
        with pytest.raises(TableError, match="created without partitions"):
            bench.writer.prepare(TableSpec(target.name, SCHEMA, slice_column=SLICE_COLUMN))
        with pytest.raises(TableError, match="created without partitions"):
            bench.writer.commit("l2", in_slice(target, write, MONDAY, [(1, "new")]))
        assert [row["name"] for row in bench.read(target)] == ["old"]

    @pytest.mark.everyday("overwrite")
    @pytest.mark.parametrize("write", MODES)
    def test_a_table_of_slices_refuses_rows_of_none(self, bench: Bench, filled: TableTarget, write: WriteMode) -> None:
        with pytest.raises(TableError, match=f"partitioned by {SLICE_COLUMN}"):
            bench.writer.prepare(TableSpec(filled.name, SCHEMA))
        with pytest.raises(TableError, match=f"partitioned by {SLICE_COLUMN}"):
            bench.writer.commit("l3", part(filled, write, [{"id": 1, "name": "new"}]))
        assert len(bench.read(filled)) == 4

    def test_slices_by_another_column_are_refused(self, bench: Bench, filled: TableTarget) -> None:
        with pytest.raises(TableError, match="not by day"):
            bench.writer.prepare(TableSpec(filled.name, SCHEMA, slice_column="day"))

    def test_a_stream_with_a_column_of_the_slices_name_is_refused(self, bench: Bench) -> None:
        schema = pa.schema([(SLICE_COLUMN.upper(), pa.string())])
        with pytest.raises(TableError, match=SLICE_COLUMN):
            bench.writer.prepare(TableSpec(table_name(), schema, slice_column=SLICE_COLUMN))


def _landed(writer: TableWriter, load_id: str, load: StagedRows) -> None:
    assert not writer.commit(load_id, load).was_there
