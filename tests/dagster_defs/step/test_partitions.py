"""Partitions and backfills: what a partition is to a connector, and what runs of them leave behind."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.store import LoggedLoad
from dagster_airbyte_proto.dagster_defs.partitions import newest_slice, slice_of
from dagster_airbyte_proto.dagster_defs.step.backfill import Backfill
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.commit_listener import NoCommitListener
from dagster_airbyte_proto.sync.plan.stream_plan import Slice
from dagster_airbyte_proto.sync.report import SyncReport, failed_report
from tests.dagster_defs.support.partition_runs import KEYS, Backfills, assets, ids, offer, positions, prepared, run
from tests.dagster_defs.support.shop_runs import Run, key_of
from tests.dagster_defs.support.step_process import opened
from tests.support.fork_server import Kill
from tests.support.postgres import PostgresServer
from tests.sync.shop import Shop, processes_of
from tests.sync.test_sync import two

ROOT = Path(__file__).parents[3]
KILLED = -9
OpenShop = Callable[..., Shop]
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")


@pytest.fixture(scope="module")
def backfills() -> Iterator[tuple[Backfills, Backfills]]:
    pair = Backfills(), Backfills()
    yield pair
    for each in pair:
        each.close()


@pytest.fixture
def place(quick_folder: Path) -> Iterator[Shop]:
    made = Shop(quick_folder)
    prepared(made)
    yield made
    assert processes_of(quick_folder) == []


@pytest.fixture
def instance(place: Shop) -> Iterator[dg.DagsterInstance]:
    with opened(place.folder / "dagster") as made:
        yield made


def result(instance: dg.DagsterInstance, stream: str = "users") -> dict[str, dict[str, Any]]:
    """The newest materialization of each partition of a stream: its metadata as Python values."""
    found: dict[str, dict[str, Any]] = {}
    for record in instance.fetch_materializations(key_of(stream), limit=100).records:
        event = record.asset_materialization
        assert event is not None
        assert event.partition is not None
        found.setdefault(event.partition, {name: value.value for name, value in event.metadata.items()})
    return found


def counts(run_: Run) -> list[str]:
    return sorted(run_.materialized)


# What a partition is to a config


@pytest.mark.parametrize(
    ("partitions_def", "key", "start", "end"),
    [
        (DAYS, "2026-01-02", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"),
        (
            dg.DailyPartitionsDefinition("02.01.2026", timezone="Europe/Berlin", fmt="%d.%m.%Y"),
            "02.01.2026",
            "2026-01-01T23:00:00Z",
            "2026-01-02T23:00:00Z",
        ),
        (
            dg.HourlyPartitionsDefinition("2026-01-02-00:00"),
            "2026-01-02-07:00",
            "2026-01-02T07:00:00Z",
            "2026-01-02T08:00:00Z",
        ),
    ],
)
def test_a_time_window_is_reported_in_utc_and_its_key_as_it_is_written(
    partitions_def: dg.PartitionsDefinition[Any], key: str, start: str, end: str
) -> None:
    assert slice_of(partitions_def, key).template_values == {"key": key, "start": start, "end": end}


def test_a_key_of_dimensions_is_reported_whole_and_by_each_of_them() -> None:
    both = dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.StaticPartitionsDefinition(["eu", "us"])})
    key = dg.MultiPartitionKey({"day": "2026-01-02", "region": "eu"})
    assert slice_of(both, key) == Slice(
        "2026-01-02|eu",
        {"day": "2026-01-02", "region": "eu", "start": "2026-01-02T00:00:00Z", "end": "2026-01-03T00:00:00Z"},
    )


def test_connectors_are_asked_in_the_newest_partition_that_is_known() -> None:
    newest = newest_slice(DAYS)
    assert newest is not None
    assert newest.key == "2026-01-04"
    assert newest_slice(dg.StaticPartitionsDefinition(["b", "a"])) == Slice("a")
    assert newest_slice(dg.DynamicPartitionsDefinition(name="tenants")) is None
    assert newest_slice(None) is None


# Runs


def test_a_run_of_one_partition_replaces_its_slice_and_tells_its_rows(
    place: Shop, instance: dg.DagsterInstance
) -> None:
    for key, users in (("p00", 12), ("p01", 5), ("p00", 8)):
        offer(place, key, two(users, 3))
        assert run(place.folder, instance, key).succeeded
    assert ids(place) == {"p00": list(range(8)), "p01": list(range(5))}
    assert positions(place) == {"p00": 8, "p01": 5}
    newest = result(instance)["p00"]
    assert (newest["dagster/partition_row_count"], newest["dagster/row_count"]) == (8, 13)
    assert (newest["airbyte_proto/emitted"], newest["airbyte_proto/deleted"]) == (8, 12)


def test_a_partition_that_came_out_empty_empties_its_slice(place: Shop, instance: dg.DagsterInstance) -> None:
    for users in (6, 0):
        offer(place, "p00", two(users, 3))
        offer(place, "p01", two(4, 3))
        assert run(place.folder, instance, ("p00", "p01")).succeeded
    assert ids(place) == {"p01": list(range(4))}
    assert result(instance)["p00"]["dagster/partition_row_count"] == 0


def test_a_range_is_one_run_with_one_event_and_numbers_of_its_own_for_each_partition(
    place: Shop, instance: dg.DagsterInstance
) -> None:
    for number, key in enumerate(KEYS[:5]):
        offer(place, key, two(number + 1, 2))
    done = run(place.folder, instance, (KEYS[0], KEYS[4]))
    assert done.succeeded
    assert ids(place) == {key: list(range(number + 1)) for number, key in enumerate(KEYS[:5])}
    assert positions(place) == {key: number + 1 for number, key in enumerate(KEYS[:5])}
    assert counts(done) == ["orders"] * 5 + ["users"] * 5
    rows = {key: metadata["dagster/partition_row_count"] for key, metadata in result(instance).items()}
    assert rows == {key: number + 1 for number, key in enumerate(KEYS[:5])}
    assert {key: metadata["airbyte_proto/emitted"] for key, metadata in result(instance).items()} == rows
    assert {metadata["dagster/row_count"] for metadata in result(instance).values()} == {15}


def test_a_stream_that_failed_in_a_partition_is_named_with_it_and_the_others_go_on(
    place: Shop, instance: dg.DagsterInstance
) -> None:
    broken = two(4, 3)
    broken["streams"]["users"]["incomplete_at"] = 2
    for key in KEYS[:3]:
        offer(place, key, two(4, 3))
    offer(place, "p01", broken)
    failed = run(place.folder, instance, ("p00", "p02"))
    assert not failed.succeeded
    assert "users: partition p01: " in failed.descriptions[0]
    assert counts(failed) == ["orders"] * 3
    assert ids(place) == {"p00": [0, 1, 2, 3]}
    offer(place, "p01", two(4, 3))
    assert run(place.folder, instance, ("p00", "p02")).succeeded
    assert ids(place) == {key: [0, 1, 2, 3] for key in KEYS[:3]}
    assert positions(place) == dict.fromkeys(KEYS[:3], 4)


def test_what_strikes_before_the_connector_runs_names_its_partition(place: Shop, instance: dg.DagsterInstance) -> None:
    prepared(place, "{{ partition.start }}")
    failed = run(place.folder, instance, ("p00", "p01"))
    assert failed.descriptions[0].startswith("partition p00: ")


def test_a_retry_of_a_range_goes_on_at_the_partition_that_failed(place: Shop, instance: dg.DagsterInstance) -> None:
    once = {"kind": "exit", "after": 3, "once": str(place.folder / "struck")}
    for key in KEYS[:3]:
        offer(place, key, two(4, 3, **({"failure": once} if key == "p01" else {})))
    done = run(place.folder, instance, ("p00", "p02"), assets(place.folder, retry_policy=dg.RetryPolicy(max_retries=1)))
    assert (done.succeeded, done.attempts) == (True, 2)
    assert [text for text in done.messages if text.startswith("Partition ")] == [
        "Partition p00",
        "Partition p01",
        "Partition p01",
        "Partition p02",
    ]
    assert ids(place) == {key: [0, 1, 2, 3] for key in KEYS[:3]}
    assert {key: each["dagster/partition_row_count"] for key, each in result(instance).items()} == dict.fromkeys(
        KEYS[:3], 4
    )


def test_a_retry_reads_a_load_once_for_all_of_its_streams(place: Shop, instance: dg.DagsterInstance) -> None:
    loaded: list[str] = []

    class ObservedStore(SqlStore):
        def load(self, load_id: str) -> LoggedLoad | None:
            loaded.append(load_id)
            return super().load(load_id)

    offer(place, "p00", two(4, 3))
    done = run(place.folder, instance, "p00")
    with closing(ObservedStore(f"sqlite:///{place.home / 'state.db'}")) as store:
        backfill = Backfill([Slice("p00")], store, "shop", done.run_id)
    streams = {name: backfill.reports_by_partition(StreamId.of(name))["p00"].rows for name in ("users", "orders")}
    assert (streams, len(loaded)) == ({"users": 4, "orders": 3}, 1)


def test_the_warnings_of_many_partitions_have_an_end(place: Shop) -> None:
    warned = failed_report("shop", "run", ConfigError("syncing", "it is a test"), "")

    def sync(each: Slice | None, *_: object) -> SyncReport:
        assert each is not None
        return msgspec.structs.replace(warned, partition=each.key, warnings=tuple(f"{number}" for number in range(9)))

    backfill = Backfill([Slice(key) for key in KEYS], place.store, "shop", "run")
    warnings = backfill.run(["users"], sync, threading.Event(), NoCommitListener()).warnings
    assert len(warnings) == 101
    assert (warnings[0], warnings[-1]) == (
        "partition p00: 0",
        "80 more warnings are in the stored reports of the partitions",
    )


def test_days_are_run_from_the_oldest_on_with_their_windows(place: Shop, instance: dg.DagsterInstance) -> None:
    prepared(place, "{{ partition.start }}-{{ partition.end }}")
    days = dg.DailyPartitionsDefinition("30.12.2025", end_date="03.01.2026", fmt="%d.%m.%Y")
    moments = [f"{day}T00:00:00Z" for day in ("2025-12-30", "2025-12-31", "2026-01-01", "2026-01-02", "2026-01-03")]
    for number in range(4):
        offer(place, f"{moments[number]}-{moments[number + 1]}", two(number + 1, 1))
    done = run(place.folder, instance, ("30.12.2025", "02.01.2026"), assets(place.folder, days))
    assert done.succeeded, done.failures
    said = [text.removeprefix("Partition ") for text in done.messages if text.startswith("Partition ")]
    assert said == ["30.12.2025", "31.12.2025", "01.01.2026", "02.01.2026"]
    assert [len(ids(place)[key]) for key in said] == [1, 2, 3, 4]


def test_dimensions_and_keys_that_appear_have_slices_too(place: Shop, instance: dg.DagsterInstance) -> None:
    prepared(place, "{{ partition.tenant }}-{{ partition.region }}")
    tenants = dg.DynamicPartitionsDefinition(name="tenants")
    instance.add_dynamic_partitions("tenants", ["globex", "acme"])
    both = dg.MultiPartitionsDefinition({"tenant": tenants, "region": dg.StaticPartitionsDefinition(["eu"])})
    for number, tenant in enumerate(("acme", "globex")):
        offer(place, f"{tenant}-eu", two(number + 1, 1))
        key = dg.MultiPartitionKey({"tenant": tenant, "region": "eu"})
        done = run(place.folder, instance, key, assets(place.folder, both))
        assert done.succeeded, done.failures
    assert {key: len(found) for key, found in ids(place).items()} == {"eu|acme": 1, "eu|globex": 2}
    assert result(instance)["eu|globex"]["dagster/partition_row_count"] == 2


def test_a_run_of_no_partition_is_refused(place: Shop, instance: dg.DagsterInstance) -> None:
    done = run(place.folder, instance, None)
    assert "the run names none" in done.descriptions[0]
    assert place.store.loads("shop") == []


# Together, and broken off


@pytest.mark.nightly
@pytest.mark.parametrize("kept_in", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_two_backfills_at_once_lose_no_update(
    kept_in: str,
    place: Shop,
    instance: dg.DagsterInstance,
    backfills: tuple[Backfills, Backfills],
    request: pytest.FixtureRequest,
) -> None:
    url = ""
    if kept_in == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.new_store()
        place.store = SqlStore(url)
    for number, key in enumerate(KEYS[:9]):
        offer(place, key, two(number + 1, 2 * number + 1))
    for each, keys in zip(backfills, (KEYS[:6], KEYS[3:9]), strict=True):
        each.start(place.folder, keys, state_url=url)
    assert [each.end() for each in backfills] == [0, 0]
    assert ids(place) == {key: list(range(number + 1)) for number, key in enumerate(KEYS[:9])}
    assert ids(place, "orders") == {key: list(range(2 * number + 1)) for number, key in enumerate(KEYS[:9])}
    assert positions(place) == {key: number + 1 for number, key in enumerate(KEYS[:9])}
    assert positions(place, "orders") == {key: 2 * number + 1 for number, key in enumerate(KEYS[:9])}
    assert place.loose_files() == []


@pytest.mark.everyday("crash2")
@pytest.mark.parametrize(
    "crash", [("run.begun", 2), ("load.announced", 2), ("load.committed", 2), ("run.delivered", 2), ("run.ended", 1)]
)
def test_a_backfill_that_is_killed_is_healed_by_the_next(
    crash: Kill, place: Shop, instance: dg.DagsterInstance, backfills: tuple[Backfills, Backfills]
) -> None:
    for number, key in enumerate(KEYS[:3]):
        offer(place, key, two(number + 4, 3))
    backfills[0].start(place.folder, KEYS[:3], crash)
    assert backfills[0].end() == KILLED
    assert ids(place)["p00"] == [0, 1, 2, 3]
    assert result(instance) == {}
    assert run(place.folder, instance, (KEYS[0], KEYS[2])).succeeded
    assert ids(place) == {key: list(range(number + 4)) for number, key in enumerate(KEYS[:3])}
    assert positions(place) == {key: number + 4 for number, key in enumerate(KEYS[:3])}
    assert place.loose_files() == []


@pytest.mark.nightly
@pytest.mark.spark
def test_the_examples_orders_materialize_for_a_range_of_days(tmp_path: Path) -> None:
    project = tmp_path / "example_project"
    shutil.copytree(ROOT / "example_project", project)
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    days = "2026-11-01...2026-11-03"
    words = ["asset", "materialize", "-f", "definitions.py", "--select", "orders/orders", "--partition-range", days]
    environment = {"DAGSTER_HOME": str(tmp_path / "dagster"), "AIRBYTE_PROTO_HOME": str(tmp_path / "home")}
    called = [str(Path(sys.executable).with_name("dagster")), *words]
    done = subprocess.run(called, cwd=project, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wanted = {
        day.stem: len(day.read_text().splitlines()) - 1 for day in sorted((project / "data/orders").glob("*"))[:3]
    }
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
        records = instance.fetch_materializations(dg.AssetKey(["orders", "orders"]), limit=10).records
        events = [record.asset_materialization for record in records if record.asset_materialization]
    rows = {event.partition: event.metadata["dagster/partition_row_count"].value for event in events}
    assert rows == wanted
    assert {event.metadata["dagster/row_count"].value for event in events} == {sum(wanted.values())}
