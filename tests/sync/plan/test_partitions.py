"""A sync of one partition: its own config, its slice of each table, its own state, and nothing of any other's."""

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import Slice, SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from dagster_airbyte_proto.sync.run import recover_connection
from dagster_airbyte_proto.sync.run_options import RunOptions
from tests.sync.conftest import OpenShop
from tests.sync.shop import SECRET, Shop
from tests.sync.test_sync import two

SCOPES = ("stream", "global", "legacy")
WRITES = ("append", "append_dedup", "overwrite")


def partitioned(place: Shop) -> Shop:
    """Each partition has a scenario of its own, which the config names."""
    place.config["scenario"] = str(place.folder / "of-{{ partition.key }}.json")
    return place


def sync_of(
    place: Shop, key: str, scenario: dict[str, Any], terms: RunOptions | None = None, **wanted: Any
) -> SyncReport:
    (place.folder / f"of-{key}.json").write_text(json.dumps(scenario))
    return place.sync_of(scenario, SyncRequest(slice=Slice(key), **wanted), terms)


def ids(place: Shop, stream: str = "users") -> dict[str, list[int]]:
    """The ids in each slice of a table."""
    found: dict[str, list[int]] = {}
    for row in place.tables.rows(TableName("shop", stream)).to_pylist():
        found.setdefault(row["_airbyte_partition"], []).append(row["id"])
    return {key: sorted(inner) for key, inner in found.items()}


def states(place: Shop) -> dict[str, set[str]]:
    """The names of the streams that have a state of their own, by partition."""
    found: dict[str, set[str]] = {}
    for stored in place.store.states("shop", partition=None):
        found.setdefault(stored.partition, set()).add(stored.state.stream.name if stored.state.stream else "")
    return found


@pytest.mark.everyday(
    "stream-append-1",
    "stream-append_dedup-1073741824",
    "global-append_dedup-1",
    "global-overwrite-1073741824",
    "legacy-overwrite-1",
)
@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_partition_is_read_from_nothing_and_replaces_its_slice_alone(
    scope: str, write: str, max_bytes: int, shop: OpenShop
) -> None:
    read = "full_refresh" if write == "overwrite" else "incremental"
    place = partitioned(shop(write=write, read=read, max_bytes=max_bytes))
    assert sync_of(place, "a", two(12, 7, state=scope)).status is SyncStatus.COMPLETE
    assert sync_of(place, "b", two(5, 5, state=scope)).status is SyncStatus.COMPLETE
    again = sync_of(place, "a", two(8, 7, state=scope))
    assert ids(place) == {"a": list(range(8)), "b": list(range(5))}
    assert ids(place, "orders") == {"a": list(range(7)), "b": list(range(5))}
    assert (again.partition, again.streams["users"].deleted) == ("a", 12)
    assert place.loose_files() == []


@pytest.mark.everyday("append_dedup", "overwrite")
@pytest.mark.parametrize("write", WRITES)
def test_a_partition_that_came_out_empty_empties_its_slice(write: str, shop: OpenShop) -> None:
    place = partitioned(shop(write=write, read="full_refresh" if write == "overwrite" else "incremental"))
    for key in ("a", "b"):
        sync_of(place, key, two(6, 3))
    report = sync_of(place, "a", two(0, 3))
    assert report.status is SyncStatus.COMPLETE
    assert ids(place) == {"b": list(range(6))}
    assert ids(place, "orders") == {"a": [0, 1, 2], "b": [0, 1, 2]}


def test_an_incomplete_partition_touches_neither_its_slice_nor_any_other(shop: OpenShop) -> None:
    place = partitioned(shop())
    for key in ("a", "b"):
        sync_of(place, key, two(6, 3))
    before = place.store.states("shop", partition=None)
    report = sync_of(place, "a", two(50, 40, failure={"kind": "exit", "after": 60}))
    assert report.status is SyncStatus.FAILED
    assert ids(place) == {"a": list(range(6)), "b": list(range(6))}
    assert place.store.states("shop", partition=None) == before
    assert sync_of(place, "a", two(50, 3)).status is SyncStatus.COMPLETE
    assert ids(place) == {"a": list(range(50)), "b": list(range(6))}
    assert place.loose_files() == []


