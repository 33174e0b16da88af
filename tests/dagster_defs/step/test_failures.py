"""A failed sync in Dagster: it shows the connector's message, and is retried only if that can help."""

import json
from typing import Any

import dagster as dg
import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.assets import build_connector_assets
from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
from dagster_airbyte_proto.testing.fake_source import catalog_stream
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.folder_shop import Options, resources
from tests.dagster_defs.support.shop_runs import Run, key_of
from tests.sync.shop import SECRET
from tests.sync.test_sync import expect, two

RETRIES = Options(retry_policy=dg.RetryPolicy(max_retries=2))


@pytest.mark.parametrize(
    ("failure", "attempts"),
    [
        ({"kind": "error", "failure_type": "config_error", "message": "the token is not valid"}, 1),
        ({"kind": "error", "failure_type": "transient_error", "message": "the server is busy"}, 3),
        ({"kind": "error", "failure_type": "system_error", "message": "a fault of its own"}, 3),
        ({"kind": "error", "failure_type": "config_error", "message": "no right to it", "stream": "users"}, 1),
        ({"kind": "signal"}, 3),
    ],
)
def test_what_needs_a_hand_is_not_retried(failure: dict[str, str], attempts: int, runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(23, 12, failure={**failure, "after": 8}))
    run = shop.run(RETRIES)
    assert not run.succeeded
    assert run.attempts == attempts
    assert all(failure.get("message", "signal 9") in words for words in run.descriptions)


def test_a_retry_goes_on_from_what_is_committed(runs: OpenRuns) -> None:
    shop = runs()
    once = str(shop.place.folder / "once")
    shop.place.offer(two(23, 12, failure={"kind": "exit", "after": 20, "once": once}))
    run = shop.run(RETRIES)
    assert run.succeeded, run.failures
    assert run.attempts == 2
    assert run.metadata("users")["airbyte_proto/emitted"] < 23
    assert run.metadata("users")["airbyte_proto/state_before"] != run.metadata("users")["airbyte_proto/state_after"]
    expect(shop.place, 23, 12)


def test_an_error_that_all_streams_share_is_reported_once(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(23, 12, failure={"kind": "error", "after": 0, "message": f"no way in with {SECRET}"}))
    run = shop.run()
    [words] = run.descriptions
    assert words.count("no way in with") == 1
    assert "users, orders" in words
    assert SECRET not in run.everything


def test_a_rate_limit_is_reported_where_people_look(runs: OpenRuns) -> None:
    shop = runs()
    limited = {"type": "RATE_LIMITED", "rate_limited": {"quota_reset": 1_700_000_000_000}}
    status = {"stream_descriptor": {"name": "users"}, "status": "RUNNING", "reasons": [limited]}
    said = {"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": status}}
    shop.place.offer(two(3, 3, lines=[json.dumps(said)]))
    run = shop.run()
    assert run.succeeded, run.failures
    assert any("stream users is rate limited" in text for text in run.messages)


