"""What the log of an Iceberg table says: of how much a reader has to open, and of loads whose snapshots expired."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import CommitUnknown, TableError
from dagster_airbyte_proto.loads.column_ids import columns_of
from dagster_airbyte_proto.loads.load import BranchPosition, FileContent, StagedFile, StagedRows, TableTotals
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import PartitionField, StreamId, TableName, WriteMode
from dagster_airbyte_proto.schema.evolution import EvolutionRules
from dagster_airbyte_proto.tables.formats import LOAD_ID
from dagster_airbyte_proto.tables.iceberg.care.iceberg_care import IcebergCare
from dagster_airbyte_proto.tables.iceberg.care.orphan_files import may_be_shared, remove_old_metadata
from dagster_airbyte_proto.tables.iceberg.commit.expired_loads import search_expired
from dagster_airbyte_proto.tables.iceberg.log import (
    FullTableLog,
    History,
    MetadataFile,
    Snapshot,
    TableLog,
    check_placement,
    snapshots_since,
)
from dagster_airbyte_proto.tables.iceberg.preparation import RequestedTable
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from tests.conformance.table_rows import Reader, Row, names, part


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
    history = History(snapshot, {}, None, snapshot)
    assert (snapshot.rows, snapshot.stored_rows, snapshot.totals_for_readers(2)) == (None, None, None)
    assert (history.may_have_rows, history.freshness.has_rows, snapshot.may_have_deletes) == (True, True, True)
    assert not History(Snapshot(1, summary={"total-records": "0"}), {}, None, None).may_have_rows


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


# Snapshots 1 to 5 are each other's parents, and carry loads l1 to l5. Those below 4 have expired.
_ALL = tuple(Snapshot(each, 0, each - 1 or None, {LOAD_ID: f"l{each}"}, None, each) for each in range(1, 6))


def _cut_log(*files: str, version: int = 2) -> TableLog:
    metadata_log = tuple(map(MetadataFile, files))
    return TableLog(version, "/t", 1, 0, (), 0, (), "", 5, _ALL[3:], last_sequence_number=5, metadata_log=metadata_log)


@pytest.mark.parametrize(
    ("load_id", "position", "is_certain", "landed_in"),
    [
        ("lost", 3, True, None),  # The log begins with the next snapshot.
        ("lost", 5, True, None),
        ("lost", 1, True, None),  # Its place is in snapshots that older metadata has.
        ("l2", 1, True, "2"),
        ("l1", 0, True, "1"),
        ("lost", 0, True, None),
        ("l2", None, False, None),  # Announced by an older release, or for a table of format 1.
    ],
)
def test_a_load_is_looked_for_among_expired_snapshots_by_their_numbers(
    load_id: str, position: int | None, is_certain: bool, landed_in: str | None
) -> None:
    older = {"two": _ALL[:2], "three": _ALL[1:3]}
    log = _cut_log("two", "three")
    file = StagedFile("/t/data/f.parquet", FileContent.ROWS, 1, 1)
    part = StagedRows(StreamId.of("t"), TableName("shop", "t"), WriteMode.APPEND, files=(file,), log_position=position)

    def read(name: str) -> TableLog:
        return TableLog(2, "/t", 1, 0, (), 0, (), snapshots=older[name])

    found = search_expired(log, History.from_log(log), load_id, part, read)
    assert (found.is_certain, found.committed and found.committed.snapshot_id) == (is_certain, landed_in)
    for missing in (_cut_log(), _cut_log("one")):  # no older metadata, or none that can be read
        nothing = search_expired(missing, History.from_log(missing), load_id, part, lambda _: None)
        assert nothing == (None, position is not None and position >= 3)


def test_a_table_of_format_1_has_no_numbers_by_which_a_load_is_placed() -> None:
    assert (_cut_log(version=1).position, _cut_log().position) == (None, 5)


def _log_of(metadata: dict[str, Any]) -> TableLog:
    plain = {"format-version": 2, "location": "/t", "last-column-id": 1, "current-schema-id": 0, "default-spec-id": 0}
    return msgspec.convert({**plain, "schemas": [], "partition-specs": [], **metadata}, TableLog)


@pytest.mark.parametrize(("order_id", "expected"), [(1, True), (0, False)])
def test_a_table_is_sorted_by_its_order_of_now_and_not_by_one_of_before(order_id: int, *, expected: bool) -> None:
    orders = [{"order-id": 0, "fields": []}, {"order-id": 1, "fields": [{"source-id": 1}]}]
    assert _log_of({"sort-orders": orders, "default-sort-order-id": order_id}).is_sorted is expected


def _parted_by_day(*names: str) -> TableLog:
    """The log of a table that is partitioned by the day of a column, which has one of these names in each schema."""
    column = {"id": 1, "required": False, "type": "timestamptz"}
    schemas = [{"schema-id": number, "fields": [{**column, "name": name}]} for number, name in enumerate(names)]
    spec = {"spec-id": 0, "fields": [{"source-id": 1, "transform": "day"}]}
    return _log_of({"schemas": schemas, "partition-specs": [spec]})


def test_a_partition_column_that_is_to_be_renamed_is_known_by_its_old_name() -> None:
    columns = columns_of(pa.schema([("created_at", pa.timestamp("us", "UTC"))]))
    rules = EvolutionRules(formerly={"created_at": "created"})
    by_day = RequestedTable(
        TableName("shop", "t"),
        columns,
        None,
        partitioning=(PartitionField("day", "created_at"),),
        evolution_rules=rules,
    )
    for name in ("created", "created_at"):  # before the rename and after it
        by_day.check("preparing", _parted_by_day(name))
    by_hour = by_day._replace(partitioning=(PartitionField("hour", "created_at"),))
    for other in (by_hour, by_day._replace(evolution_rules=EvolutionRules())):
        with pytest.raises(TableError, match=r"partitioned by day\(created\), and the stream"):
            other.check("preparing", _parted_by_day("created"))


def test_rows_of_a_generation_are_placed_by_the_names_of_its_own_columns() -> None:
    log = _parted_by_day("created", "created_at")
    name = TableName("shop", "t")
    load = StagedRows(StreamId.of("t"), name, WriteMode.OVERWRITE, partitioned_by=("day(created_at)",))
    position = BranchPosition("b", publishes=True, schema_id=1)
    check_placement("committing", log, msgspec.structs.replace(load, branch_position=position))
    with pytest.raises(TableError, match=r"partitioned by day\(created\), and the stream by day\(created_at\)"):
        check_placement("committing", log, load)


@pytest.mark.parametrize(
    ("files", "named", "expected"),
    [
        ((), (), False),
        (("00000-a", "00001-b"), ("00000-a",), False),
        # Metadata names the last hundred files alone. The current one is not among them.
        (("00000-a", "00001-b", "00002-c"), ("00001-b",), False),
        (("00000-a", "00000-other", "00001-b"), ("00000-a",), True),
        # Of the other table the first files are gone, or of this one.
        (("00000-a", "00001-b", "00007-other"), ("00000-a",), True),
        (("00000-other", "00006-a", "00007-b", "00007-other.gz"), ("00006-a",), True),
        (("v1", "v2", "v3"), (), False),  # A catalog of type `hadoop`.
    ],
)
def test_a_folder_that_has_metadata_of_another_table_may_be_shared(
    tmp_path: Path, files: tuple[str, ...], named: tuple[str, ...], *, expected: bool
) -> None:
    folder = tmp_path / "metadata"
    folder.mkdir()
    for name in files:
        (folder / f"{name}.metadata.json").touch()
    (folder / "snap-1.avro").touch()
    metadata_log = tuple(MetadataFile(f"{folder}/{name}.metadata.json") for name in named)
    assert may_be_shared(LOCAL, TableLog(2, str(tmp_path), 1, 0, (), 0, (), metadata_log=metadata_log)) is expected


@pytest.mark.parametrize("name", ["{:05}-a", "{:05}-a.gz", "v{}", "v{}.gz"])
def test_metadata_files_that_a_table_names_no_more_go_once_they_are_old(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "metadata"
    folder.mkdir()
    files = [folder / f"{name.format(number)}.metadata.json" for number in range(1, 10)]
    for file in (*files, folder / "snap-1.avro", folder / "version-hint.text"):
        file.touch()
        os.utime(file, (1, 1))
    files[3].touch()
    metadata_log = tuple(MetadataFile(str(file)) for file in files[6:8])
    log = FullTableLog(2, str(tmp_path), 1, 0, (), 0, (), metadata_log=metadata_log)
    before = datetime.now(UTC) - timedelta(days=3)
    # Nessie sets this: other branches of the catalog may name any of them.
    assert remove_old_metadata(LOCAL, msgspec.structs.replace(log, properties={"gc.enabled": "false"}), before) == ()
    # The first file stays for `may_be_shared`, the fourth is young, the last one is current.
    assert remove_old_metadata(LOCAL, log, before) == tuple(str(files[place]) for place in (1, 2, 4, 5))
    assert sorted(folder.glob("*.json")) == [files[place] for place in (0, 3, 6, 7, 8)]
    assert remove_old_metadata(LOCAL, log, before) == ()
    assert remove_old_metadata(LOCAL, msgspec.structs.replace(log, metadata_log=()), datetime.now(UTC)) == ()


@pytest.fixture
def care(iceberg: IcebergTables) -> IcebergCare:
    return IcebergCare(iceberg)


def _rows(*pairs: tuple[int, str]) -> list[Row]:
    return [{"id": identity, "name": name} for identity, name in pairs]


def _announced(target: TableTarget, *pairs: tuple[int, str]) -> StagedRows:
    """A part as a run announces it that has just prepared its table."""
    appended = part(target, WriteMode.APPEND, _rows(*pairs))
    return msgspec.structs.replace(appended, log_position=target.log_position)


def _expire_all(care: IcebergCare, target: TableTarget) -> None:
    history = care.history(target.name)
    care.expire(target.name, [each.snapshot_id for each in history.changes if each.snapshot_id != history.current])


@pytest.mark.spark
def test_no_clock_says_that_a_load_of_a_dead_run_has_not_landed(
    iceberg: IcebergTables, elsewhere: IcebergTables, care: IcebergCare, target: TableTarget, iceberg_rows: Reader
) -> None:
    """The storage's clock is ahead of those that commit: the load's file looks younger than the whole log."""
    load = _announced(target, (1, "a"))
    iceberg.commit("l1", load)
    iceberg.commit("of others", part(target, WriteMode.APPEND, _rows((2, "b"))))
    _expire_all(care, target)
    os.utime(load.files[0].path, (time.time() + 3600, time.time() + 3600))
    for writer in (iceberg, elsewhere):
        for announced in (load, msgspec.structs.replace(load, log_position=None)):
            assert writer.find_load("l1", announced) is not None
        assert writer.commit("l1", load).was_there
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "b")]


@pytest.mark.spark
@pytest.mark.parametrize("has_landed", [True, False])
def test_older_metadata_tells_of_a_load_whose_snapshot_and_files_others_took_away(
    iceberg: IcebergTables,
    elsewhere: IcebergTables,
    care: IcebergCare,
    target: TableTarget,
    iceberg_rows: Reader,
    *,
    has_landed: bool,
) -> None:
    load = _announced(target, (1, "a"))
    if has_landed:
        iceberg.commit("l1", load)
    for number in range(2, 7):
        iceberg.commit(f"o{number}", part(target, WriteMode.APPEND, _rows((number, "b"))))
    assert care.compact(target.name).rewritten_files
    _expire_all(care, target)
    if not has_landed:
        os.utime(load.files[0].path, (0, 0))  # It looks older than the whole log.
    for writer in (iceberg, elsewhere):
        assert (writer.find_load("l1", load) is not None) is has_landed
    files = Path(target.location, "metadata").glob("v*.metadata.json")
    *older, _newest = sorted(files, key=lambda file: int(file.name.removeprefix("v").partition(".")[0]))
    kept = [file.rename(file.with_suffix(".away")) for file in older]
    with pytest.raises(CommitUnknown, match="have expired, and its files are not in the table"):
        elsewhere.find_load("l1", load)
    for file in kept:
        file.rename(file.with_suffix(".json"))
    assert iceberg.commit("l1", load).was_there is has_landed
    assert names(iceberg_rows(target)) == [(1, "a"), *((number, "b") for number in range(2, 7))]
