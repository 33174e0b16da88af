"""The checks that come with streams, fed with what real syncs told and with real tables."""

import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import dagster as dg
import msgspec
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.dagster_defs.definitions.checks import (
    ONLY_NULLED,
    CheckInput,
    Query,
    StreamChecks,
    check_results,
    check_specs,
    parsed_time,
)
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import PlannedStream, PushMode, RelayTarget
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest, planned_streams
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.folder_shop import Options
from tests.dagster_defs.support.saved import ORDERS, USERS, connection
from tests.sync.shop import Shop

KEY = dg.AssetKey(["shop", "users"])
EVERYTHING = StreamChecks(schema=True, primary_key=True, freshness=timedelta(hours=1))
NAMES = ("counts", "rejects", "nulled", "schema", "primary_key", "freshness")
TOLD = StreamReport(status=SyncStatus.COMPLETE, table="shop.users", emitted=10, committed=10)


def planned(stream: dict[str, Any], **options: Any) -> PlannedStream:
    catalog = AirbyteSource().catalog(json.dumps({"streams": [stream]}).encode())
    [found] = planned_streams(connection(streams={stream["name"]: options}), catalog, SyncRequest())
    return found


def results(evidence: CheckInput, checks: StreamChecks, names: Sequence[str] = NAMES) -> dict[str, dg.AssetCheckResult]:
    selected = [dg.AssetCheckKey(KEY, name) for name in names]
    return {str(each.check_name): each for each in check_results(KEY, evidence, checks, selected)}


def told_by(place: Shop, scenario: dict[str, Any]) -> StreamReport:
    return place.sync_of({"state_every": 5, **scenario}).streams["users"]


def test_a_stream_gets_the_checks_that_fit_it() -> None:
    def names(stream: PlannedStream, checks: StreamChecks) -> list[str]:
        return [spec.name for spec in check_specs(KEY, stream, checks)]

    users = planned(USERS)
    assert names(users, StreamChecks()) == ["counts", "rejects", "nulled"]
    assert names(users, ONLY_NULLED) == ["nulled"]
    assert names(users, EVERYTHING) == list(NAMES)
    assert names(users, StreamChecks(counts=False, max_rejected=None, nulled=None)) == []
    kept = planned(USERS, write="append")
    assert names(kept, EVERYTHING) == ["counts", "rejects", "nulled", "schema", "freshness"]
    assert names(planned(ORDERS), EVERYTHING) == ["counts", "rejects", "nulled", "schema"]
    relayed = msgspec.structs.replace(users, relay=RelayTarget(users.id, PushMode.UPSERT))
    assert names(relayed, EVERYTHING) == ["counts", "rejects", "nulled", "schema"]


@pytest.mark.parametrize("name", ["severity", "nulled"])
def test_a_severity_that_is_none_is_refused_at_once(name: str) -> None:
    written: dict[str, Any] = {name: "WARN"}
    with pytest.raises(ConfigError, match=f"`{name}` is 'WARN'\nSet it to error or warn"):
        StreamChecks(**written)


def test_blocking_and_severity_are_as_chosen() -> None:
    checks = StreamChecks(blocking=True, severity="warn")
    assert all(spec.blocking for spec in check_specs(KEY, planned(USERS), checks))
    broken = StreamReport(status=SyncStatus.COMPLETE, table="shop.users", emitted=3, committed=2, rejected=1)
    found = results(CheckInput(planned(USERS), broken, "shop.users"), checks, ("rejects",))["rejects"]
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)


def test_a_good_sync_passes(runs: OpenRuns) -> None:
    result = told_by(runs().place, {"streams": {"users": {"records": 12}}})
    found = results(CheckInput(planned(USERS), result, result.table), StreamChecks(schema=True), NAMES[:4])
    assert {name: each.passed for name, each in found.items()} == dict.fromkeys(NAMES[:4], True)
    assert found["counts"].metadata["airbyte_proto/committed"].value == 12


