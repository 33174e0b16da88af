"""The conformance of a table as the witness of its loads. It uses the `bench` of `table_writer.py`."""

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import TableName, WriteMode
from tests.conformance.table_rows import MODES, Bench, NewTable, before_commit, names, part

_PATIENCE_SECONDS = 120


class WitnessConformance(NewTable):
    @pytest.mark.parametrize("write", MODES)
    def test_a_load_is_found_once_it_has_landed_and_not_before(
        self, bench: Bench, target: TableTarget, write: WriteMode
    ) -> None:
        load = part(target, write, [{"id": 1, "name": "a"}])
        assert bench.other.find_load("l1", load) is None
        landed = bench.writer.commit("l1", load)
        bench.writer.commit("l2", part(target, write, [{"id": 2, "name": "b"}]))
        for tables in (bench.writer, bench.other):
            found = tables.find_load("l1", load)
            assert found is not None
            assert (found.was_there, found.snapshot_id) == (True, landed.snapshot_id)

    def test_a_load_that_lands_behind_the_look_of_a_second_writer_is_there_once(
        self, bench: Bench, target: TableTarget
    ) -> None:
        """The first one looked before another load came in, the second one behind it."""
        rows = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
        load = msgspec.structs.replace(rows, log_position=target.log_position)
        has_looked, may_land = threading.Event(), threading.Event()

        def wait_once(point: str) -> None:
            if point == "table.committing":
                points.arm(None)
                has_looked.set()
                assert may_land.wait(_PATIENCE_SECONDS)

        def land_first() -> None:
            may_land.set()
            first.result()

        with ThreadPoolExecutor(1) as pool:
            points.arm(wait_once)
            first = pool.submit(bench.other.commit, "l1", load)
            assert has_looked.wait(_PATIENCE_SECONDS)
            bench.writer.commit("l0", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}]))
            before_commit(land_first)
            assert bench.writer.commit("l1", load).was_there
        assert names(bench.read(target)) == [(1, "a"), (2, "b")]

    def test_a_table_that_is_not_there_says_nothing_of_a_load(self, bench: Bench, target: TableTarget) -> None:
        load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
        gone = msgspec.structs.replace(load, table=TableName(target.name.namespace, "never_made"))
        with pytest.raises(TableError):
            bench.writer.find_load("l1", gone)
        assert bench.writer.witness(gone.table, "shop") is None

    def test_a_table_names_the_newest_load_of_a_connection_and_itself(self, bench: Bench, target: TableTarget) -> None:
        assert target.table_id
        assert bench.other.witness(target.name, "shop") == (target.table_id, None, True)
        for load_id, connection in (("l1", "shop"), ("l2", "shop"), ("l3", "till")):
            load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
            bench.writer.commit(load_id, msgspec.structs.replace(load, connection=connection))
        for tables in (bench.writer, bench.other):
            for connection, newest in (("shop", "l2"), ("till", "l3")):
                found = tables.witness(target.name, connection)
                assert found is not None and found[:2] == (target.table_id, newest)

    def test_rows_for_another_table_of_the_name_are_refused(self, bench: Bench, target: TableTarget) -> None:
        load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
        for tables in (bench.writer, bench.other):
            with pytest.raises(TableError, match="another table has its name now"):
                tables.commit("l1", msgspec.structs.replace(load, table_id="of the one before"))
        assert bench.read(target) == []

    def test_a_part_follows_a_load_that_readers_see(self, bench: Bench, target: TableTarget) -> None:
        first, second = (part(target, WriteMode.APPEND, [{"id": number, "name": "a"}]) for number in (1, 2))
        following = msgspec.structs.replace(second, follows="l1")
        for tables in (bench.writer, bench.other):
            with pytest.raises(TableError, match="it no longer has load l1"):
                tables.commit("l2", following)
        bench.writer.commit("l1", first)
        assert not bench.other.commit("l2", following).was_there
        assert bench.writer.commit("l2", following).was_there
        assert names(bench.read(target)) == [(1, "a"), (2, "a")]
