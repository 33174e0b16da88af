"""Streams of one connection that several processes of the connector read, in groups."""

import secrets
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto import points
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, InternalError
from dagster_airbyte_proto.model import PlannedStream, ReadMode, Stream, StreamId, TableName, WriteMode
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.plan.stream_groups import divided
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.testing import fake_source
from tests.sync.conftest import OpenShop
from tests.sync.plan.test_parallel_partitions import meeting, shop_kept_in
from tests.sync.shop import CancelAfter, Shop

NAMES = ("users", "orders", "items", "visits", "prices", "stores")
_SLOW = """
import importlib.util, json, sys, time
place, seconds = sys.argv[1], float(sys.argv[2])
sys.argv[1:] = sys.argv[3:]
found = importlib.util.spec_from_file_location("fake_source", place)
source = importlib.util.module_from_spec(found)
found.loader.exec_module(source)
write = source.SourceOutput.write
def slowly(self, message):
    if '"STARTED"' in json.dumps(message):
        time.sleep(seconds)
    write(self, message)
source.SourceOutput.write = slowly
source.run(source.main)
"""


def slow(folder: Path, seconds: float) -> list[str]:
    """A source that waits before each stream."""
    script = folder / "slow.py"
    script.write_text(_SLOW)
    return [sys.executable, str(script), fake_source.__file__, str(seconds)]


def several(counts: dict[str, int], **whole: Any) -> dict[str, Any]:
    return {"streams": {name: {"records": count} for name, count in counts.items()}, "state_every": 5, **whole}


def opened(shop: OpenShop, parallel: int, **written: Any) -> Shop:
    place = shop(**written)
    place.more["parallel"] = parallel
    return place


def expect(place: Shop, counts: dict[str, int]) -> None:
    """Checks that each row is there once, that the states cover them, and that nothing is left over."""
    assert {name: place.column(name) for name in counts} == {name: [*range(count)] for name, count in counts.items()}
    assert place.positions() == counts
    assert place.loose_files() == []
    assert place.store.current_leases("shop") == []
    assert place.store.announced_loads("shop") == []


@pytest.mark.everyday("sqlite")
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_groups_of_streams_are_exact_twice(store: str, shop: OpenShop, request: pytest.FixtureRequest) -> None:
    place = shop_kept_in(store, opened(shop, 3, write="append_dedup"), request)
    counts = {name: 7 + number for number, name in enumerate(NAMES)}
    first = place.sync_of(several(counts))
    assert (first.status, first.processes) == (SyncStatus.COMPLETE, 1)
    expect(place, counts)
    for turn in (1, 2):
        counts = {name: count + 6 for name, count in counts.items()}
        place.program = meeting(place.folder / str(turn), 3)
        report = place.sync_of(several(counts))
        assert (report.status, report.processes) == (SyncStatus.COMPLETE, 3)
        assert list(report.streams) == list(NAMES)
        assert {name: stream.committed for name, stream in report.streams.items()} == dict.fromkeys(NAMES, 6)
        assert report.lines.record == 6 * len(NAMES)
        expect(place, counts)
    assert len(place.store.runs("shop")) == 3


@pytest.mark.everyday("global")
@pytest.mark.parametrize("scope", ["global", "legacy"])
def test_streams_that_share_a_state_are_never_read_by_two(scope: str, shop: OpenShop) -> None:
    place = opened(shop, 3)
    for turn in (1, 2):
        counts = dict.fromkeys(NAMES[:3], 10 * turn)
        report = place.sync_of(several(counts, state=scope))
        assert (report.status, report.processes, report.shared_state) == (SyncStatus.COMPLETE, 1, False)
        expect(place, counts)
    assert "they share one state" in place.log(report)


@pytest.mark.everyday("global")
@pytest.mark.parametrize("scope", ["global", "legacy"])
def test_a_source_that_turns_to_one_state_for_all_moves_none_of_it_and_is_read_by_one_then(
    scope: str, shop: OpenShop
) -> None:
    place = opened(shop, 3)
    counts = dict.fromkeys(NAMES[:3], 10)
    place.sync_of(several(counts))
    before = place.store.states("shop")
    more = dict.fromkeys(NAMES[:3], 23)
    report = place.sync_of(several(more, state=scope))
    assert (report.status, report.processes, report.shared_state) == (SyncStatus.FAILED, 3, True)
    assert all("one state for all its streams" in (stream.error or "") for stream in report.streams.values())
    assert place.store.states("shop") == before
    # A sync that moves no state leaves it at that.
    report = place.sync_of(several(more, state=scope, failure={"kind": "exit", "after": 0}))
    assert (report.status, report.processes, report.shared_state) == (SyncStatus.FAILED, 1, True)
    # So does one that is refused before it begins.
    password, place.config["password"] = place.config["password"], "${env:NO_SUCH_VARIABLE}"
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE"):
        place.sync_of(several(more, state=scope))
    place.config["password"] = password
    report = place.sync_of(several(more, state=scope))
    assert (report.status, report.processes, report.shared_state) == (SyncStatus.COMPLETE, 1, False)
    expect(place, more)