def test_a_source_that_counted_otherwise_fails_the_counts(runs: OpenRuns) -> None:
    result = told_by(runs().place, {"streams": {"users": {"records": 12}}, "miscount": 1})
    evidence = CheckInput(planned(USERS), result, result.table, miscounts=result.miscounts)
    found = results(evidence, StreamChecks(), ("counts",))["counts"]
    assert not found.passed
    assert "6" in (found.description or "") and "5" in (found.description or "")


def test_rejects_pass_up_to_what_is_allowed(runs: OpenRuns) -> None:
    bad = '{"type":"RECORD","record":{"stream":"users","data":"no object","emitted_at":1}}'
    result = told_by(runs().place, {"streams": {"users": {"records": 19}}, "lines": [bad]})
    assert result.rejected == 1
    evidence = CheckInput(planned(USERS), result, result.table)

    def passes(**limits: Any) -> bool:
        return results(evidence, StreamChecks(**limits), ("rejects",))["rejects"].passed

    assert not passes()
    assert passes(max_rejected=1)
    assert passes(max_rejected_share=0.05)
    assert not passes(max_rejected_share=0.04)


def test_what_a_filter_leaves_out_is_no_reject() -> None:
    result = StreamReport(
        status=SyncStatus.COMPLETE, table="shop.users", emitted=9, committed=6, rejected=3, filtered=3
    )
    evidence = CheckInput(planned(USERS), result, result.table)
    assert results(evidence, StreamChecks(), ("rejects",))["rejects"].passed
    one_more = evidence._replace(report=msgspec.structs.replace(result, emitted=10, rejected=4))
    assert not results(one_more, StreamChecks(), ("rejects",))["rejects"].passed


def test_a_field_without_a_column_is_reported_unless_the_policy_leaves_it_out(runs: OpenRuns) -> None:
    bad = '{"type":"RECORD","record":{"stream":"users","data":{"id":1,"shoe_size":9},"emitted_at":1}}'
    result = told_by(runs().place, {"streams": {"users": {"records": 3}}, "lines": [bad]})
    evidence = CheckInput(planned(USERS), result, result.table)
    found = results(evidence, StreamChecks(schema=True), ("schema",))["schema"]
    assert not found.passed and "shoe_size" in (found.description or "")
    left_out = evidence._replace(schema_policy="discard_column")
    assert results(left_out, StreamChecks(schema=True), ("schema",))["schema"].passed


def test_values_that_became_null_warn_and_fail_by_choice(runs: OpenRuns) -> None:
    bad = '{"type":"RECORD","record":{"stream":"users","data":{"id":"many"},"emitted_at":1}}'
    result = told_by(runs().place, {"streams": {"users": {"records": 3}}, "lines": [bad, bad]})
    evidence = CheckInput(planned(USERS), result, result.table)
    found = results(evidence, ONLY_NULLED, ("nulled",))["nulled"]
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert found.description == "Values that did not fit their column, now NULL: 2 of id (bigint)."
    assert found.metadata["airbyte_proto/nulled"].value == {"id": 2}
    assert results(evidence, StreamChecks(nulled="error"), NAMES)["nulled"].severity is dg.AssetCheckSeverity.ERROR
    fitting = evidence._replace(report=TOLD)
    assert results(fitting, ONLY_NULLED, ("nulled",))["nulled"].passed


def test_what_cannot_be_asked_fails_and_says_why() -> None:
    """A planned check is always evaluated."""
    found = results(CheckInput(planned(USERS), TOLD, "shop.users"), EVERYTHING)
    assert set(found) == set(NAMES)
    assert not found["primary_key"].passed
    assert "only tables that Spark reads" in (found["freshness"].description or "")


def test_only_selected_checks_are_evaluated() -> None:
    assert set(results(CheckInput(planned(USERS), TOLD, "t"), EVERYTHING, ("rejects",))) == {"rejects"}


