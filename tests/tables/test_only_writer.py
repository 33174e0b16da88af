"""The lock that lets one process at a time commit to a table on this machine."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.storage import without_file_scheme
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.tables import only_writer
from dagster_airbyte_proto.tables.changes.push_plan import SparkPlanner
from dagster_airbyte_proto.tables.formats import care_of, rewinder_of
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.only_writer import locked_in_time
from dagster_airbyte_proto.tables.only_writer import only_writer as alone
from tests.conformance.table_rows import SCHEMA, part, table_name
from tests.sync.shop import descriptors

Eventually = Callable[[Callable[[], bool]], None]

_HOLDER = """
import sys
from dagster_airbyte_proto.tables.only_writer import only_writer
with only_writer("file:" + sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_commits_of_threads_and_processes_take_turns(tmp_path: Path) -> None:
    count = tmp_path / "count"
    count.write_text("0")

    def add(_: int) -> None:
        with alone(str(tmp_path)):
            before = int(count.read_text())
            count.write_text(str(before + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(200)))
    assert count.read_text() == "200"


def test_the_lock_of_a_dead_process_is_free_and_that_of_a_stopped_one_is_waited_for_no_longer_than_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(only_writer, "_MOST_SECONDS", 0.05)
    command = [sys.executable, "-c", _HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        opened = os.open(tmp_path, os.O_RDONLY)
        assert not locked_in_time(opened, 0.0)
        with alone(str(tmp_path)):
            pass
        holder.kill()
        holder.wait()
        assert locked_in_time(opened, 5.0)
        os.close(opened)


@pytest.mark.spark
@pytest.mark.parametrize("tables", ["iceberg", "delta"])
def test_an_expiry_and_a_rollback_wait_for_a_commit_of_another_process(
    tables: str, request: pytest.FixtureRequest, eventually: Eventually
) -> None:
    writer = request.getfixturevalue(tables)
    target = writer.prepare(TableSpec(table_name(), SCHEMA))
    loads = [part(target, WriteMode.OVERWRITE, [{"id": number, "name": "a"}]) for number in range(3)]
    _, second, _ = [writer.commit(f"l{number}", load).snapshot_id for number, load in enumerate(loads)]
    rewinder, care = rewinder_of(writer), care_of(writer)
    seen = rewinder.past(target.name)
    for change in (
        lambda: rewinder.rewind(target.name, second, seen=seen, version=1),
        lambda: care.expire(target.name, [each.snapshot_id for each in care.history(target.name).changes[:-1]]),
    ):
        assert _waits_for_others(change, target, eventually)


@pytest.mark.spark
def test_the_tag_of_a_push_waits_for_a_commit_of_another_process(
    spark: SparkSession, iceberg: IcebergTables, target: TableTarget, eventually: Eventually
) -> None:
    planner, tables = SparkPlanner(spark), target.qualified
    snapshots = []
    for number in range(2):
        iceberg.commit(f"l{number}", part(target, WriteMode.APPEND, [{"id": number, "name": "a"}]))
        snapshots.append(planner.snapshot(tables))
    first, second = (each for each in snapshots if each is not None)
    for change in (
        lambda: planner.keep_snapshot("push", first),
        lambda: planner.keep_snapshot("push", second),
        lambda: planner.release_snapshot("push", tables),
    ):
        _waits_for_others(change, target, eventually)


def _waits_for_others(change: Callable[[], object], target: TableTarget, eventually: Eventually) -> object:
    """Makes a change while another process has the lock of its table. Returns its result."""
    folder = Path(without_file_scheme(target.location))
    with ThreadPoolExecutor(1) as pool, alone(str(folder)):
        changed = pool.submit(change)
        eventually(lambda: changed.done() or _times_open(folder) > 1)
        assert not changed.done()
    return changed.result()


def _times_open(folder: Path) -> int:
    return sum(Path(place) == folder for _, place in descriptors())


def test_other_places_have_no_lock(tmp_path: Path) -> None:
    for place in ("s3://bucket/table", str(tmp_path / "not there")):
        with alone(place):
            pass
