"""Partitions of one connection that are synced at once: by threads here, which share no lease and no engine."""

import json
import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto import points
from dagster_airbyte_proto.checkpoints.slot import Slot
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import StateConflict
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.plan.stream_plan import Slice, SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.testing import fake_source
from tests.sync.conftest import OpenShop
from tests.sync.plan.test_partitions import ids, partitioned, states, sync_of
from tests.sync.shop import Shop
from tests.sync.test_sync import two

KEYS = tuple(f"p{number}" for number in range(10))
_MEETING = """
import os, pathlib, runpy, sys, time
place, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
sys.argv[1:] = sys.argv[3:]
if "read" in sys.argv:
    (place / str(os.getpid())).touch()
    ends_at = time.monotonic() + 180
    while len(list(place.iterdir())) < number:
        if time.monotonic() > ends_at:
            sys.exit("the others did not come")
        time.sleep(0.01)
runpy.run_path({source!r}, run_name="__main__")
"""


def meeting(folder: Path, number: int) -> list[str]:
    """A source that sends nothing before so many of it run at once."""
    script, place = folder / "meeting.py", folder / "met"
    place.mkdir(parents=True)
    script.write_text(_MEETING.format(source=fake_source.__file__))
    return [sys.executable, str(script), str(place), str(number)]


def waiting(folder: Path, seconds: float) -> list[str]:
    """A source that waits before it sends the first record."""
    script = folder / "waiting.py"
    begun = f'time.sleep({seconds} if "read" in sys.argv else 0)'
    script.write_text(
        f"import runpy, sys, time\n{begun}\nrunpy.run_path({fake_source.__file__!r}, run_name='__main__')\n"
    )
    return [sys.executable, str(script)]


def shop_kept_in(kind: str, place: Shop, request: pytest.FixtureRequest) -> Shop:
    """The place, with its state in SQLite or in PostgreSQL."""
    if kind == "postgres":
        url = request.getfixturevalue("postgres_server").new_store()
        place.store = SqlStore(url)
        place.settings_written["state_url"] = url
    return place


def offered(place: Shop, counts: dict[str, int]) -> None:
    partitioned(place)
    for key, count in counts.items():
        (place.folder / f"of-{key}.json").write_text(json.dumps(two(count, count + 1)))
    place.offer(two(1, 1))


def at_once(keys: Sequence[str], sync: Callable[[str], SyncReport]) -> list[SyncReport]:
    with ThreadPoolExecutor(len(keys)) as pool:
        return list(pool.map(sync, keys))


def syncs_at_once_twice(place: Shop, keys: Sequence[str]) -> None:
    """Syncs partitions at once, then more of the same, and fails unless each time all that was offered is there."""
    options = RunOptions(threading.Event(), lease_wait_seconds=60)
    for turn in (1, 2):
        place.program = meeting(place.folder / str(turn), len(keys))
        counts = {key: number + 5 * turn for number, key in enumerate(keys)}
        offered(place, counts)
        reports = at_once(keys, lambda key: place.sync(SyncRequest(slice=Slice(key)), options))
        assert [report.status for report in reports] == [SyncStatus.COMPLETE] * len(keys)
        assert ids(place) == {key: list(range(count)) for key, count in counts.items()}
        assert ids(place, "orders") == {key: list(range(count + 1)) for key, count in counts.items()}
        assert set(states(place)) == set(keys)
        assert place.store.current_leases("shop") == []
        assert place.loose_files() == []


