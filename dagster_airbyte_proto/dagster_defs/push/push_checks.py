"""The asset checks of each pushed stream, evaluated from its report; only freshness may query the delivered table.

Every planned check of a materialized stream is evaluated, as for syncs: if one were missing, Dagster's re-execution
from failure would run the asset again.
"""

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import dagster as dg

from dagster_airbyte_proto.connection import PushOptions
from dagster_airbyte_proto.dagster_defs.definitions.checks import (
    COUNTS,
    FRESHNESS,
    REJECTS,
    CheckOutcome,
    StreamChecks,
    described_checks,
    facts_before,
    listed,
    parsed_time,
    sums,
    text_before,
)
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.model import ChangesBy, PushMode
from dagster_airbyte_proto.sync.push_report import PushedStreamReport
from dagster_airbyte_proto.transforms.transform import DROPPED

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.session import QueryResult

REMOVALS = "removals"

ONLY_REJECTS = StreamChecks(counts=False, severity="warn")
"""The checks of a push that names none: it tells of rejected rows, and costs nothing."""

_DESCRIPTIONS = {
    COUNTS: "Every row sent was acknowledged by the destination, or rejected.",
    REJECTS: "No more rows than allowed were rejected.",
    REMOVALS: "No more rows than allowed were removed at the destination.",
    FRESHNESS: "What the destination has is recent enough.",
}


class PushCheckInput(NamedTuple):
    """The input of a stream's checks. Without a `query`, one of the delivered table fails."""

    options: PushOptions
    report: PushedStreamReport
    query: "Callable[[str], QueryResult] | None" = None


def push_check_specs(key: dg.AssetKey, options: PushOptions, checks: StreamChecks) -> list[dg.AssetCheckSpec]:
    """The specs of the checks of one stream's asset. Those that mean nothing for a push are left out."""
    return described_checks(key, {name: _DESCRIPTIONS[name] for name in _chosen(options, checks)}, checks)


def push_check_results(
    key: dg.AssetKey, inputs: PushCheckInput, checks: StreamChecks, selected: Collection[dg.AssetCheckKey]
) -> list[dg.AssetCheckResult]:
    """Evaluates the `selected` checks of one complete stream. A failed check is a result, never an exception."""
    return [
        _OUTCOMES[name](inputs, checks).result(key, name, checks.severity)
        for name in _chosen(inputs.options, checks)
        if dg.AssetCheckKey(key, name) in selected
    ]


def _chosen(options: PushOptions, checks: StreamChecks) -> Iterator[str]:
    if checks.counts:
        yield COUNTS
    if checks.max_rejected is not None:
        yield REJECTS
    if (checks.max_removed is not None or checks.max_removed_share) and options.mode is PushMode.MIRROR:
        yield REMOVALS
    if checks.freshness is not None and options.changes_by is not ChangesBy.ALL:
        yield FRESHNESS


def _counts(inputs: PushCheckInput, _checks: StreamChecks) -> CheckOutcome:
    report = inputs.report
    facts = tuple((name, getattr(report, name)) for name in ("sent", "acknowledged", "rejected", "unknown"))
    if report.unknown:
        return CheckOutcome(False, f"Of {report.unknown:,} rows it is not known whether they arrived.", facts)
    is_whole = report.sent == report.acknowledged + report.rejected
    return CheckOutcome(is_whole, f"{report.acknowledged:,} of {report.sent:,} rows were acknowledged.", facts)


def _rejects(inputs: PushCheckInput, checks: StreamChecks) -> CheckOutcome:
    report = inputs.report
    before = sum(rows for reason, rows in report.rejections_before.items() if reason != DROPPED)
    rejected = report.refused + before
    # Of the whole plan, if an earlier push has begun it. One that had only to be remembered sends none now.
    sent = report.sent + (max(report.resumed, before) if before else 0)
    share = rejected / sent if sent else 0.0
    passed = rejected <= (checks.max_rejected or 0) or share <= checks.max_rejected_share
    found = sums([report.rejections, report.rejections_before])
    reasons = [f"{count:,}: {reason}" for reason, count in found.items() if reason != DROPPED]
    if report.unnamed:
        reasons.append(f"{report.unnamed:,}: rejected by the destination, which does not name them")
    facts = (("rejected", rejected), ("rejected_share", share), *facts_before("rejected", before))
    return CheckOutcome(passed, (listed(reasons) or "Nothing was rejected.") + text_before(before), facts)


def _removals(inputs: PushCheckInput, checks: StreamChecks) -> CheckOutcome:
    planned = inputs.report.planned
    removed = planned.removed or 0
    if planned.unchanged is None:  # Nobody has counted what is there.
        passed = removed <= (checks.max_removed or 0)
        return CheckOutcome(passed, f"{removed:,} rows were removed at the destination.", (("removed", removed),))
    there = removed + (planned.changed or 0) + planned.unchanged
    share = removed / there if there else 0.0
    passed = removed <= (checks.max_removed or 0) or share <= checks.max_removed_share
    facts = (("removed", removed), ("removed_share", share))
    return CheckOutcome(passed, f"{removed:,} of the {there:,} rows that the destination had were removed.", facts)


def _freshness(inputs: PushCheckInput, checks: StreamChecks) -> CheckOutcome:
    """Of a cursor that is a time, its newest value; else the time at which a row was delivered last."""
    by_cursor = inputs.options.changes_by is ChangesBy.CURSOR
    label = "newest_cursor" if by_cursor else "delivered_at"
    try:
        newest = parsed_time(inputs.report.cursor if by_cursor else _delivered_at(inputs))
    except ProtoError as error:
        return CheckOutcome(False, f"The delivered table could not be queried: {error}")
    except ValueError:
        return CheckOutcome(False, "The cursor is no time.")
    if newest is None:
        return CheckOutcome(False, "No row was delivered yet.")
    age = datetime.now(UTC) - newest
    facts = ((label, dg.MetadataValue.timestamp(newest)), ("age_seconds", age.total_seconds()))
    what = "The newest cursor value" if by_cursor else "The row that was delivered last"
    return CheckOutcome(checks.freshness is None or age <= checks.freshness, f"{what} is {age} old.", facts)


def _delivered_at(inputs: PushCheckInput) -> str | None:
    if inputs.query is None or inputs.report.table is None:
        return None
    [[newest]] = inputs.query(
        f"select max(_pushed_at) from {inputs.report.table} where _status = 'delivered'"  # noqa: S608 - a table of ours
    ).rows
    return None if newest is None else str(newest)


_OUTCOMES: dict[str, Callable[[PushCheckInput, StreamChecks], CheckOutcome]] = {
    COUNTS: _counts,
    REJECTS: _rejects,
    REMOVALS: _removals,
    FRESHNESS: _freshness,
}