def test_checks_are_evaluated_in_a_run(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer({"streams": {"users": {"records": 5}, "orders": {"records": 2}}, "miscount": 1})
    run = shop.run(Options(checks=StreamChecks()))
    assert run.checks["users"] == {"counts": False, "rejects": True}


def test_what_landed_in_syncs_that_did_not_complete_counts_and_is_named() -> None:
    counts: dict[str, Any] = {"rejections": {"no object": 2}, "nulled": {"age": 1}, "changed": 1}
    before = StreamReport(status=SyncStatus.FAILED, table="t", emitted=10, committed=8, rejected=2, **counts)
    evidence = CheckInput(planned(USERS), TOLD, "t", earlier=before)
    found = results(evidence, StreamChecks(max_rejected=1), NAMES[:3])
    assert {name: each.passed for name, each in found.items()} == {"counts": True, "rejects": False, "nulled": False}
    rejects = {name: each.value for name, each in found["rejects"].metadata.items()}
    assert rejects == {
        "airbyte_proto/rejected": 2,
        "airbyte_proto/rejected_share": 0.1,
        "airbyte_proto/rejected_before": 2,
    }
    assert found["rejects"].description == "2: no object (2 of these came before, in runs that did not complete)"
    assert "(1 of these came before, in runs" in (found["nulled"].description or "")


def test_what_a_check_lists_has_an_end_however_many_partitions_a_run_has() -> None:
    evidence = CheckInput(planned(USERS), TOLD, "t", miscounts=[f"partition {number}" for number in range(25)])
    found = results(evidence, StreamChecks(), ("counts",))["counts"]
    assert (found.description or "").endswith("partition 19; and 5 more")


@pytest.fixture
def asked(spark: SparkSession) -> Query:
    from dagster_airbyte_proto.tables.spark.session import query

    return partial(query, spark)


def people(ask: Query, *rows: tuple[int | None, datetime | None]) -> str:
    """A table of ids and times."""
    table = f"lake.shop.people_{uuid.uuid4().hex[:8]}"
    ask("create namespace if not exists lake.shop")
    ask(f"create table {table} (id bigint, name string, updated_at timestamp) using iceberg")
    for identity, time in rows:
        at = f"timestamp '{time.isoformat()}'" if time else "null"
        ask(f"insert into {table} values ({'null' if identity is None else identity}, 'a', {at})")
    return table


@pytest.mark.spark
def test_keys_are_there_and_unique_and_the_newest_cursor_is_young(asked: Query) -> None:
    now = datetime.now(UTC)
    good = people(asked, (1, now - timedelta(days=9)), (2, now - timedelta(minutes=5)))
    found = results(CheckInput(planned(USERS), TOLD, good, query=asked), EVERYTHING)
    assert found["primary_key"].passed and found["freshness"].passed, found
    age = found["freshness"].metadata["airbyte_proto/age_seconds"].value
    assert isinstance(age, float) and 250 < age < 400
    stale = StreamChecks(primary_key=True, freshness=timedelta(minutes=1))
    assert not results(CheckInput(planned(USERS), TOLD, good, query=asked), stale)["freshness"].passed


@pytest.mark.spark
def test_keys_that_repeat_or_are_missing_are_counted(asked: Query) -> None:
    bad = people(asked, (1, None), (1, None), (1, None), (None, None))
    found = results(CheckInput(planned(USERS), TOLD, bad, query=asked), EVERYTHING)
    counted = {name: each.value for name, each in found["primary_key"].metadata.items()}
    assert not found["primary_key"].passed
    assert counted == {
        "airbyte_proto/rows": 4,
        "airbyte_proto/rows_without_key": 1,
        "airbyte_proto/repeated_keys": 2,
    }
    assert "No row has a cursor" in (found["freshness"].description or "")


@pytest.mark.spark
def test_a_table_that_is_not_there_fails_its_checks_and_raises_nothing(asked: Query) -> None:
    found = results(CheckInput(planned(USERS), TOLD, "lake.shop.nowhere", query=asked), EVERYTHING)
    assert not found["primary_key"].passed
    assert "nowhere" in (found["primary_key"].description or "")


def test_a_time_that_python_does_not_have_is_the_nearest_that_it_has() -> None:
    found = [parsed_time(text) for text in ("10000-01-01T00:00:00+00:00", "0000-12-31", "2026-01-02T03:04:05")]
    assert [time and time.year for time in found] == [9999, 1, 2026]
