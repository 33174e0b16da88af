"""Generations that land on a branch, load by load: published at once, continued if the source can, else begun again."""

import json
import sqlite3
import threading
from contextlib import closing
from typing import Any

import msgspec
import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import StateUnavailable, TableError
from dagster_airbyte_proto.model import TableName, WriteMode
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.maintenance.reset import reset_state, streams_to_reset
from dagster_airbyte_proto.sync.plan.generations import fingerprints
from dagster_airbyte_proto.sync.report import ON_BRANCH, UNCOVERED, StreamReport, SyncStatus
from dagster_airbyte_proto.sync.run_options import RunOptions
from tests.staging.conftest import plan
from tests.sync.conftest import OpenShop
from tests.sync.shop import REFRESH, Shop

MODES = ("overwrite", "overwrite_dedup")
_BREAKS = {"kind": "exit", "after": 37}
_PAD = {"pad": 300_000, "noise": True}


def users(records: int, **more: Any) -> dict[str, Any]:
    stream = {"records": records, "resumable": True, "keys": 1000}
    return {"streams": {"users": {**stream, **more.pop("stream", {})}}, "state_every": 5, **more}


def told(report: Any) -> StreamReport:
    found: StreamReport = report.streams["users"]
    return found


def generation(place: Shop) -> set[int]:
    return set(place.tables.rows(TableName("shop", "users")).column("_airbyte_generation_id").to_pylist())


def interrupted(shop: OpenShop, write: str = "overwrite") -> Shop:
    """A table of ten rows, whose next generation ended after 37 of 60, 35 of them covered by a state."""
    place = shop(write=write, read="full_refresh")
    place.sync_of(users(10))
    report = place.sync_of(users(60, failure=_BREAKS))
    assert (told(report).rejections, told(report).committed) == ({ON_BRANCH: 35, UNCOVERED: 2}, 0)
    assert (place.column("users"), place.positions()) == (list(range(10)), {})
    assert len(place.branches()) == len(place.store.open_generations("shop")) == 1
    return place


def test_a_generation_ends_with_the_config_of_a_component_that_made_its_rows() -> None:
    def fingerprint(config: Any) -> str:
        source = {"protocol": "airbyte", "launch": {"kind": "local", "command": ["source"]}}
        mask = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "mask.wasm"}}
        transforms = [{"connector": mask, "config": config, "columns": {"phone": "string"}}] if config else []
        connection = Connection.model_validate({"name": "shop", "connector": source, "transforms": transforms})
        planned = plan({"phone": {"type": "string"}}, write=WriteMode.OVERWRITE)
        planned = msgspec.structs.replace(planned, transforms=connection.transforms_of(planned.id))
        return fingerprints(connection, [planned], {planned.id: table_columns(planned)}, "config")[planned.id]

    assert fingerprint({"keep": 4}) == fingerprint({"keep": 4})
    assert len({fingerprint({"keep": 4}), fingerprint({"keep": 5}), fingerprint(None)}) == 3


class _FailingListener:
    def committed(self, streams: Any) -> None:  # noqa: ARG002 - the protocol has it
        raise StateUnavailable("telling what is committed", "nobody answers")


def test_rows_on_a_branch_are_counted_once_also_where_the_last_step_of_the_sync_fails(shop: OpenShop) -> None:
    place = shop(write="overwrite", read="full_refresh")
    scenario = users(30, stream={"incomplete_at": 22})
    scenario["streams"]["orders"] = {"records": 5}
    options = RunOptions(threading.Event(), commit_listener=_FailingListener())
    report = place.sync_of(scenario, options=options)
    assert "nobody answers" in (report.error or "")
    assert told(report).rejections == {ON_BRANCH: 20, UNCOVERED: 2}


def expect_over(place: Shop) -> None:
    """Nothing of an unfinished generation is left."""
    assert (place.branches(), place.store.open_generations("shop"), place.loose_files()) == ([], [], [])
    landed = place.landed("users")
    assert len(set(landed)) == len(landed)


@pytest.mark.everyday("overwrite_dedup")
@pytest.mark.parametrize("write", MODES)
def test_an_interrupted_full_refresh_is_gone_on_with_and_the_next_one_starts_from_nothing(
    write: str, shop: OpenShop
) -> None:
    place = interrupted(shop, write)
    report = place.sync_of(users(60))
    assert (told(report).emitted, told(report).committed, told(report).generation) == (25, 25, 2)
    assert (place.column("users"), generation(place), place.positions()) == (list(range(60)), {2}, {})
    assert told(report).deleted == 10
    expect_over(place)
    report = place.sync_of(users(60))
    assert (told(report).emitted, told(report).generation, generation(place)) == (60, 3, {3})
    expect_over(place)


