"""Asset checks that come with each stream: from what its sync told, and from one query of its table.

A planned check of a stream that is materialised is always evaluated: one that is not would make Dagster run the asset
again when it re-runs what failed. So what cannot be looked at fails, and says why.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import dagster as dg
import pyarrow as pa

from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.loads.table import DEDUPLICATING, SLICE_COLUMN
from dagster_airbyte_proto.model import PlannedStream, WriteMode
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.sync.report import StreamReport
from dagster_airbyte_proto.tables.sql_names import quoted

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.session import QueryResult

COUNTS = "counts"
REJECTS = "rejects"
SCHEMA = "schema"
PRIMARY_KEY = "primary_key"
FRESHNESS = "freshness"

_UNIQUE = DEDUPLICATING | {WriteMode.OVERWRITE}
_POLICIES_THAT_LEAVE_OUT = frozenset(("discard_column", "discard_row"))

Query = Callable[[str], "QueryResult"]


@dataclass(frozen=True)
class StreamChecks:
    """Which checks the streams of a connection get.

    `rejects` passes while at most `max_rejected` records, or that share of all, were rejected; None leaves it out.
    `primary_key` and `freshness` (of the cursor, where it is a time) ask the table, which costs a query; a stream that
    keeps every version of a row gets no `primary_key`. With `blocking`, assets downstream wait for an error.
    """

    counts: bool = True
    max_rejected: int | None = 0
    max_rejected_share: float = 0.0
    schema: bool = False
    primary_key: bool = False
    freshness: timedelta | None = None
    severity: Literal["error", "warn"] = "error"
    blocking: bool = False


class Evidence(NamedTuple):
    """What the checks of a stream look at.

    `table` is its name in SQL, with the catalog. `miscounts` tells where the source counted other records than came.
    Without a `query` the table cannot be asked.
    """

    planned: PlannedStream
    report: StreamReport
    table: str
    schema_policy: str = "evolve"
    miscounts: Sequence[str] = ()
    query: Query | None = None


def check_specs(key: dg.AssetKey, planned: PlannedStream, checks: StreamChecks) -> list[dg.AssetCheckSpec]:
    """The checks of one stream's asset."""
    return [
        dg.AssetCheckSpec(name, asset=key, description=_DESCRIPTIONS[name], blocking=checks.blocking)
        for name in _chosen(planned, checks)
    ]


def check_results(
    key: dg.AssetKey, evidence: Evidence, checks: StreamChecks, selected: Collection[dg.AssetCheckKey]
) -> list[dg.AssetCheckResult]:
    """What the `selected` checks of one materialised stream found. Never raises for what they find."""
    severity = dg.AssetCheckSeverity.WARN if checks.severity == "warn" else dg.AssetCheckSeverity.ERROR
    asked = [dg.AssetCheckKey(key, name) for name in _DESCRIPTIONS]
    names = [each.name for each in asked if each in selected]
    answer = _asked(evidence, names)
    return [
        dg.AssetCheckResult(
            asset_key=key,
            check_name=name,
            passed=verdict.passed,
            description=verdict.said,
            metadata={f"airbyte_proto/{label}": value for label, value in verdict.facts},
            severity=severity,
        )
        for name in names
        for verdict in [_verdict(name, evidence, checks, answer)]
    ]


_DESCRIPTIONS = {
    COUNTS: "Every record that came is in the table or rejected, and the source counted the same.",
    REJECTS: "No more records than allowed were rejected.",
    SCHEMA: "No field came that the table has no column for.",
    PRIMARY_KEY: "Every row has a primary key, and no two have the same.",
    FRESHNESS: "The newest cursor value in the table is young enough.",
}


class _Verdict(NamedTuple):
    passed: bool
    said: str
    facts: tuple[tuple[str, Any], ...] = ()


class _Answer(NamedTuple):
    """What the table answered. `trouble` says why it did not."""

    rows: int = 0
    without_key: int = 0
    repeated: int = 0
    newest: datetime | None = None
    trouble: str = ""


def _chosen(planned: PlannedStream, checks: StreamChecks) -> Iterator[str]:
    if checks.counts:
        yield COUNTS
    if checks.max_rejected is not None:
        yield REJECTS
    if checks.schema:
        yield SCHEMA
    if checks.primary_key and planned.primary_key and planned.write in _UNIQUE:
        yield PRIMARY_KEY
    if checks.freshness is not None and _time_column(planned) is not None:
        yield FRESHNESS


