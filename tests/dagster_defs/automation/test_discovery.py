"""Partitions that appear: added and synced once each, whatever happens to the tick that found them."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.automation.discovery import (
    build_partition_discovery_sensor,
    files_found,
    namespaces_offered,
    streams_offered,
)
from dagster_airbyte_proto.errors import ConfigError, ProtoError, StateConflict
from tests.dagster_defs.support.folder_shop import Options, resources
from tests.dagster_defs.support.partition_runs import assets, ids, offer, prepared, run
from tests.sync.shop import Shop, processes_of
from tests.sync.test_sync import two

TENANTS = dg.DynamicPartitionsDefinition(name="tenants")


class Discovery:
    """A shop with a partition for each tenant that `found` names, and what its daemon does after a tick."""

    def __init__(self, place: Shop, instance: dg.DagsterInstance, **options: Any) -> None:
        prepared(place)
        self.place, self.instance = place, instance
        self.assets = assets(place.folder, TENANTS)
        self.found: Any = []
        self.cursor: str | None = None
        self.sensor = build_partition_discovery_sensor(self.assets, find=lambda _: self.found, **options)

    def evaluate(self, sensor: dg.SensorDefinition | None = None) -> SensorExecutionData:
        return evaluated(sensor or self.sensor, self.assets, self.place, self.instance, self.cursor)

    def tick(self, *, is_killed: bool = False) -> list[str]:
        """One tick as the daemon has it: partitions first, then the runs, then the cursor. Which runs it asks for."""
        result = self.evaluate()
        for request in result.dynamic_partitions_requests or ():
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                self.instance.add_dynamic_partitions("tenants", request.partition_keys)
            else:
                for key in request.partition_keys:
                    self.instance.delete_dynamic_partition("tenants", key)
        if is_killed:
            return []
        self.cursor = result.cursor
        return [request.partition_key or "" for request in result.run_requests or ()]

    @property
    def partitions(self) -> list[str]:
        return sorted(self.instance.get_dynamic_partitions("tenants"))


def evaluated(
    sensor: dg.SensorDefinition,
    of: dg.AssetsDefinition,
    place: Shop,
    instance: dg.DagsterInstance,
    cursor: str | None = None,
) -> SensorExecutionData:
    using = resources(place.home, Options())
    definitions = dg.Definitions([of], sensors=[sensor], resources=using)
    context = dg.SensorEvaluationContext(
        instance_ref=instance.get_ref(),  # without it Dagster has no way to the partitions
        instance=instance,
        last_tick_completion_time=None,
        last_run_key=None,
        cursor=cursor,
        log_key=None,
        repository_name=None,
        repository_def=definitions.get_repository_def(),
        resources={key: using[key] for key in sensor.required_resource_keys},
    )
    with context:
        return sensor.evaluate_tick(context)


OpenDiscovery = Callable[..., Discovery]


@pytest.fixture
def discovery(quick_folder: Path, dagster_instance: dg.DagsterInstance) -> Iterator[OpenDiscovery]:
    yield lambda **options: Discovery(Shop(quick_folder), dagster_instance, **options)
    assert processes_of(quick_folder) == []


def test_each_new_key_becomes_a_partition_and_a_run_of_it(discovery: OpenDiscovery) -> None:
    shop = discovery()
    assert shop.tick() == []
    shop.found = ["acme", "globex", "acme"]
    for key, users in (("acme", 3), ("globex", 5)):
        offer(shop.place, key, two(users, 1))
    result = shop.tick()
    assert (result, shop.partitions) == (["acme", "globex"], ["acme", "globex"])
    for key in result:
        assert run(shop.place.folder, shop.instance, key, shop.assets).succeeded
    assert ids(shop.place) == {"acme": [0, 1, 2], "globex": [0, 1, 2, 3, 4]}
    assert shop.tick() == []
    shop.found = ["initech", "acme", "globex"]
    assert (shop.tick(), shop.partitions) == (["initech"], ["acme", "globex", "initech"])


@pytest.mark.parametrize("had_ticked", [False, True])
def test_a_tick_that_is_killed_once_it_has_added_partitions_is_done_again(
    had_ticked: bool, discovery: OpenDiscovery
) -> None:
    shop = discovery()
    if had_ticked:
        shop.tick()
    shop.found = ["acme", "globex"]
    shop.tick(is_killed=True)
    assert shop.partitions == ["acme", "globex"]
    assert shop.tick() == ["acme", "globex"]
    assert shop.tick() == []


def test_a_run_that_was_asked_for_twice_has_one_key_and_one_that_came_back_another(discovery: OpenDiscovery) -> None:
    shop = discovery(remove_gone=True)
    shop.tick()

    def run_keys() -> list[str | None]:
        return [request.run_key for request in shop.evaluate().run_requests or ()]

    shop.found = ["acme", "globex"]
    first = run_keys()
    assert (len(set(first)), run_keys()) == (2, first)
    shop.tick()
    shop.found = ["globex"]
    shop.tick()
    shop.found = ["acme", "globex"]
    [again] = run_keys()
    assert again not in first


def test_what_was_synced_before_the_sensor_is_not_synced_anew(discovery: OpenDiscovery) -> None:
    shop = discovery()
    shop.instance.add_dynamic_partitions("tenants", ["acme", "globex"])
    offer(shop.place, "acme", two(1, 1))
    assert run(shop.place.folder, shop.instance, "acme", shop.assets).succeeded
    shop.found = ["acme", "globex"]
    assert shop.tick() == ["globex"]


def test_a_partition_that_someone_deleted_comes_back_while_it_is_found(discovery: OpenDiscovery) -> None:
    shop = discovery()
    shop.found = ["acme"]
    shop.tick()
    shop.instance.delete_dynamic_partition("tenants", "acme")
    assert (shop.tick(), shop.partitions) == (["acme"], ["acme"])


def test_a_partition_that_someone_deleted_leaves_the_cursor_once_it_is_gone(discovery: OpenDiscovery) -> None:
    shop = discovery()
    shop.found = ["acme", "globex"]
    shop.tick()
    shop.instance.delete_dynamic_partition("tenants", "acme")
    shop.found = ["globex", "initech"]
    assert shop.tick() == ["initech"]
    assert json.loads(shop.cursor or "")["keys"] == ["globex", "initech"]


def test_what_is_gone_stays_unless_it_is_to_be_removed(discovery: OpenDiscovery) -> None:
    shop = discovery()
    shop.found = ["acme", "globex"]
    shop.tick()
    shop.found = ["acme"]
    assert (shop.tick(), shop.partitions) == ([], ["acme", "globex"])
    shop.found = ["acme", "globex"]
    assert shop.tick() == []


def test_what_is_gone_is_removed_by_option_and_no_other_partition_is(discovery: OpenDiscovery) -> None:
    shop = discovery(remove_gone=True)
    shop.instance.add_dynamic_partitions("tenants", ["by_hand"])
    shop.found = ["acme", "globex"]
    shop.tick()
    shop.found = []
    assert (shop.tick(), shop.partitions) == ([], ["acme", "by_hand", "globex"])
    shop.found = ["acme"]
    assert shop.evaluate().skip_message == "Removed: globex"
    assert (shop.tick(), shop.partitions) == ([], ["acme", "by_hand"])
    assert shop.evaluate().skip_message == "Nothing new among 1 keys."
    shop.found = ["acme", "globex"]
    assert (shop.tick(), shop.partitions) == (["globex"], ["acme", "by_hand", "globex"])


def test_a_tick_asks_for_so_many_runs_and_the_next_for_the_others(discovery: OpenDiscovery) -> None:
    shop = discovery(max_runs=2)
    shop.found = [f"t{number}" for number in range(5)]
    assert [shop.tick() for _ in range(4)] == [["t0", "t1"], ["t2", "t3"], ["t4"], []]
    assert len(shop.partitions) == 5


def _failing(_: dg.SensorEvaluationContext) -> Iterable[str]:
    yield "acme"
    raise OSError("hunter-22")


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (["acme", 7], "returned a int as a key"),
        ("acme", "returned one string"),
        (["acme", ""], "returned an empty key"),
        (["a...b"], r"returned the key 'a\.\.\.b', which Dagster does not allow"),
        ([str(number) for number in range(100_001)], "returned 100001 keys, more than the allowed 100000"),
        (None, "failed with TypeError"),
    ],
)
def test_keys_that_are_none_fail_the_tick_and_add_nothing(found: Any, problem: str, discovery: OpenDiscovery) -> None:
    shop = discovery()
    shop.found = found
    with pytest.raises(ConfigError, match=f"looking for partitions of connection shop: .*{problem}"):
        shop.tick()
    assert (shop.partitions, shop.cursor) == ([], None)


def test_whoever_fails_to_find_keys_is_named_without_the_values(discovery: OpenDiscovery) -> None:
    shop = discovery()
    sensor = build_partition_discovery_sensor(shop.assets, find=_failing)
    with pytest.raises(ConfigError, match=r"test_discovery\._failing failed with OSError") as raised:
        shop.evaluate(sensor)
    assert "hunter-22" not in str(raised.value)


def test_only_dynamic_partitions_can_appear(discovery: OpenDiscovery) -> None:
    days = assets(discovery().place.folder, dg.DailyPartitionsDefinition("2026-01-01"))
    with pytest.raises(ConfigError, match="are not dynamic partitions with a name"):
        build_partition_discovery_sensor(days, find=lambda _: [])


def test_a_tick_has_to_be_allowed_a_run(discovery: OpenDiscovery) -> None:
    shop = discovery()
    with pytest.raises(ConfigError, match="max_runs is 0"):
        build_partition_discovery_sensor(shop.assets, find=lambda _: ["acme"], max_runs=0)


def test_files_are_partitions_by_their_paths_once_they_are_left_alone(discovery: OpenDiscovery, tmp_path: Path) -> None:
    shop = discovery()
    long_ago = time.time() - 100
    for name in ("users.csv", "eu/users.csv", "eu/notes.txt", "eu/fresh.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
        if "fresh" not in name:
            os.utime(tmp_path / name, (long_ago, long_ago))

    def keys(pattern: str) -> set[str | None]:
        find = files_found(tmp_path / pattern, quiet_seconds=50)
        result = shop.evaluate(build_partition_discovery_sensor(shop.assets, find=find))
        return {request.partition_key for request in result.run_requests or ()}

    Path(os.fsdecode(bytes(tmp_path) + b"/\xdcbersicht.csv")).write_text("1")
    os.utime(bytes(tmp_path) + b"/\xdcbersicht.csv", (long_ago, long_ago))
    (tmp_path / "and so on...csv").write_text("1")
    os.utime(tmp_path / "and so on...csv", (long_ago, long_ago))
    assert keys("**/*.csv") == {"users.csv", "eu/users.csv"}
    assert keys("eu/*.csv") == {"users.csv"}
    assert keys("eu/users.csv") == {"users.csv"}


def test_namespaces_and_streams_of_a_connector_are_partitions(discovery: OpenDiscovery) -> None:
    shop = discovery()
    shop.place.config.pop("scenario")
    streams = {"users": {"namespace": "eu"}, "orders": {"namespace": "eu"}, "carts": {}, "odd": {"namespace": "a...b"}}
    shop.place.offer({"streams": streams})
    asked = Connection.from_file(shop.place.connection_file)

    def keys(find: Any) -> list[str | None]:
        sensor = build_partition_discovery_sensor(shop.assets, find=find, required_resource_keys={"connector"})
        return [request.partition_key for request in shop.evaluate(sensor).run_requests or ()]

    assert keys(namespaces_offered(asked)) == ["eu"]
    assert keys(streams_offered(asked)) == ["eu.users", "eu.orders", "carts"]
    shop.place.offer({"answers": {"discover": {"lines": [], "exit_code": 3}}, "streams": {}})
    with pytest.raises(ProtoError, match="asking the connector for its catalog"):
        keys(namespaces_offered(Connection.from_file(shop.place.connection_file)))


def _in_use(_: dg.SensorEvaluationContext) -> Iterable[str]:
    raise StateConflict("starting the connector of shop", "run a-sync holds the connection")


def test_a_tick_is_skipped_while_a_run_holds_the_connection(discovery: OpenDiscovery) -> None:
    shop = discovery()
    shop.found = ["acme"]
    shop.tick()
    result = shop.evaluate(build_partition_discovery_sensor(shop.assets, find=_in_use))
    assert "run a-sync holds the connection" in (result.skip_message or "")
    assert (result.cursor, shop.partitions) == (shop.cursor, ["acme"])


def test_the_cursor_can_be_read_by_a_person(discovery: OpenDiscovery) -> None:
    shop = discovery()
    shop.found = ["globex", "acme"]
    shop.tick()
    assert json.loads(shop.cursor or "")["keys"] == ["acme", "globex"]


def test_a_cursor_that_a_person_wrote_is_refused_and_an_empty_one_is_none(discovery: OpenDiscovery) -> None:
    found = discovery()
    found.found, found.cursor = ["acme"], "acme"
    with pytest.raises(ConfigError, match=r"its cursor is none that it wrote: .*\nReset the cursor"):
        found.tick()
    found.cursor = ""
    assert found.tick() == ["acme"]