def test_states_of_partitions_are_separate_from_each_other_and_from_that_of_none(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(two(10, 5), SyncRequest(only=["users"]))
    before = place.store.states("shop")
    for key in ("a", "b"):
        place.sync_of(two(10, 5), SyncRequest(only=["orders"], slice=Slice(key)))
    assert states(place) == {"": {"users"}, "a": {"orders"}, "b": {"orders"}}
    assert place.store.states("shop") == before
    goes_on = place.sync_of(two(12, 5), SyncRequest(only=["users"]))
    assert goes_on.streams["users"].emitted == 2
    assert place.column("users") == list(range(12))


def test_some_streams_that_share_a_state_may_be_read_in_a_partition(shop: OpenShop) -> None:
    place = partitioned(shop())
    sync_of(place, "a", two(4, 4, state="global"))
    assert sync_of(place, "a", two(9, 9, state="global"), only=["users"]).status is SyncStatus.COMPLETE
    assert (ids(place), ids(place, "orders")) == ({"a": list(range(9))}, {"a": list(range(4))})


def test_a_load_that_was_left_is_ended_in_its_own_partition(shop: OpenShop) -> None:
    place = partitioned(shop())

    class Breaks:
        def committed(self, streams: Sequence[CommittedStream]) -> None:
            raise OSError(f"whoever records {len(streams)} is gone")

    with pytest.raises(OSError, match="records 2"):
        sync_of(place, "a", two(6, 3), RunOptions(threading.Event(), commit_listener=Breaks()))
    assert (ids(place), states(place)) == ({"a": list(range(6))}, {})
    with Engine(Settings.load(place.home, place.home / "settings.yaml")) as engine:
        assert [each.partition for each in recover_connection(engine, "shop")] == ["a"]
    assert states(place) == {"a": {"users", "orders"}}
    assert place.store.announced_loads("shop") == []


def test_templates_without_a_partition_are_refused_before_the_connector_starts(shop: OpenShop) -> None:
    place = partitioned(shop())
    with pytest.raises(ConfigError, match=r"partition\.key.*needs a run of a partition") as refused:
        place.sync_of(two(1, 1))
    assert "--partition KEY" in refused.value.remedy
    assert place.store.loads("shop") == []


def test_a_word_that_the_partition_lacks_is_refused_with_those_it_has(shop: OpenShop) -> None:
    place = shop()
    place.config["scenario"] = "{{ partition.strat }}"
    place.offer(two(1, 1))
    with pytest.raises(ConfigError, match=r'did you mean "\{\{ partition.start \}\}"') as refused:
        place.sync(SyncRequest(slice=Slice("a", {"start": "2026-01-01T00:00:00Z"})))
    assert "partition.start, partition.key" in refused.value.remedy


def test_a_partition_without_a_key_is_refused(shop: OpenShop) -> None:
    place = shop()
    with pytest.raises(ConfigError, match="no key"):
        place.sync_of(two(1, 1), SyncRequest(slice=Slice("")))


def test_a_config_that_the_connector_rewrote_is_handed_on_with_each_partitions_own_words(shop: OpenShop) -> None:
    place = partitioned(shop())
    rewritten = {"scenario": str(place.folder / "of-a.json"), "password": f"{SECRET}-2"}
    sync_of(place, "a", two(6, 3, new_config=rewritten))
    sync_of(place, "b", two(2, 2))
    assert ids(place) == {"a": list(range(6)), "b": [0, 1]}
    kept = place.store.stored_config("shop")
    assert kept is not None
    assert kept.config["password"] == f"{SECRET}-2"
