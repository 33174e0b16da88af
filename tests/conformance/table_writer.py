"""The conformance of a TableWriter. A new one subclasses `TableWriterConformance` and defines a `bench` fixture."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import HighWaterMark, StagedFile, StagedRows
from dagster_airbyte_proto.loads.table import KeyQuery, TableSpec, TableTarget
from dagster_airbyte_proto.model import REPLACING, TableName, WriteMode
from dagster_airbyte_proto.tables.writer import SupportsKeyLookup, TableWriter
from tests.conformance.table_rows import (
    KEYED_MODES,
    MODES,
    SCHEMA,
    Bench,
    NewTable,
    Row,
    before_commit,
    deletion,
    names,
    part,
    part_of,
    position_deletes,
    staged,
    table_name,
)


def _parameters(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.node.callspec.params if hasattr(request.node, "callspec") else {}


Test = TypeVar("Test", bound=Callable[..., None])


def needs(*modes: WriteMode) -> Callable[[Test], Test]:
    """Marks a test as one for formats with these write modes. A test with the parameter `write` needs that mode."""

    def note(test: Test) -> Test:
        vars(test)["needs"] = modes
        return test

    return note


class TableWriterConformance(NewTable):
    @pytest.fixture(autouse=True)
    def _within_its_abilities(self, bench: Bench, request: pytest.FixtureRequest) -> None:
        abilities = bench.writer.abilities
        wanted = {*getattr(request.function, "needs", ()), *_parameters(request).values()} & set(WriteMode)
        if lacking := wanted - abilities.modes:
            pytest.skip(f"tables of the format {abilities.format} have no {', '.join(sorted(lacking))}")

    def test_a_new_table_has_the_columns_and_no_rows(self, bench: Bench, target: TableTarget) -> None:
        assert target.schema.names == SCHEMA.names
        assert [field.type for field in target.schema] == [field.type for field in SCHEMA]
        assert bench.read(target) == []

    def test_every_field_has_an_id_of_its_own(self, target: TableTarget) -> None:
        meta = target.schema.field("_airbyte_meta").type
        fields = [*target.schema, *(meta.field(i) for i in range(2)), meta.field("changes").type.value_field]
        ids = [field.metadata[b"PARQUET:field_id"] for field in fields]
        assert len(set(ids)) == len(fields)

    def test_a_local_location_is_a_path_without_a_scheme(self, target: TableTarget) -> None:
        assert target.location.startswith("/")

    def test_preparing_again_changes_nothing(self, bench: Bench, target: TableTarget) -> None:
        again = bench.writer.prepare(TableSpec(target.name, SCHEMA))
        assert again == target
        assert again.schema.equals(target.schema, check_metadata=True)

    def test_columns_are_added_and_old_rows_have_nulls_there(self, bench: Bench, target: TableTarget) -> None:
        bench.writer.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
        meta = pa.struct([("sync_id", pa.int64()), ("changes", pa.list_(pa.string())), ("source", pa.string())])
        schema = pa.schema([("email", pa.string()), ("_airbyte_meta", meta), ("id", pa.int64()), ("name", pa.string())])
        wider = bench.writer.prepare(TableSpec(target.name, schema))
        assert wider.schema.names == ["id", "name", "_airbyte_meta", "email"]
        assert wider.schema.field("id").metadata == target.schema.field("id").metadata
        assert wider.schema.field("_airbyte_meta").type.get_field_index("source") == 2
        row: Row = {"id": 2, "name": "b", "email": "b@x", "_airbyte_meta": {"source": "s"}}
        bench.writer.commit("l2", part(wider, WriteMode.APPEND, [row]))
        rows = sorted(bench.read(wider), key=lambda row: int(row["id"]))
        assert [row["email"] for row in rows] == [None, "b@x"]
        assert rows[1]["_airbyte_meta"] == {"sync_id": None, "changes": None, "source": "s"}

    def test_fields_are_added_inside_arrays(self, bench: Bench) -> None:
        def items(*fields: str) -> TableSpec:
            return TableSpec(name, pa.schema([("a", pa.list_(pa.struct([(field, pa.string()) for field in fields])))]))

        name = table_name()
        bench.writer.commit("l1", part(bench.writer.prepare(items("x")), WriteMode.APPEND, [{"a": [{"x": "1"}]}]))
        wider = bench.writer.prepare(items("y", "x"))
        bench.writer.commit("l2", part(wider, WriteMode.APPEND, [{"a": [{"x": "2", "y": "3"}]}]))
        found = sorted((row["a"][0]["x"], row["a"][0]["y"]) for row in bench.read(wider))
        assert found == [("1", None), ("2", "3")]

    def test_a_column_that_the_stream_lacks_stays(self, bench: Bench, target: TableTarget) -> None:
        narrower = bench.writer.prepare(TableSpec(target.name, pa.schema([("id", pa.int64())])))
        assert narrower.schema.names == SCHEMA.names
        bench.writer.commit("l1", part(narrower, WriteMode.APPEND, [{"id": 1}]))
        assert names(bench.read(narrower)) == [(1, None)]

    def test_names_compare_without_case(self, bench: Bench, target: TableTarget) -> None:
        again = bench.writer.prepare(TableSpec(target.name, pa.schema([("ID", pa.int64()), ("NAME", pa.string())])))
        assert again.schema.names == SCHEMA.names

    def test_columns_that_differ_by_case_alone_are_refused(self, bench: Bench) -> None:
        with pytest.raises(TableError, match="case"):
            bench.writer.prepare(TableSpec(table_name(), pa.schema([("foo", pa.int64()), ("Foo", pa.int64())])))

    def test_integers_and_floats_are_widened(self, bench: Bench) -> None:
        name = table_name()
        narrow = pa.schema([("id", pa.int32()), ("name", pa.float32())])
        old = bench.writer.prepare(TableSpec(name, narrow))
        bench.writer.commit("l1", part(old, WriteMode.APPEND, [{"id": 1, "name": 0.5}]))
        wide = bench.writer.prepare(TableSpec(name, pa.schema([("id", pa.int64()), ("name", pa.float64())])))
        assert wide.schema.types == [pa.int64(), pa.float64()]
        bench.writer.commit("l2", part(wide, WriteMode.APPEND, [{"id": 2**40, "name": 0.25}]))
        assert names(bench.read(wide)) == [(1, 0.5), (2**40, 0.25)]
        assert bench.writer.prepare(TableSpec(name, narrow)).schema == wide.schema

    def test_another_type_is_refused_with_the_way_out(self, bench: Bench, target: TableTarget) -> None:
        with pytest.raises(TableError) as refused:
            bench.writer.prepare(TableSpec(target.name, pa.schema([("id", pa.int64()), ("name", pa.int64())])))
        assert "column name is string in the table and bigint in the stream" in refused.value.found
        assert "rename" in refused.value.remedy

    def test_another_type_inside_a_struct_is_refused_too(self, bench: Bench, target: TableTarget) -> None:
        meta = pa.struct([("sync_id", pa.string())])
        with pytest.raises(TableError, match=r"_airbyte_meta\.sync_id"):
            bench.writer.prepare(TableSpec(target.name, pa.schema([("_airbyte_meta", meta)])))

    @pytest.mark.parametrize("odd", ["sp ace, dot.ted, Bücher 書, tick`ed, quo'te\"d", "select", "1"])
    def test_odd_names_are_names(self, bench: Bench, odd: str) -> None:
        schema = pa.schema([("id", pa.int64()), ("name", pa.string()), (f"c {odd}", pa.string())])
        target = bench.writer.prepare(TableSpec(TableName(f"n {odd}", odd), schema))
        rows: list[Row] = [{"id": 1, "name": "a", f"c {odd}": "x"}]
        bench.writer.commit("l1", part(target, WriteMode.OVERWRITE, rows))
        assert bench.read(target) == rows

    def test_appends_add_up(self, bench: Bench, target: TableTarget) -> None:
        first = bench.writer.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
        files = [staged(target, [{"id": i, "name": "b"}]) for i in (1, 2)]
        second = bench.writer.commit("l2", part_of(target, WriteMode.APPEND, *files))
        assert names(bench.read(target)) == [(1, "a"), (1, "b"), (2, "b")]
        assert (first.table_rows, second.table_rows) == (1, 3)
        assert not first.was_there and not second.was_there
        assert first.snapshot_id != second.snapshot_id

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_replace_swaps_all_rows_at_once(self, bench: Bench, target: TableTarget, write: WriteMode) -> None:
        bench.writer.commit("l1", part(target, WriteMode.APPEND, [{"id": i, "name": "old"} for i in range(3)]))
        replacement = part(target, write, [{"id": 9, "name": "new"}])
        seen: list[int] = []
        before_commit(lambda: seen.append(len(bench.read(target))))
        committed = bench.writer.commit("l2", replacement)
        assert seen == [3]
        assert names(bench.read(target)) == [(9, "new")]
        assert (committed.deleted, committed.table_rows) == (3, 1)

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_replace_by_nothing_empties_the_table(self, bench: Bench, target: TableTarget, write: WriteMode) -> None:
        bench.writer.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "old"}]))
        assert bench.writer.commit("l2", part(target, write, [])).table_rows == 0
        assert bench.read(target) == []
        assert bench.writer.commit("l2", part(target, write, [])).was_there

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_new_table_can_be_replaced_by_nothing(self, bench: Bench, target: TableTarget, write: WriteMode) -> None:
        assert bench.writer.commit("l1", part(target, write, [])).table_rows == 0
        assert bench.read(target) == []

    @needs(*KEYED_MODES)
    def test_a_replace_without_duplicates_needs_no_deletes(self, bench: Bench, target: TableTarget) -> None:
        bench.writer.commit("l1", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "old"}]))
        files = [staged(target, [{"id": i, "name": "new"}]) for i in (1, 2)]
        committed = bench.writer.commit("l2", part_of(target, WriteMode.OVERWRITE_DEDUP, *files))
        assert names(bench.read(target)) == [(1, "new"), (2, "new")]
        assert (committed.deleted, committed.table_rows) == (1, 2)

    @needs(*KEYED_MODES)
    def test_a_replace_takes_out_upserted_rows_and_their_deletes(self, bench: Bench, target: TableTarget) -> None:
        for number in range(3):
            rows = [{"id": i, "name": f"old {number}"} for i in range(number, 4)]
            bench.writer.commit(f"l{number}", part(target, WriteMode.APPEND_DEDUP, rows))
        bench.writer.commit("l3", part(target, WriteMode.OVERWRITE_DEDUP, [{"id": 1, "name": "a"}]))
        files = [staged(target, [{"id": 1, "name": "new"}, {"id": 2, "name": "lost"}]) for _ in range(2)]
        deletes = [position_deletes(target, files[0], 0, 1), position_deletes(target, files[1], 1)]
        committed = bench.writer.commit("l4", part_of(target, WriteMode.OVERWRITE_DEDUP, *files, *deletes))
        assert names(bench.read(target)) == [(1, "new")]
        assert committed.table_rows == 1
        bench.writer.commit("l5", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "newer"}]))
        assert names(bench.read(target)) == [(1, "newer")]

    @needs(*KEYED_MODES)
    def test_keys_that_a_replacement_brings_delete_none_of_its_rows(self, bench: Bench, target: TableTarget) -> None:
        bench.writer.commit("l1", part(target, WriteMode.APPEND, [{"id": 1, "name": "old"}]))
        files = part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "new"}]).files
        assert bench.writer.commit("l2", part_of(target, WriteMode.OVERWRITE_DEDUP, *files)).table_rows == 1
        assert names(bench.read(target)) == [(1, "new")]

    @needs(*KEYED_MODES)
    def test_an_upsert_replaces_rows_of_the_same_key(self, bench: Bench, target: TableTarget) -> None:
        first = [{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]
        assert bench.writer.commit("l1", part(target, WriteMode.APPEND_DEDUP, first)).table_rows == 2
        second = [{"id": 2, "name": "b"}, {"id": 3, "name": "b"}]
        bench.writer.commit("l2", part(target, WriteMode.APPEND_DEDUP, second))
        bench.writer.commit("l3", part(target, WriteMode.APPEND_DEDUP, [{"id": 3, "name": "c"}]))
        assert names(bench.read(target)) == [(1, "a"), (2, "b"), (3, "c")]

    @needs(*KEYED_MODES)
    def test_an_upsert_by_two_keys_one_of_them_null(self, bench: Bench, target: TableTarget) -> None:
        keys = ("id", "name")
        first: list[Row] = [{"id": 1, "name": None}, {"id": 1, "name": "a"}, {"id": None, "name": "a"}]
        bench.writer.commit("l1", part(target, WriteMode.APPEND_DEDUP, first, keys=keys))
        again: list[Row] = [{"id": 1, "name": None, "_airbyte_meta": {"sync_id": 2}}]
        bench.writer.commit("l2", part(target, WriteMode.APPEND_DEDUP, again, keys=keys))
        rows = bench.read(target)
        assert names(rows) == names(first)
        changed = [row for row in rows if row["_airbyte_meta"]]
        assert names(changed) == [(1, None)]

    @needs(*KEYED_MODES)
    @pytest.mark.parametrize("is_first_load", [True, False])
    def test_position_deletes_take_out_duplicates_of_the_same_load(
        self, bench: Bench, target: TableTarget, is_first_load: bool
    ) -> None:
        if not is_first_load:
            bench.writer.commit("l0", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "old"}]))
        rows = part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}])
        files = (*rows.files, position_deletes(target, rows.files[0], 0))
        committed = bench.writer.commit("l1", part_of(target, WriteMode.APPEND_DEDUP, *files))
        assert names(bench.read(target)) == [(1, "b")]
        assert committed.table_rows in ((1,) if is_first_load else (1, None))
        bench.writer.commit("l2", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "c"}]))
        assert names(bench.read(target)) == [(1, "c")]

    @needs(*KEYED_MODES)
    @pytest.mark.parametrize("has_rows", [True, False])
    def test_deletions_leave_nothing_of_their_keys_and_unknown_ones_do_no_harm(
        self, bench: Bench, target: TableTarget, has_rows: bool
    ) -> None:
        if has_rows:
            bench.writer.commit("l0", part(target, WriteMode.APPEND_DEDUP, [{"id": i, "name": "a"} for i in (1, 2)]))
        load = deletion(target, 1, 7)
        assert not bench.writer.commit("l1", load).was_there
        assert names(bench.read(target)) == ([(2, "a")] if has_rows else [])
        assert bench.other.commit("l1", load).was_there
        bench.writer.commit("l2", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "back"}]))
        assert names(bench.read(target)) == [(1, "back"), (2, "a")][: 1 + has_rows]

    @needs(*KEYED_MODES)
    def test_rows_of_some_keys_are_found_and_how_new_they_are_is_known(self, bench: Bench, target: TableTarget) -> None:
        writer = bench.writer
        if not isinstance(writer, SupportsKeyLookup):
            pytest.skip("its tables are not asked for rows")
        assert writer.freshness(target.name).has_rows is False
        mark = HighWaterMark(("name",), ("c",), "2026", writer.freshness(target.name).version)
        rows: list[Row] = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": None, "name": "c"}]
        for number, each in enumerate((rows, [{"id": 1, "name": "a2"}])):
            load = msgspec.structs.replace(part(target, WriteMode.APPEND_DEDUP, each), high_water_mark=mark)
            writer.commit(f"l{number}", load)
            freshness = writer.freshness(target.name)
            assert (freshness.has_rows, freshness.high_water_mark) == (True, mark if number == 0 else None)
        assert freshness.version != mark.version
        keys = pa.table({"id": pa.array([1, 7, None], pa.int64())})
        found = writer.rows_with_keys(target.name, KeyQuery(keys, ("name", "id"))).to_pylist()
        assert names(found) == [(1, "a2"), (None, "c")]
        since = ("name", pa.scalar("b"))
        found = writer.rows_with_keys(target.name, KeyQuery(keys, ("name", "id"), since)).to_pylist()
        assert names(found) == [(None, "c")]
        assert writer.greatest_values(target.name, ["name", "id"]).to_pylist() == [{"name": "c", "id": 2}]

    @needs(*KEYED_MODES)
    def test_keys_are_found_whatever_the_case_of_their_names(self, bench: Bench, target: TableTarget) -> None:
        for number, name in enumerate("ab"):
            load = part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": name}])
            bench.writer.commit(f"l{number}", msgspec.structs.replace(load, keys=("ID",)))
        assert names(bench.read(target)) == [(1, "b")]
        if isinstance(bench.writer, SupportsKeyLookup):
            query = KeyQuery(pa.table({"ID": [1]}), ("ID", "NAME"), ("NAME", pa.scalar("b")))
            assert bench.writer.rows_with_keys(target.name, query).to_pylist() == [{"ID": 1, "NAME": "b"}]

    @needs(*KEYED_MODES)
    def test_a_path_with_a_scheme_is_kept_letter_by_letter(self, bench: Bench, target: TableTarget) -> None:
        plain = staged(target, [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}])
        file = StagedFile("file:" + plain.path, plain.content, plain.rows, plain.size_bytes)
        bench.writer.commit("l1", part_of(target, WriteMode.APPEND_DEDUP, file, position_deletes(target, file, 1)))
        assert names(bench.read(target)) == [(1, "a")]

    @needs(*KEYED_MODES)
    def test_a_key_that_is_no_column_is_refused(self, bench: Bench, target: TableTarget) -> None:
        bench.writer.commit("l1", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "a"}]))
        files = part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "b"}]).files
        with pytest.raises(TableError, match="uid"):
            bench.writer.commit("l2", part_of(target, WriteMode.APPEND_DEDUP, *files, keys=("uid",)))
        assert names(bench.read(target)) == [(1, "a")]

    @pytest.mark.parametrize("write", [WriteMode.APPEND, WriteMode.APPEND_DEDUP])
    def test_a_part_without_rows_changes_nothing(self, bench: Bench, target: TableTarget, write: WriteMode) -> None:
        assert not bench.writer.commit("l1", part(target, write, [])).was_there
        bench.writer.commit("l2", part(target, write, [{"id": 1, "name": "a"}]))
        assert bench.writer.commit("l3", part(target, write, [])).table_rows == 1
        assert names(bench.read(target)) == [(1, "a")]

    @pytest.mark.parametrize("write", MODES)
    def test_a_load_lands_once(self, bench: Bench, target: TableTarget, write: WriteMode) -> None:
        load = part(target, write, [{"id": 1, "name": "a"}])
        first = bench.writer.commit("l1", load)
        later = bench.writer.commit("l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}]))
        for writer in (bench.writer, bench.other):
            again = writer.commit("l1", load)
            assert again.was_there
            assert again.snapshot_id == first.snapshot_id
        assert later.snapshot_id != first.snapshot_id
        assert names(bench.read(target)) == [(1, "a"), (2, "b")]

    @pytest.mark.parametrize("write", MODES)
    @pytest.mark.parametrize("is_first_load", [True, False])
    def test_a_paused_writer_does_not_land_what_another_landed(
        self, bench: Bench, target: TableTarget, write: WriteMode, is_first_load: bool
    ) -> None:
        if not is_first_load:
            bench.other.commit("l0", part(target, WriteMode.APPEND, [{"id": 1, "name": "old"}]))
        load = part(target, write, [{"id": 1, "name": "a"}])
        before_commit(lambda: _landed(bench.other, "l1", load))
        assert bench.writer.commit("l1", load).was_there
        old = [(1, "old")] if write is WriteMode.APPEND and not is_first_load else []
        assert names(bench.read(target)) == [(1, "a"), *old]

    @pytest.mark.parametrize("write", MODES)
    def test_a_paused_writer_does_not_undo_a_newer_load(
        self, bench: Bench, target: TableTarget, write: WriteMode
    ) -> None:
        load = part(target, write, [{"id": 1, "name": "a"}])
        newer = part(target, WriteMode.OVERWRITE, [{"id": 1, "name": "newer"}])

        def recovered() -> None:
            _landed(bench.other, "l1", load)
            _landed(bench.other, "l2", newer)

        before_commit(recovered)
        assert bench.writer.commit("l1", load).was_there
        assert names(bench.read(target)) == [(1, "newer")]

    @pytest.mark.parametrize("write", sorted(REPLACING))
    def test_a_paused_replace_by_nothing_does_not_undo_a_newer_load(
        self, bench: Bench, target: TableTarget, write: WriteMode
    ) -> None:
        nothing = part(target, write, [])
        newer = part(target, WriteMode.APPEND, [{"id": 1, "name": "newer"}])

        def recovered() -> None:
            _landed(bench.other, "l1", nothing)
            _landed(bench.other, "l2", newer)

        before_commit(recovered)
        assert bench.writer.commit("l1", nothing).was_there
        assert names(bench.read(target)) == [(1, "newer")]

    @pytest.mark.parametrize("write", MODES)
    def test_another_load_in_between_is_kept(self, bench: Bench, target: TableTarget, write: WriteMode) -> None:
        load = part(target, write, [{"id": 1, "name": "a"}])
        before_commit(lambda: _landed(bench.other, "l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}])))
        assert not bench.writer.commit("l1", load).was_there
        assert names(bench.read(target)) == ([(1, "a")] if write in REPLACING else [(1, "a"), (2, "b")])

    def test_a_file_that_is_gone_is_an_error_and_nothing_lands(self, bench: Bench, target: TableTarget) -> None:
        load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
        filesystem, path = target.storage.at(load.files[0].path)
        filesystem.delete_file(path)
        with pytest.raises(TableError, match=r"parquet"):
            bench.writer.commit("l1", load)
        assert bench.read(target) == []

    def test_a_file_with_other_rows_than_staged_is_refused(self, bench: Bench, target: TableTarget) -> None:
        file = staged(target, [{"id": 1, "name": "a"}])
        load = part_of(target, WriteMode.APPEND, StagedFile(file.path, file.content, 2, file.size_bytes))
        with pytest.raises(TableError, match="holds 1 rows where 2 were staged"):
            bench.writer.commit("l1", load)

    def test_a_mode_that_the_format_has_not_is_refused(self, bench: Bench, target: TableTarget) -> None:
        for write in set(WriteMode) - bench.writer.abilities.modes:
            with pytest.raises(TableError, match=f"{write} is not supported"):
                bench.writer.commit("l1", part(target, write, [{"id": 1, "name": "a"}]))
        assert bench.read(target) == []

    def test_a_table_that_was_never_prepared_is_an_error(self, bench: Bench, target: TableTarget) -> None:
        missing = target._replace(name=table_name())
        with pytest.raises(TableError):
            bench.writer.commit("l1", part(missing, WriteMode.APPEND, [{"id": 1, "name": "a"}]))


def _landed(writer: TableWriter, load_id: str, load: StagedRows) -> None:
    assert not writer.commit(load_id, load).was_there
