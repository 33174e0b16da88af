"""Tables of a catalog of type `hadoop`, whose folders cannot be read for a while, lose their hint, or are dropped."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown, TableError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_branches import branch_part
from tests.conformance.table_rows import SCHEMA, Reader, before_commit, names, part

pytestmark = pytest.mark.spark

_HINT = "version-hint.text"


def _looped(folder: Path) -> None:
    """No look at what is in it succeeds, nor one at itself: so it is on a disk with errors, or without a right."""
    (folder / "metadata").symlink_to("metadata")


def _dangling(folder: Path) -> None:
    (folder / "metadata").symlink_to("disk-that-is-not-mounted")


def _file(folder: Path) -> None:
    (folder / "metadata").write_text("")


def _calls(tables: IcebergTables, target: TableTarget, landed: StagedRows) -> Iterator[Callable[[], object]]:
    """The calls that look whether a table is there."""
    yield lambda: tables.witness(target.name, "shop")
    yield lambda: tables.branches(target.name)
    yield lambda: tables.find_load("l1", landed)
    yield lambda: tables.prepare(TableSpec(target.name, SCHEMA))


@pytest.fixture
def filled(iceberg: IcebergTables, target: TableTarget) -> StagedRows:
    """A load that the target has."""
    landed = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    iceberg.commit("l1", landed)
    return landed


@pytest.mark.parametrize("fault", [_looped, _dangling, _file])
def test_a_table_that_cannot_be_read_is_not_taken_for_missing(
    fault: Callable[[Path], None],
    spark: SparkSession,
    iceberg: IcebergTables,
    spark_settings: SparkSettings,
    target: TableTarget,
    filled: StagedRows,
) -> None:
    folder = Path(target.location)
    (folder / "metadata").rename(folder / "away")
    fault(folder)
    there = sorted(folder.iterdir())
    for tables in (iceberg, IcebergTables(spark, spark_settings)):  # The first has the table open.
        for call in _calls(tables, target, filled):
            with pytest.raises(TableError) as caught:
                call()
            assert f"{folder}/metadata: " in str(caught.value)
            assert "Mount its disk" in caught.value.remedy
    assert sorted(folder.iterdir()) == there
    (folder / "metadata").unlink()
    (folder / "away").rename(folder / "metadata")
    assert iceberg.find_load("l1", filled) is not None
    assert iceberg.prepare(TableSpec(target.name, SCHEMA)).table_id == target.table_id


def test_a_folder_in_which_no_table_was_ever_finished_becomes_one(iceberg: IcebergTables, target: TableTarget) -> None:
    """As a process leaves it that dies before the rename."""
    for file in (Path(target.location) / "metadata").iterdir():
        file.rename(file.with_name(f"0{file.name}"))
    assert iceberg.witness(target.name, "shop") is None
    assert iceberg.prepare(TableSpec(target.name, SCHEMA)).table_id != target.table_id


@pytest.mark.parametrize("hint", [None, "", "1", "no number"])
def test_a_hint_that_is_lost_old_or_torn_loses_no_row(
    hint: str | None,
    spark: SparkSession,
    spark_settings: SparkSettings,
    target: TableTarget,
    filled: StagedRows,
    iceberg_rows: Reader,
) -> None:
    _set_hint(target, hint)
    tables = IcebergTables(spark, spark_settings)
    assert tables.find_load("l1", filled) is not None
    tables.commit("l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}]))
    assert names(iceberg_rows(target)) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("hint", ["0", "99"])
def test_a_hint_of_a_version_that_is_not_there_is_an_error_with_its_remedy(
    hint: str, spark: SparkSession, spark_settings: SparkSettings, target: TableTarget, filled: StagedRows
) -> None:
    file = _set_hint(target, hint)
    tables = IcebergTables(spark, spark_settings)
    for call in _calls(tables, target, filled):
        with pytest.raises(TableError) as caught:
            call()
        assert f"Delete {file}" in caught.value.remedy
    file.unlink()
    assert tables.find_load("l1", filled) is not None


def _set_hint(target: TableTarget, hint: str | None) -> Path:
    file = Path(target.location) / "metadata" / _HINT
    file.unlink()
    (file.parent / f".{_HINT}.crc").unlink(missing_ok=True)
    if hint is not None:
        file.write_text(hint)
    return file


@pytest.mark.parametrize("goes_to_branch", [False, True])
def test_a_table_that_is_dropped_while_a_load_commits_does_not_come_back(
    goes_to_branch: bool,
    spark: SparkSession,
    iceberg: IcebergTables,
    spark_settings: SparkSettings,
    target: TableTarget,
    filled: StagedRows,
) -> None:
    folder = Path(target.location)
    load = branch_part(target, WriteMode.OVERWRITE, [(1, "a")]) if goes_to_branch else filled
    before_commit(lambda: shutil.rmtree(folder))
    try:
        with pytest.raises(CommitUnknown):
            iceberg.commit("l2", load)
    finally:
        points.arm(None)
    assert not [*folder.glob("metadata/v*"), *folder.glob(f"metadata/{_HINT}")]
    tables = IcebergTables(spark, spark_settings)
    assert tables.witness(target.name, "shop") is None
    with pytest.raises(TableError, match="Table does not exist"):
        tables.find_load("l2", load)