def _verdict(name: str, evidence: Evidence, checks: StreamChecks, answer: _Answer) -> _Verdict:
    if name == COUNTS:
        return _counts(evidence)
    if name == REJECTS:
        return _rejects(evidence.report, checks)
    if name == SCHEMA:
        return _schema(evidence)
    if answer.trouble:
        return _Verdict(False, f"The table could not be asked: {answer.trouble}")
    return _primary_key(answer) if name == PRIMARY_KEY else _freshness(answer, checks)


def _counts(evidence: Evidence) -> _Verdict:
    report = evidence.report
    facts = (("emitted", report.emitted), ("committed", report.committed), ("rejected", report.rejected))
    if report.emitted != report.committed + report.rejected:
        return _Verdict(False, "Records are not accounted for.", facts)
    if evidence.miscounts:
        return _Verdict(False, "; ".join(evidence.miscounts), facts)
    return _Verdict(True, f"{report.committed} of {report.emitted} records are in the table.", facts)


def _rejects(report: StreamReport, checks: StreamChecks) -> _Verdict:
    # What a filter leaves out was meant to be.
    rejected = report.rejected - report.filtered
    share = rejected / report.emitted if report.emitted else 0.0
    passed = rejected <= (checks.max_rejected or 0) or share <= checks.max_rejected_share
    reasons = "; ".join(f"{count}: {reason}" for reason, count in report.rejections.items())
    facts = (("rejected", rejected), ("rejected_share", share))
    return _Verdict(passed, reasons or "Nothing was rejected.", facts)


def _schema(evidence: Evidence) -> _Verdict:
    ignored = evidence.report.ignored_fields
    facts = (("ignored_fields", dict(ignored)), ("changed", evidence.report.changed))
    if not ignored:
        return _Verdict(True, "Every field has its column.", facts)
    found = f"Fields without a column: {', '.join(sorted(ignored))}."
    if evidence.schema_policy in _POLICIES_THAT_LEAVE_OUT:
        return _Verdict(True, f"{found} schema_policy: {evidence.schema_policy} leaves them out.", facts)
    return _Verdict(False, f"{found} Run `airbyte-proto discover C --save`.", facts)


def _primary_key(answer: _Answer) -> _Verdict:
    facts = (("rows", answer.rows), ("rows_without_key", answer.without_key), ("repeated_keys", answer.repeated))
    passed = answer.without_key == answer.repeated == 0
    return _Verdict(passed, f"{answer.without_key} rows have no key, {answer.repeated} repeat another's.", facts)


def _freshness(answer: _Answer, checks: StreamChecks) -> _Verdict:
    if answer.newest is None:
        return _Verdict(False, "No row has a cursor value.")
    age = datetime.now(UTC) - answer.newest
    facts = (("newest_cursor", dg.MetadataValue.timestamp(answer.newest)), ("age_seconds", age.total_seconds()))
    return _Verdict(checks.freshness is None or age <= checks.freshness, f"The newest is {age} old.", facts)


def _asked(evidence: Evidence, names: Collection[str]) -> _Answer:
    """One query for all that the table is asked."""
    if PRIMARY_KEY not in names and FRESHNESS not in names:
        return _Answer()
    if evidence.query is None:
        return _Answer(trouble="only tables that Spark reads can be")
    keys = [quoted(name) for name in _keys(evidence.planned)] if PRIMARY_KEY in names else []
    cursor = _time_column(evidence.planned) if FRESHNESS in names else None
    try:
        [[rows, whole, distinct, newest]] = evidence.query(_sql(evidence.table, keys, cursor)).rows
    except ProtoError as error:
        return _Answer(trouble=str(error))
    return _Answer(rows, rows - whole, whole - distinct, _time(newest))


def _keys(planned: PlannedStream) -> Sequence[str]:
    """What no two rows share: of a table in slices that is the key within one."""
    keys = table_columns(planned).keys
    return keys if planned.slice is None else (*keys, SLICE_COLUMN)


def _sql(table: str, keys: Sequence[str], cursor: str | None) -> str:
    has_key = " and ".join(f"{key} is not null" for key in keys) or "true"
    # A distinct count leaves out the rows in which one of its columns is null.
    distinct = f"count(distinct {', '.join(keys)})" if keys else "count(*)"
    newest = f"max({quoted(cursor)})" if cursor else "null"
    return f"select count(*), count_if({has_key}), {distinct}, {newest} from {table}"  # noqa: S608 - quoted


def _time_column(planned: PlannedStream) -> str | None:
    """The cursor's column, where it is a time."""
    if len(planned.cursor) != 1:
        return None
    for column in table_columns(planned).all:
        kind = column.type.in_table
        if column.path == planned.cursor and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            return column.name
    return None


def _time(value: str | None) -> datetime | None:
    """A time without a zone is taken as UTC."""
    if value is None:
        return None
    time = datetime.fromisoformat(value)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