@pytest.mark.everyday("sqlite")
@pytest.mark.parametrize("kept_in", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_ten_partitions_at_once_are_exact_twice(kept_in: str, shop: OpenShop, request: pytest.FixtureRequest) -> None:
    place = shop_kept_in(kept_in, shop(write="append_dedup", max_bytes=1), request)
    place.more["parallel"] = 10
    syncs_at_once_twice(place, KEYS)


@pytest.mark.nightly
def test_ten_partitions_at_once_are_exact_on_executors(shop: OpenShop, monkeypatch: pytest.MonkeyPatch) -> None:
    place = shop(write="append_dedup", max_bytes=1)
    monkeypatch.setenv("AIRBYTE_PROTO_EXECUTOR_HOME", str(place.folder / "executor"))
    place.more |= {"parallel": len(KEYS), "run_on": "executors"}
    syncs_at_once_twice(place, KEYS)


@pytest.mark.nightly
@pytest.mark.parametrize("kept_in", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_eight_partitions_of_a_source_that_waits_take_a_third_of_the_time(
    kept_in: str, shop: OpenShop, request: pytest.FixtureRequest
) -> None:
    place, keys = shop_kept_in(kept_in, shop(write="append_dedup"), request), KEYS[:8]
    place.more["parallel"] = len(keys)
    place.program = waiting(place.folder, 5.0)
    counts = dict.fromkeys(keys, 5)
    offered(place, counts)

    def sync(key: str) -> SyncReport:
        return place.sync(SyncRequest(slice=Slice(key)))

    sync(keys[0])  # From now on the catalog is known.
    began = time.monotonic()
    one_by_one = [sync(key) for key in keys]
    between = time.monotonic()
    together = at_once(keys, sync)
    ended = time.monotonic()
    assert [report.status for report in (*one_by_one, *together)] == [SyncStatus.COMPLETE] * 16
    assert ids(place) == {key: list(range(count)) for key, count in counts.items()}
    assert ended - between < (between - began) / 3


@pytest.mark.spark
@pytest.mark.everyday("iceberg-append_dedup")
@pytest.mark.parametrize("write", ["append_dedup", "overwrite"])
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_real_tables_take_slices_from_several_runs_at_once(
    kind: str, write: str, spark: SparkSession, spark_settings: SparkSettings, shop: OpenShop
) -> None:
    read = "full_refresh" if write == "overwrite" else "incremental"
    keys, place = KEYS[:5], shop(write=write, read=read, max_bytes=1)
    name = f"shop_{secrets.token_hex(4)}"
    place.more |= {"parallel": len(keys), "destination": {"namespace": name}}
    settings = spark_settings._replace(catalog="spark_catalog", format="delta") if kind == "delta" else spark_settings
    tables = (DeltaTables if kind == "delta" else IcebergTables)(spark, settings)
    engine_settings = Settings.load(place.home)

    def sync(key: str) -> SyncReport:
        connection = Connection.from_file(place.connection_file)
        with Engine(engine_settings, tables=tables) as engine:
            return sync_connection(engine, connection, SyncRequest(slice=Slice(key)))

    for turn in (1, 2):
        place.program = meeting(place.folder / str(turn), len(keys))
        counts = {key: number + 4 * turn for number, key in enumerate(keys)}
        offered(place, counts)
        reports = at_once(keys, sync)
        errors = [str(each.error or report.error) for report in reports for each in report.streams.values()]
        assert [report.status for report in reports] == [SyncStatus.COMPLETE] * len(keys), "\n".join(errors)
        found: dict[str, list[int]] = {key: [] for key in keys}
        for key, number in query(spark, f"select _airbyte_partition, id from {tables.catalog}.{name}.users").rows:
            found[key].append(number)
        assert {key: sorted(rows) for key, rows in found.items()} == {
            key: [*range(count)] for key, count in counts.items()
        }


def test_the_whole_connection_waits_for_its_partitions_and_they_for_each_other(shop: OpenShop) -> None:
    place = shop()
    place.more["parallel"] = 1
    offered(place, {"p0": 3, "p1": 4})
    slot = Slot("p1", 1)
    with acquire_lease(place.store, "shop", "other", 60, slot=slot):
        with pytest.raises(StateConflict, match="run other"):
            place.sync(SyncRequest(slice=Slice("p1")))
        with pytest.raises(StateConflict, match="1 of its runs work now"):
            place.sync(SyncRequest(slice=Slice("p0")))
        place.more["parallel"] = 2
        place.offer(two(1, 1))
        assert place.sync(SyncRequest(slice=Slice("p0"))).status is SyncStatus.COMPLETE
    assert ids(place) == {"p0": [0, 1, 2]}


def test_a_connector_that_rewrites_its_config_runs_once_at_a_time(shop: OpenShop) -> None:
    place = shop()
    place.more["parallel"] = 4
    offered(place, {"p0": 3, "p1": 4})
    with acquire_lease(place.store, "shop", "by hand", 60) as whole:
        place.store.save_config(whole.lease, {"token": "new"}, based_on="digest")
    with (
        acquire_lease(place.store, "shop", "other", 60, slot=Slot("p1", 4)),
        pytest.raises(StateConflict, match="1 of its runs work now"),
    ):
        place.sync(SyncRequest(slice=Slice("p0")))


def test_what_a_partition_of_a_backfill_has_left_is_swept_beside_the_next_one(shop: OpenShop) -> None:
    """All partitions of a backfill have one run id. Another run syncs the one that failed before the next one lands."""
    place, backfill = partitioned(shop(max_bytes=1 << 30)), RunOptions(threading.Event(), run_id="backfill")
    failed = sync_of(place, "a", two(9, 9, failure={"kind": "exit", "after": 12}), backfill)
    assert failed.status is SyncStatus.FAILED
    again: list[SyncReport] = []

    def once(point: str) -> None:
        if point == "load.staged":
            points.arm(None)
            again.append(sync_of(place, "a", two(9, 9)))

    points.arm(once)
    try:
        report = sync_of(place, "b", two(5, 5), backfill)
    finally:
        points.arm(None)
    assert [each.status for each in (*again, report)] == [SyncStatus.COMPLETE] * 2
    assert ids(place) == {"a": list(range(9)), "b": list(range(5))}
    assert place.loose_files() == []