def test_the_first_sync_and_the_first_after_a_reset_are_of_one_process(shop: OpenShop) -> None:
    place = opened(shop, 2, write="append_dedup")
    counts = dict.fromkeys(NAMES[:2], 5)
    assert [place.sync_of(several(counts)).processes for _ in range(2)] == [1, 2]
    with acquire_lease(place.store, "shop", "by hand", 60) as held:
        place.store.change_state(held.lease, None, None, who="a person")
    assert [place.sync().processes for _ in range(2)] == [1, 2]
    expect(place, counts)


@pytest.mark.nightly
def test_streams_that_are_read_whole_need_no_state_for_it(shop: OpenShop) -> None:
    place = opened(shop, 2, read="full_refresh", write="overwrite")
    report = place.sync_of(several(dict.fromkeys(NAMES[:4], 5)))
    assert (report.status, report.processes) == (SyncStatus.COMPLETE, 2)
    assert [place.column(name) for name in NAMES[:4]] == [[*range(5)]] * 4


def test_a_process_that_dies_takes_the_streams_of_no_other_down(shop: OpenShop) -> None:
    place = opened(shop, 3)
    place.sync_of(several(dict.fromkeys(NAMES[:3], 5)))
    counts = {"users": 40, "orders": 9, "items": 8}
    report = place.sync_of(several(counts, failure={"kind": "signal", "after": 12}))
    assert (report.status, report.connector.signal, report.error) == (SyncStatus.PARTIAL, 9, None)
    assert {name: stream.status.value for name, stream in report.streams.items()} == {
        "users": "failed", "orders": "complete", "items": "complete",
    }  # fmt: skip
    assert place.positions() == {"users": 15, "orders": 9, "items": 8}
    report = place.sync_of(several(counts))
    assert (report.status, report.streams["users"].emitted) == (SyncStatus.COMPLETE, 25)
    expect(place, counts)


def test_a_fault_of_ours_in_one_group_leaves_the_others_their_states(shop: OpenShop) -> None:
    place = opened(shop, 3)
    place.sync_of(several(dict.fromkeys(NAMES[:3], 5)))
    counts = dict.fromkeys(NAMES[:3], 8)
    lock = threading.Lock()
    failed: list[str] = []

    def fail_once(point: str) -> None:
        with lock:
            if point == "load.announced" and not failed:
                failed.append(point)
                raise InternalError("testing", "a fault of ours")

    points.arm(fail_once)
    try:
        with pytest.raises(InternalError, match="a fault of ours"):
            place.sync_of(several(counts))
    finally:
        points.arm(None)
    assert sorted(place.positions().values()) == [5, 8, 8]
    report = place.sync()
    assert (report.status, report.recovered_loads) == (SyncStatus.COMPLETE, 1)
    expect(place, counts)


def test_configs_that_two_processes_rewrite_are_kept_and_the_next_sync_runs_one(shop: OpenShop) -> None:
    place = opened(shop, 2, read="full_refresh", write="overwrite")
    scenario = several(dict.fromkeys(NAMES[:2], 5))
    place.offer(scenario)
    config = {"scenario": str(place.folder / "scenario.json"), "password": "rotated"}
    report = place.sync_of({**scenario, "new_config": config})
    assert (report.status, report.processes) == (SyncStatus.COMPLETE, 2)
    assert any("rewrote its config while others" in warning for warning in report.warnings)
    stored = place.store.stored_config("shop")
    assert stored is not None and stored.config == config
    report = place.sync()
    assert (report.status, report.processes) == (SyncStatus.COMPLETE, 1)
    assert "invalidate each other's tokens" in place.log(report)


@pytest.mark.nightly
def test_a_cancelled_sync_ends_every_process(shop: OpenShop) -> None:
    place = opened(shop, 2)
    place.sync_of(several(dict.fromkeys(NAMES[:2], 5)))
    counts = dict.fromkeys(NAMES[:2], 20)
    cancel = threading.Event()
    options = RunOptions(cancel, CancelAfter(cancel, 10))
    report = place.sync_of(several(counts, failure={"kind": "hang", "after": 7}), options=options)
    assert (report.status, report.processes) == (SyncStatus.CANCELLED, 2)
    assert place.positions() == dict.fromkeys(NAMES[:2], 10)
    assert place.sync_of(several(counts)).status is SyncStatus.COMPLETE
    expect(place, counts)


@pytest.mark.nightly
def test_a_refresh_reads_its_generations_side_by_side(shop: OpenShop) -> None:
    place = opened(shop, 3, write="append_dedup")
    place.sync_of(several(dict.fromkeys(NAMES[:3], 9)))
    counts = dict.fromkeys(NAMES[:3], 6)
    report = place.sync_of(several(counts), SyncRequest(refresh=True))
    assert (report.status, report.processes) == (SyncStatus.COMPLETE, 3)
    assert [stream.generation for stream in report.streams.values()] == [1, 1, 1]
    expect(place, counts)
    assert place.branches() == []