def test_it_is_gone_on_with_more_than_once(shop: OpenShop) -> None:
    place = interrupted(shop)
    report = place.sync_of(users(60, failure={"kind": "exit", "after": 12}))
    assert told(report).rejections == {ON_BRANCH: 10, UNCOVERED: 2}
    report = place.sync_of(users(60, failure={"kind": "exit", "after": 2}))
    assert told(report).rejections == {UNCOVERED: 2}
    report = place.sync_of(users(60))
    assert (told(report).emitted, place.column("users"), generation(place)) == (15, list(range(60)), {2})
    expect_over(place)


def test_a_source_that_has_nothing_more_to_send_need_send_no_state(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(users(10))
    place.sync_of(users(60, failure=_BREAKS), REFRESH)
    report = place.sync_of(users(35, state="none"), REFRESH)
    assert (told(report).status, told(report).emitted) == (SyncStatus.COMPLETE, 0)
    assert (place.column("users"), place.positions()) == (list(range(35)), {"users": 35})
    report = place.sync_of(users(40))
    assert (told(report).status, place.column("users")) == (SyncStatus.COMPLETE, list(range(40)))
    expect_over(place)


def test_keys_that_come_again_in_a_later_attempt_give_way(shop: OpenShop) -> None:
    place = interrupted(shop, "overwrite_dedup")
    place.sync_of(users(60, stream={"keys": 50}))
    # Of the attempt before, keys were the ids themselves: 50 to 59 come again as 0 to 9.
    assert place.column("users") == list(range(10, 60))
    expect_over(place)


def make_old(place: Shop) -> None:
    """Dates the open generations back."""
    with closing(sqlite3.connect(place.home / "state.db", isolation_level=None)) as database:
        database.execute("UPDATE airbyte_proto_open_generations SET changed_at = '2020-01-01 00:00:00.000000'")


@pytest.mark.parametrize("change", ["config", "columns", "key", "state", "age", "branch"])
def test_what_is_no_longer_of_one_piece_is_begun_anew(change: str, shop: OpenShop) -> None:
    place = interrupted(shop)
    scenario = users(60)
    if change == "config":
        place.config["count"] = 7
    elif change == "columns":
        scenario = users(60, stream={"properties": {"extra": {"type": "string"}}})
    elif change == "key":
        place.modes["*"]["primary_key"] = ["id"]
    elif change == "state":
        lease = place.store.acquire("shop", run_id="by hand", holder="me", seconds=60)
        place.store.change_state(lease, place.store.open_generations("shop")[0].stream, None, who="me")
        place.store.release(lease)
    elif change == "age":
        make_old(place)
    else:
        place.tables.drop_branch(TableName("shop", "users"), place.branches()[0])
    report = place.sync_of(scenario)
    assert (told(report).emitted, told(report).generation) == (60, 3)
    assert (place.column("users"), generation(place)) == (list(range(60)), {3})
    expect_over(place)


def test_one_of_a_stream_that_nobody_syncs_any_more_is_dropped_once_it_is_too_old(shop: OpenShop) -> None:
    place = interrupted(shop)
    others = {"streams": {"orders": {"records": 5}}}
    assert place.sync_of(others).status is SyncStatus.COMPLETE
    assert len(place.branches()) == 1
    make_old(place)
    assert place.sync_of(others).status is SyncStatus.COMPLETE
    assert (place.column("users"), generation(place)) == (list(range(10)), {1})
    expect_over(place)


def test_one_is_ended_by_hand_though_its_stream_has_no_state(shop: OpenShop) -> None:
    place = interrupted(shop)
    [users_stream] = streams_to_reset(place.store, "shop")
    with acquire_lease(place.store, "shop", "by-hand", 60) as renewal:
        reset_state(place.store, renewal.lease, users_stream, who="me")
    assert told(place.sync_of(users(60))).generation == 3
    expect_over(place)


def test_a_table_that_cannot_be_read_ends_no_generation(shop: OpenShop) -> None:
    place = interrupted(shop)
    newest = sorted(place.tables.folder(TableName("shop", "users"), "log").glob("*.json"))[-1]
    aside = newest.rename(place.home / "entry.json")
    newest.mkdir()  # Whoever reads it gets an error, as from a disk or a store that fails for a moment.
    scenario = users(60)
    with pytest.raises(TableError, match="Is a directory") as failed:
        place.sync_of(scenario)
    assert (failed.value.stream, "are kept" in failed.value.remedy) == ("users", True)
    scenario["streams"]["orders"] = {"records": 5}
    report = place.sync_of(scenario)
    assert (told(report).status, report.streams["orders"].status) == (SyncStatus.FAILED, SyncStatus.COMPLETE)
    assert "are kept" in str(told(report).error)
    newest.rmdir()
    aside.rename(newest)
    report = place.sync_of(users(60))
    assert (told(report).emitted, told(report).generation, place.column("users")) == (25, 2, list(range(60)))
    expect_over(place)


@pytest.mark.everyday("append_dedup")
@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_an_interrupted_refresh_is_gone_on_with_by_a_refresh(write: str, shop: OpenShop) -> None:
    place = shop(write=write)
    place.sync_of(users(23))
    place.sync_of(users(60, failure=_BREAKS), REFRESH)
    assert (place.column("users"), place.positions()) == (list(range(23)), {"users": 23})
    report = place.sync_of(users(60), REFRESH)
    assert (told(report).emitted, told(report).generation, told(report).state) == (25, 1, {"next": 60})
    assert (place.column("users"), place.positions(), generation(place)) == (list(range(60)), {"users": 60}, {1})
    expect_over(place)
    place.sync_of(users(63))
    assert place.column("users") == list(range(63))


def test_a_sync_that_only_goes_on_from_the_old_state_ends_an_interrupted_refresh(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(users(23))
    place.sync_of(users(60, failure=_BREAKS), REFRESH)
    report = place.sync_of(users(60))
    assert (told(report).emitted, place.column("users"), generation(place)) == (37, list(range(60)), {0, 1})
    expect_over(place)
    assert told(place.sync_of(users(60), REFRESH)).emitted == 60


@pytest.mark.everyday("overwrite")
@pytest.mark.parametrize("write", MODES)
def test_a_long_full_refresh_without_states_lands_in_several_loads_and_is_shown_at_its_end(
    write: str, shop: OpenShop
) -> None:
    place = shop(write=write, read="full_refresh")
    place.sync_of(users(10, stream={"resumable": False}))
    # No two keys of a load are alike, and the second half of the records replaces the first.
    large = {"resumable": False, "keys": 60, **_PAD}
    broken = place.sync_of(users(120, stream=large, failure={"kind": "exit", "after": 110}))
    assert len(told(broken).load_ids) >= 1
    assert (told(broken).rejections, place.column("users")) == ({UNCOVERED: 110}, list(range(10)))
    report = place.sync_of(users(120, stream=large))
    assert (told(report).status, told(report).emitted, told(report).committed) == (SyncStatus.COMPLETE, 120, 120)
    assert len(told(report).load_ids) >= 2
    assert place.column("users") == list(range(60 if write == "overwrite_dedup" else 0, 120))
    assert generation(place) == {3}
    expect_over(place)


@pytest.mark.everyday("global")
@pytest.mark.parametrize("scope", ["global", "legacy"])
def test_a_long_refresh_of_streams_that_share_a_state_lands_in_several_loads(scope: str, shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 20)
    place.sync_of(users(10, state=scope))
    large = {"keys": 1000, **_PAD}
    place.sync_of(users(120, state=scope, stream=large, failure={"kind": "exit", "after": 110}), REFRESH)
    assert (place.column("users"), place.positions()) == (list(range(10)), {"users": 10})
    report = place.sync_of(users(120, state=scope, stream=large), REFRESH)
    assert (told(report).emitted, len(told(report).load_ids) >= 2) == (120, True)
    assert (place.column("users"), place.positions()) == (list(range(120)), {"users": 120})
    expect_over(place)


def test_the_connector_gets_its_generation_and_its_state(shop: OpenShop) -> None:
    place = interrupted(shop)
    begun = place.store.open_generations("shop")[0]
    assert begun.state is not None
    assert json.loads(begun.state.message)["stream"]["stream_state"] == {"next": 35}
    assert (begun.branch, begun.generation_id) == ("airbyte_proto_shop_generation_2", 2)
    assert place.branches() == [begun.branch]
