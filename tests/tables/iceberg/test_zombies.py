"""Writers that come back from the dead: real processes with JVMs of their own, really stopped and really killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import MergeMode, WriteMode
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_branches import BRANCH, branch_part
from tests.conformance.table_rows import MODES, SCHEMA, Reader, names, part, table_name
from tests.support.fork_server import has_ended

pytestmark = pytest.mark.spark

# Commits the loads it is given, one a line. Before each commit it does what the line begins with: stops itself,
# kills itself a moment later, or kills its JVM.
_WRITER = """
import os, signal, sys, threading
import msgspec
from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import CommitUnknown
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
warehouse, catalog, form = sys.argv[1:]
settings = SparkSettings(warehouse, catalog, form, config={"spark.driver.memory": "1g"}, short_lived=True)
session = start_session(settings)
tables = {"iceberg": IcebergTables, "delta": DeltaTables}[form](session, settings)
jvm = session.sparkContext._gateway.proc
print(jvm.pid, flush=True)
def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
def die():
    # About half the time of a commit, so that the JVM has received the call and has not answered.
    threading.Timer(0.04, os.kill, (os.getpid(), signal.SIGKILL)).start()
def lose_jvm():
    jvm.kill()
    jvm.wait()
acts = {"stop": stop, "die": die, "lose_jvm": lose_jvm}
for line in sys.stdin:
    act, _, load = line.partition(" ")
    points.arm(lambda point: acts[act]() if point == "table.committing" and not points.arm(None) else None)
    try:
        print(tables.commit("l1", msgspec.json.decode(load, type=StagedRows)).was_there, flush=True)
    except CommitUnknown as unknown:
        print(type(unknown).__name__, flush=True)
"""


@pytest.fixture(scope="module")
def jvm_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("writer") / "stderr"


@pytest.fixture
def writer(spark_settings: SparkSettings, spark: SparkSession, jvm_log: Path) -> "Iterator[subprocess.Popen[str]]":
    yield from _writer(spark_settings, jvm_log)


@pytest.fixture
def delta_writer(
    delta_settings: SparkSettings, spark: SparkSession, jvm_log: Path
) -> "Iterator[subprocess.Popen[str]]":
    yield from _writer(delta_settings, jvm_log)


def _writer(settings: SparkSettings, jvm_log: Path) -> "Iterator[subprocess.Popen[str]]":
    with jvm_log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, settings.warehouse, settings.catalog, settings.format],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with process:
        yield process
        process.kill()


def _ask(writer: "subprocess.Popen[str]", act: str, load: StagedRows) -> None:
    assert writer.stdin is not None
    writer.stdin.write(f"{act} {msgspec.json.encode(load).decode()}\n")
    writer.stdin.flush()


def _answer(writer: "subprocess.Popen[str]") -> str:
    assert writer.stdout is not None
    return writer.stdout.readline().strip()


@pytest.mark.nightly
def test_neither_a_stopped_nor_a_dead_writer_lands_a_load_twice(
    spark: SparkSession,
    iceberg: IcebergTables,
    writer: "subprocess.Popen[str]",
    iceberg_rows: Reader,
    eventually: Callable[[Callable[[], bool]], None],
) -> None:
    jvm = _answer(writer)
    for write, merge in [
        *((mode, MergeMode.ON_READ) for mode in MODES),
        (WriteMode.APPEND_DEDUP, MergeMode.COPY_ON_WRITE),
        (WriteMode.APPEND_DEDUP, MergeMode.POSITIONS),
    ]:
        target = iceberg.prepare(TableSpec(table_name(), SCHEMA))
        iceberg.commit("l0", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "old"}]))
        load = msgspec.structs.replace(part(target, write, [{"id": 1, "name": "a"}]), merge=merge)
        _ask(writer, "stop", load)
        assert os.WIFSTOPPED(os.waitpid(writer.pid, os.WUNTRACED)[1])
        assert not iceberg.commit("l1", load).was_there
        assert not iceberg.commit("l2", part(target, WriteMode.APPEND_DEDUP, [{"id": 1, "name": "newer"}])).was_there
        writer.send_signal(signal.SIGCONT)
        assert _answer(writer) == "True"
        assert names(iceberg_rows(target)) == [(1, "newer")]
        loads = query(spark, f"select summary['airbyte-proto.load-id'] from {target.qualified}.snapshots order by 1")
        assert loads.rows == [["l0"], ["l1"], ["l2"]]

    for after in (None, "l0"):
        target = iceberg.prepare(TableSpec(table_name(), SCHEMA))
        if after:
            iceberg.commit("l0", branch_part(target, WriteMode.OVERWRITE, [(0, "a")]))
        load = branch_part(target, WriteMode.OVERWRITE, [(1, "a")], after=after, publishes=after is not None)
        _ask(writer, "stop", load)
        assert os.WIFSTOPPED(os.waitpid(writer.pid, os.WUNTRACED)[1])
        assert not iceberg.commit("l1", load).was_there
        newer = branch_part(target, WriteMode.OVERWRITE, [(2, "b")], after=None if after else "l1", publishes=not after)
        assert not iceberg.commit("l2", newer).was_there
        writer.send_signal(signal.SIGCONT)
        assert _answer(writer) == "True"
        assert names(iceberg_rows(target)) == [(0 if after else 1, "a"), (1, "a") if after else (2, "b")]
        assert dict(iceberg.branches(target.name)) == ({BRANCH: "l2"} if after else {})

    target = iceberg.prepare(TableSpec(table_name(), SCHEMA))
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    _ask(writer, "die", load)
    assert writer.wait(30) == -signal.SIGKILL
    iceberg.commit("l1", load)
    eventually(lambda: has_ended(jvm))
    spark.catalog.refreshTable(target.qualified)
    assert names(iceberg_rows(target)) == [(1, "a")]


@pytest.mark.nightly
def test_a_commit_whose_jvm_died_is_unknown(
    iceberg: IcebergTables, writer: "subprocess.Popen[str]", iceberg_rows: Reader
) -> None:
    _answer(writer)
    target = iceberg.prepare(TableSpec(table_name(), SCHEMA))
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    _ask(writer, "lose_jvm", load)
    assert _answer(writer) == "CommitUnknown"
    assert not iceberg.commit("l1", load).was_there
    assert names(iceberg_rows(target)) == [(1, "a")]


@pytest.mark.nightly
def test_neither_a_stopped_nor_a_dead_writer_lands_a_load_in_delta_twice(
    delta: DeltaTables, delta_writer: "subprocess.Popen[str]", iceberg_rows: Reader
) -> None:
    _answer(delta_writer)
    for write in MODES:
        target = delta.prepare(TableSpec(table_name(), SCHEMA))
        delta.commit("l0", part(target, WriteMode.APPEND, [{"id": 1, "name": "old"}]))
        load = part(target, write, [{"id": 1, "name": "a"}])
        _ask(delta_writer, "stop", load)
        assert os.WIFSTOPPED(os.waitpid(delta_writer.pid, os.WUNTRACED)[1])
        assert not delta.commit("l1", load).was_there
        assert not delta.commit("l2", part(target, WriteMode.OVERWRITE, [{"id": 1, "name": "newer"}])).was_there
        delta_writer.send_signal(signal.SIGCONT)
        assert _answer(delta_writer) == "True"
        assert names(iceberg_rows(target)) == [(1, "newer")]

    target = delta.prepare(TableSpec(table_name(), SCHEMA))
    load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
    _ask(delta_writer, "die", load)
    assert delta_writer.wait(30) == -signal.SIGKILL
    delta.commit("l1", load)
    assert names(iceberg_rows(target)) == [(1, "a")]