def test_lines_that_dagster_cannot_write_end_no_sync(runs: OpenRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = runs()
    shop.place.offer(two(23, 12, lines=[json.dumps({"type": "LOG", "log": {"level": "WARN", "message": "mind it"}})]))
    storage = type(shop.instance.event_log_storage)
    store = storage.store_event
    lost = []

    def storing(self: Any, event: dg.EventLogEntry) -> None:
        if event.user_message == "mind it" or "rows read" in event.message:
            lost.append(event)
            raise OSError("the database is away")
        store(self, event)

    monkeypatch.setattr(storage, "store_event", storing)
    run = shop.run(Options(connector={"progress_seconds": 0.0}))
    assert run.succeeded, run.failures
    assert len(lost) >= 2
    assert "WARN mind it" in run.compute_log
    expect(shop.place, 23, 12)


def test_a_config_that_the_connector_refuses_is_reported_before_it_runs(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.config["count"] = 0
    shop.place.offer(two(1, 1))
    run = shop.run(RETRIES)
    assert run.attempts == 1
    assert any("count" in words for words in run.descriptions)


def test_a_connector_that_fails_after_its_streams_are_complete_fails_the_step(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(5, 5, exit_code=3))
    run = shop.run(RETRIES)
    assert run.materialized == ["users", "orders"]
    assert (run.succeeded, run.attempts) == (False, 1)
    assert any("exit code 3" in words for words in run.descriptions)


def test_a_blocking_check_that_failed_before_a_retry_stops_the_assets_downstream(runs: OpenRuns) -> None:
    shop = runs(read="full_refresh", write="overwrite")
    amounts: dict[str, Any] = {"values": {"amount": "much"}, "properties": {"amount": {"type": "integer"}}}
    streams: dict[str, Any] = {"users": {"records": 23, **amounts}, "orders": {"records": 12}}
    once = {"kind": "error", "failure_type": "transient_error", "once": str(shop.place.folder / "once"), "after": 25}
    shop.place.offer({"streams": streams, "failure": once})
    catalog = shop.place.folder / "catalog.json"
    offered = [catalog_stream(name, each) for name, each in streams.items()]
    catalog.write_text(json.dumps({"type": "CATALOG", "catalog": {"streams": offered}}))
    synced = build_connector_assets(
        Connection.from_file(shop.place.connection_file),
        catalog=catalog,
        checks=StreamChecks(counts=False, max_rejected=None, nulled="error", blocking=True),
        retry_policy=dg.RetryPolicy(max_retries=1),
    )

    @dg.asset(deps=[key_of("users")])
    def names() -> None: ...

    made = resources(shop.place.home, Options())
    result = dg.materialize([synced, names], resources=made, instance=shop.instance, raise_on_error=False)
    run = Run(shop.instance, result.run_id)
    assert (run.succeeded, run.attempts) == (False, 2)
    assert run.materialized == ["users", "orders"]
    assert run.checks == {"users": {"nulled": False}, "orders": {"nulled": True}}
    assert "shop/users: its blocking check nulled has failed: Values that did not fit" in run.descriptions[0]


_BAD_USER = json.dumps({"type": "RECORD", "record": {"stream": "users", "data": "no object", "emitted_at": 1}})


def test_what_a_failed_sync_rejected_is_in_the_checks_of_the_one_that_completes_its_stream(runs: OpenRuns) -> None:
    shop, checked = runs(), Options(checks=StreamChecks())
    broken = two(9, 3, lines=[_BAD_USER])
    broken["streams"]["users"]["incomplete_at"] = 7
    shop.place.offer(broken)
    assert shop.run(checked).checks == {"orders": {"counts": True, "rejects": True}}
    shop.place.offer(two(9, 3))
    passing = {"counts": True, "rejects": True}
    assert shop.run(checked).checks == {"users": {"counts": True, "rejects": False}, "orders": passing}
    assert shop.run(checked).checks == {"users": passing, "orders": passing}
    expect(shop.place, 9, 3)


def test_what_was_rejected_counts_once_whatever_other_streams_are_synced_in_between(runs: OpenRuns) -> None:
    shop, checked = runs(), Options(checks=StreamChecks())
    broken = two(9, 3, lines=[_BAD_USER])
    broken["streams"]["users"]["incomplete_at"] = 7
    shop.place.offer(broken)
    assert not shop.run(checked, only=["users"]).succeeded
    shop.place.offer(two(9, 3))
    turns = ("orders", "orders", "users", "orders", "orders", "users")
    passed = [shop.run(checked, only=[stream]).checks[stream]["rejects"] for stream in turns]
    assert passed == [True, True, False, True, True, True]


def test_a_load_that_outlives_its_run_in_the_history_has_not_failed(runs: OpenRuns) -> None:
    shop, checked = runs(max_bytes=1 << 30), Options(checks=StreamChecks())
    shop.place.offer(two(9, 3, lines=[_BAD_USER]))
    assert shop.run(checked, only=["users"]).checks["users"]["rejects"] is False
    shop.place.offer(two(9, 3))
    assert shop.run(checked, only=["orders"]).succeeded
    store = shop.place.store
    lease = store.acquire("shop", run_id="prune", holder="one", seconds=60)
    store.prune_history(lease, days=0)
    store.release(lease)
    kept = [part for each in store.loads("shop") for part in each.load.parts]
    assert (len(store.runs("shop")), sum(sum(part.rejected.values()) for part in kept)) == (1, 1)
    assert shop.run(checked, only=["users"]).checks["users"]["rejects"] is True


def test_what_came_in_a_load_that_the_next_sync_ends_is_in_the_checks_of_that_one(runs: OpenRuns) -> None:
    shop = runs(max_bytes=1 << 30)
    shop.place.offer(two(9, 3, lines=[_BAD_USER]))
    assert not shop.run(Options(checks=StreamChecks(), breaks_at="users")).succeeded
    assert len(shop.place.store.announced_loads("shop")) == 1
    shop.place.offer(two(9, 3))
    assert shop.run(Options(checks=StreamChecks())).checks["users"] == {"counts": True, "rejects": False}


def test_the_checks_of_a_retry_count_what_the_attempt_before_it_landed(runs: OpenRuns) -> None:
    shop = runs()
    once = {"kind": "exit", "after": 20, "once": str(shop.place.folder / "once")}
    shop.place.offer(two(23, 12, lines=[_BAD_USER], failure=once))
    allowed = StreamChecks(counts=False, max_rejected=1)
    run = shop.run(RETRIES._replace(checks=allowed))
    assert (run.succeeded, run.attempts) == (True, 2)
    assert run.metadata("users")["airbyte_proto/rejected"] == 1
    assert run.checks["users"]["rejects"] is False  # One of each attempt.


def test_a_table_that_was_replaced_has_no_rejects_of_before(runs: OpenRuns) -> None:
    shop = runs(read="full_refresh", write="overwrite", max_bytes=1 << 30)
    shop.place.offer(two(9, 3, lines=[_BAD_USER]))
    assert not shop.run(Options(checks=StreamChecks(), breaks_at="users")).succeeded
    shop.place.offer(two(9, 3))
    assert shop.run(Options(checks=StreamChecks())).checks["users"]["rejects"] is True


def test_a_stream_that_is_refused_fails_alone_and_is_not_tried_again(runs: OpenRuns) -> None:
    shop = runs(write="append_dedup")
    shop.place.offer({"streams": {"users": {"records": 3, "primary_key": [["uid"]]}, "orders": {"records": 4}}})
    run = shop.run(RETRIES)
    assert (run.succeeded, run.attempts, run.materialized) == (False, 1, ["orders"])
    [words] = run.descriptions
    assert "the schema has no field uid" in words
    assert run.observation("users").asset_key == key_of("users")
    assert shop.place.column("orders") == [0, 1, 2, 3]
