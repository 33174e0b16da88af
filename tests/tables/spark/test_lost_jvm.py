"""A JVM that is lost between any two calls to it. Its process lives on, so that hundreds of losses take seconds."""

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JNetworkError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.jvm.errors import failure_of, first_line
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.writer import TableWriter
from tests.conformance.table_rows import SCHEMA, Reader, names, part, table_name

pytestmark = pytest.mark.spark

_COLLECTS_GARBAGE = "m\n"


class Gateway:
    """Answers so many calls of this thread, and then none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._left = 0
        self._is_lost = False

    def lost_at_each_call_of(self, act: Callable[[int], object], *, every: int = 1) -> int:
        """Has the JVM lost at the first call, at the second, and so on until `act` makes no more of them; how many it
        made. A loss is passed over or refused by an error of ours, and nothing else."""
        for answered in count(0, every):
            self._left, self._is_lost = answered, False
            with self._monkeypatch.context() as patch:
                patch.setattr(GatewayClient, "send_command", self._sender())
                with suppress(ProtoError):
                    act(answered)
            if not self._is_lost:
                return answered
        raise AssertionError

    def _sender(self) -> Callable[..., Any]:
        send, thread = GatewayClient.send_command, threading.get_ident()

        def sent(client: GatewayClient, command: str, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread or command.startswith(_COLLECTS_GARBAGE):
                return send(client, command, *args, **kwargs)
            if self._left == 0:
                # The first is what a connection that stood raises, the second what a new one does.
                loss = ConnectionRefusedError(111, "Connection refused") if self._is_lost else Py4JNetworkError("empty")
                self._is_lost = True
                raise loss
            self._left -= 1
            return send(client, command, *args, **kwargs)

        return sent


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    return Gateway(monkeypatch)


def test_a_table_of_iceberg_is_prepared_or_refused(
    gateway: Gateway, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    """With the opening of the catalog, which each writer does for itself."""
    spec = TableSpec(table_name(), SCHEMA, keys=("id",))
    opened = gateway.lost_at_each_call_of(lambda _: IcebergTables(spark, spark_settings).storage)
    found = gateway.lost_at_each_call_of(lambda _: IcebergTables(spark, spark_settings).prepare(spec))
    tables = IcebergTables(spark, spark_settings)
    made = gateway.lost_at_each_call_of(lambda _: tables.prepare(spec._replace(name=table_name())), every=3)
    assert found > opened > 50
    assert made > 50


@pytest.mark.nightly
def test_a_table_of_delta_is_prepared_or_refused(
    gateway: Gateway, spark: SparkSession, delta_settings: SparkSettings
) -> None:
    assert gateway.lost_at_each_call_of(
        lambda _: DeltaTables(spark, delta_settings).prepare(TableSpec(table_name(), SCHEMA)), every=3
    )


def test_what_spark_is_asked_is_answered_or_refused(gateway: Gateway, spark: SparkSession) -> None:
    assert gateway.lost_at_each_call_of(lambda _: query(spark, "select 1")) > 10


def test_an_error_is_read_as_far_as_the_jvm_still_answers(gateway: Gateway, spark: SparkSession) -> None:
    with pytest.raises(CapturedException) as raised:
        spark.sql("select * from nowhere_at_all")
    assert gateway.lost_at_each_call_of(lambda _: failure_of(raised.value)) > 3
    assert gateway.lost_at_each_call_of(lambda _: first_line(raised.value)) > 3


@pytest.mark.parametrize(
    ("form", "write", "every"),
    [
        ("iceberg", WriteMode.APPEND, 1),
        pytest.param("iceberg", WriteMode.OVERWRITE_DEDUP, 3, marks=pytest.mark.nightly),
        pytest.param("delta", WriteMode.APPEND, 3, marks=pytest.mark.nightly),
        pytest.param("delta", WriteMode.OVERWRITE, 5, marks=pytest.mark.nightly),
    ],
)
def test_a_load_lands_once_whenever_the_jvm_is_lost(
    gateway: Gateway,
    iceberg: IcebergTables,
    delta: DeltaTables,
    iceberg_rows: Reader,
    form: str,
    write: WriteMode,
    every: int,
) -> None:
    tables: TableWriter = iceberg if form == "iceberg" else delta
    target = tables.prepare(TableSpec(table_name(), SCHEMA, keys=("id",)))
    loads: dict[int, StagedRows] = {}

    def commit(n: int) -> None:
        loads[n] = part(target, write, [{"id": n, "name": "a"}])
        tables.commit(f"l{n}", loads[n])

    assert gateway.lost_at_each_call_of(commit, every=every) > 30
    for n, load in loads.items():
        tables.commit(f"l{n}", load)
    rows = names(iceberg_rows(target))
    assert len(rows) == len(set(rows)) == (len(loads) if write is WriteMode.APPEND else 1)