def test_the_listener_learns_of_all_streams_at_once_and_before_their_states_move(shop: OpenShop) -> None:
    place = opened(shop, 3, max_bytes=1 << 20)
    place.sync_of(several(dict.fromkeys(NAMES[:3], 5)))
    counts = dict.fromkeys(NAMES[:3], 9)
    listener = _Listener(place)
    report = place.sync_of(several(counts), options=RunOptions(threading.Event(), commit_listener=listener))
    assert report.status is SyncStatus.COMPLETE
    assert listener.calls == [(set(NAMES[:3]), dict.fromkeys(NAMES[:3], 5), dict.fromkeys(NAMES[:3], 9))]
    refused = place.sync_of(
        several(dict.fromkeys(NAMES[:3], 12)),
        options=RunOptions(threading.Event(), commit_listener=_Listener(place, refuses=True)),
    )
    assert refused.status is SyncStatus.FAILED
    assert place.positions() == counts
    assert len(place.store.announced_loads("shop")) == 3
    assert place.sync().recovered_loads == 3
    expect(place, dict.fromkeys(NAMES[:3], 12))


class _Listener:
    """Notes the streams that it is called with, the states then, and the rows then."""

    def __init__(self, place: Shop, *, refuses: bool = False) -> None:
        self._place, self._refuses = place, refuses
        self.calls: list[tuple[set[str], dict[str, int], dict[str, int]]] = []

    def committed(self, streams: Sequence[CommittedStream]) -> None:
        if self._refuses:
            raise CommitUnknown("testing", "nobody recorded them")
        rows = {each.stream.name: len(self._place.column(each.stream.name)) for each in streams}
        self.calls.append(({each.stream.name for each in streams}, self._place.positions(), rows))


def test_groups_have_about_as_many_rows_each_and_keep_the_order_of_streams() -> None:
    def names(groups: int, rows: dict[str, int]) -> list[list[str]]:
        return [[each.id.name for each in group] for group in divided(_planned(NAMES), groups, rows)]

    assert names(2, {}) == [["users", "items", "prices"], ["orders", "visits", "stores"]]
    assert names(9, {}) == [[name] for name in NAMES]
    large = {**dict.fromkeys(NAMES, 10), "items": 1000}
    assert names(2, large) == [["items"], ["users", "orders", "visits", "prices", "stores"]]


def _planned(names: Sequence[str]) -> list[PlannedStream]:
    return [
        PlannedStream(
            stream=Stream(id=StreamId.of(name), json_schema={}),
            table=TableName("shop", name),
            read=ReadMode.INCREMENTAL,
            write=WriteMode.APPEND,
        )
        for name in names
    ]


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_real_tables_take_groups_of_streams_at_once(
    kind: str, spark: SparkSession, spark_settings: SparkSettings, shop: OpenShop
) -> None:
    place = opened(shop, 3, write="append_dedup")
    namespace = f"shop_{secrets.token_hex(4)}"
    place.more["destination"] = {"namespace": namespace}
    settings = spark_settings._replace(catalog="spark_catalog", format="delta") if kind == "delta" else spark_settings
    tables = (DeltaTables if kind == "delta" else IcebergTables)(spark, settings)
    for turn, processes in ((1, 1), (2, 3), (3, 3)):
        counts = {name: 7 * turn + number for number, name in enumerate(NAMES)}
        if processes > 1:
            place.program = meeting(place.folder / str(turn), processes)
        place.offer(several(counts))
        with Engine(Settings.load(place.home), tables=tables) as engine:
            report = sync_connection(engine, Connection.from_file(place.connection_file))
        assert (report.status, report.processes) == (SyncStatus.COMPLETE, processes), report.error_lines()
        for name, count in counts.items():
            rows = query(spark, f"select id from {tables.catalog}.{namespace}.{name}").rows
            assert sorted(number for (number,) in rows) == [*range(count)]
        assert place.positions() == counts


@pytest.mark.nightly
def test_eight_streams_of_a_source_that_waits_take_a_third_of_the_time(shop: OpenShop) -> None:
    place = opened(shop, 1, write="append_dedup")
    counts = {f"stream_{number}": 5 for number in range(8)}
    place.sync_of(several(counts))
    place.program = slow(place.folder, 3.0)
    place.sync_of({**several(counts), "streams": {name: {"records": 5} for name in counts}})

    def seconds(parallel: int, records: int) -> float:
        place.more["parallel"] = parallel
        place.offer(several(dict.fromkeys(counts, records)))
        began = time.monotonic()
        report = place.sync()
        assert (report.status, report.processes) == (SyncStatus.COMPLETE, parallel)
        expect(place, dict.fromkeys(counts, records))
        return time.monotonic() - began

    one_by_one, together = seconds(1, 9), seconds(8, 13)
    assert together < one_by_one / 3, (one_by_one, together)
