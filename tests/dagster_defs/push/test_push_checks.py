"""The checks of a pushed stream."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_airbyte_proto.connection import PushOptions
from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
from dagster_airbyte_proto.dagster_defs.push.push_checks import (
    ONLY_REJECTS,
    PushCheckInput,
    push_check_results,
    push_check_specs,
)
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.push import PlannedCounts
from dagster_airbyte_proto.sync.push_report import PushedStreamReport
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.tables.spark.session import QueryResult

_KEY = dg.AssetKey(["crm", "contacts"])
_MIRROR = PushOptions.model_validate({"from": "shop.people", "key": ["id"], "mode": "mirror"})
_BY_CURSOR = PushOptions.model_validate({"from": "shop.people", "key": ["id"], "changes": "cursor", "cursor": "at"})
_ALL = StreamChecks(max_removed=0, freshness=timedelta(hours=1), schema=True, primary_key=True)


def _report(**values: Any) -> PushedStreamReport:
    return PushedStreamReport(**{"status": SyncStatus.COMPLETE, "origin": "shop.people", **values})


def _found(
    checks: StreamChecks, options: PushOptions, report: PushedStreamReport, answer: Any = None
) -> dict[str, Any]:
    def query(sql: str) -> QueryResult:
        assert sql == "select max(_pushed_at) from lake._pushes.t where _status = 'delivered'"
        if isinstance(answer, Exception):
            raise answer
        return QueryResult(("max",), [[answer]])

    keys = [spec.key for spec in push_check_specs(_KEY, options, checks)]
    results = push_check_results(_KEY, PushCheckInput(options, report, query), checks, keys)
    return {str(each.check_name): each for each in results}


def test_a_push_has_the_checks_that_mean_something_for_it() -> None:
    def names(options: PushOptions, checks: StreamChecks) -> list[str]:
        return [spec.name for spec in push_check_specs(_KEY, options, checks)]

    assert names(_MIRROR, _ALL) == ["counts", "rejects", "removals", "freshness"]
    assert names(_BY_CURSOR, _ALL) == ["counts", "rejects", "freshness"]
    assert names(_MIRROR, ONLY_REJECTS) == ["rejects"]
    assert names(_MIRROR, StreamChecks()) == ["counts", "rejects"]
    assert names(_MIRROR, StreamChecks(max_removed_share=0.1)) == ["counts", "rejects", "removals"]
    everything = PushOptions.model_validate({"from": "shop.people", "mode": "overwrite"})
    assert names(everything, _ALL) == ["counts", "rejects"]


def test_rejected_rows_warn() -> None:
    report = _report(sent=10, acknowledged=7, rejected=3, unnamed=1, rejections={"score is nan": 2})
    found = _found(ONLY_REJECTS, _MIRROR, report)["rejects"]
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert found.description == "2: score is nan; 1: rejected by the destination, which does not name them"
    assert _found(StreamChecks(max_rejected_share=0.3), _MIRROR, report)["rejects"].passed
    assert not _found(StreamChecks(max_rejected=2), _MIRROR, report)["rejects"].passed
    assert _found(ONLY_REJECTS, _MIRROR, _report())["rejects"].passed
    dropped = _report(sent=10, acknowledged=8, rejected=2, rejections={"dropped by a transform": 2})
    assert _found(ONLY_REJECTS, _MIRROR, dropped)["rejects"].passed


def test_rows_that_earlier_pushes_of_the_plan_rejected_count_too() -> None:
    reasons = {"score is nan": 2, "dropped by a transform": 5}
    report = _report(sent=10, acknowledged=10, resumed=30, rejections_before=reasons)
    found = _found(ONLY_REJECTS, _MIRROR, report)["rejects"]
    assert not found.passed
    assert found.description == "2: score is nan (2 of these came before, in runs that did not complete)"
    assert found.metadata["airbyte_proto/rejected_share"].value == 0.05
    assert _found(StreamChecks(max_rejected=2), _MIRROR, report)["rejects"].passed
    # All of the plan was acknowledged then, and not remembered.
    assert not _found(ONLY_REJECTS, _MIRROR, _report(rejections_before=reasons))["rejects"].passed


def test_rows_that_are_not_accounted_for_fail() -> None:
    assert _found(_ALL, _MIRROR, _report(sent=3, acknowledged=2, rejected=1, table="lake._pushes.t"))["counts"].passed
    unknown = _found(_ALL, _MIRROR, _report(sent=3, acknowledged=2, unknown=1))["counts"]
    assert (unknown.passed, unknown.severity) == (False, dg.AssetCheckSeverity.ERROR)


def test_removals_are_a_number_or_a_share_of_what_was_there() -> None:
    report = _report(planned=PlannedCounts(added=5, changed=1, removed=2, unchanged=7))
    assert not _found(_ALL, _MIRROR, report)["removals"].passed
    assert _found(StreamChecks(max_removed=2), _MIRROR, report)["removals"].passed
    found = _found(StreamChecks(max_removed=0, max_removed_share=0.2), _MIRROR, report)["removals"]
    assert found.passed
    assert "2 of the 10 rows" in (found.description or "")
    assert _found(StreamChecks(max_removed_share=0.2), _MIRROR, report)["removals"].passed
    assert not _found(StreamChecks(max_removed_share=0.1), _MIRROR, report)["removals"].passed
    uncounted = _report(planned=PlannedCounts(added=5, changed=None, removed=2, unchanged=None))
    assert not _found(StreamChecks(max_removed=1, max_removed_share=1.0), _MIRROR, uncounted)["removals"].passed


@pytest.mark.parametrize(("hours", "passed"), [(0.1, True), (2, False)])
def test_what_was_delivered_last_has_to_be_recent(hours: float, passed: bool) -> None:
    then = datetime.now(UTC) - timedelta(hours=hours)
    by_cursor = _found(_ALL, _BY_CURSOR, _report(cursor=then.replace(tzinfo=None).isoformat(" ")))
    assert by_cursor["freshness"].passed is passed
    asked = _found(_ALL, _MIRROR, _report(table="lake._pushes.t"), then.isoformat())
    assert asked["freshness"].passed is passed


@pytest.mark.parametrize(
    ("report", "answer", "text"),
    [
        (_report(), None, "No row was delivered yet"),
        (_report(table="lake._pushes.t"), None, "No row was delivered yet"),
        (_report(table="lake._pushes.t"), TableError("asking", "it is gone"), "could not be queried: .*it is gone"),
    ],
)
def test_freshness_that_cannot_be_told_fails(report: PushedStreamReport, answer: Any, text: str) -> None:
    found = _found(_ALL, _MIRROR, report, answer)["freshness"]
    assert not found.passed
    assert re.search(text, found.description or "")


def test_a_cursor_that_is_no_time_has_no_freshness() -> None:
    found = _found(_ALL, _BY_CURSOR, _report(cursor="17"))["freshness"]
    assert (found.passed, found.description) == (False, "The cursor is no time.")
