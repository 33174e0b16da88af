"""The asset checks of each stream, evaluated from its sync report and from one query of its table.

Every planned check of a materialized stream is evaluated: if one were missing, Dagster's re-execution from failure
would run the asset again. So a check whose table cannot be queried fails, and says why.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import dagster as dg
import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError, ProtoError, outdated_catalog_remedy
from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from dagster_airbyte_proto.model import DEDUPLICATING, PlannedStream, WriteMode
from dagster_airbyte_proto.schema.columns import column_type
from dagster_airbyte_proto.sync.report import StreamReport
from dagster_airbyte_proto.tables.sql_names import quoted
from dagster_airbyte_proto.transforms.landed_columns import columns_in_tables, columns_of_asset

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.session import QueryResult

COUNTS = "counts"
REJECTS = "rejects"
NULLED = "nulled"
SCHEMA = "schema"
PRIMARY_KEY = "primary_key"
FRESHNESS = "freshness"

_UNIQUE = DEDUPLICATING | {WriteMode.OVERWRITE}
_DISCARDING_POLICIES = frozenset(("discard_column", "discard_row"))
_YEAR = re.compile(r"([+-]?\d+)-\d\d-\d\d")
_MAX_LISTED = 20

Query = Callable[[str], "QueryResult"]


@dataclass(frozen=True)
class StreamChecks:
    """The checks that the streams of a connection get.

    `rejects` passes if at most `max_rejected` records, or at most `max_rejected_share` of all, were rejected; None
    leaves it out. `nulled` passes if every value fitted its column; its severity is its own, and None leaves it out.
    `primary_key` and `freshness` (of the cursor, if it is a time) cost a query of the table. A stream that keeps every
    version of a row gets no `primary_key`. With `blocking`, an error stops the assets downstream.

    A pushed stream has `counts`, `rejects`, `freshness` (of the cursor, or of the row that was delivered last) and, in
    mode mirror, `removals`, which passes if at most `max_removed` rows, or `max_removed_share` of what the destination
    had, were removed; it is left out where neither is set.
    """

    counts: bool = True
    max_rejected: int | None = 0
    max_rejected_share: float = 0.0
    max_removed: int | None = None
    max_removed_share: float = 0.0
    nulled: Literal["warn", "error"] | None = "warn"
    schema: bool = False
    primary_key: bool = False
    freshness: timedelta | None = None
    severity: Literal["error", "warn"] = "error"
    blocking: bool = False

    def __post_init__(self) -> None:
        """Raises ConfigError for a severity that is none: the checks of a sync fail its step otherwise."""
        for name, may_be in (("severity", ("error", "warn")), ("nulled", ("error", "warn", None))):
            if getattr(self, name) not in may_be:
                found = f"`{name}` is {getattr(self, name)!r}"
                choices = " or ".join(map(str, may_be))
                raise ConfigError("reading StreamChecks", found, remedy=f"Set it to {choices}.")


ONLY_NULLED = StreamChecks(counts=False, max_rejected=None)
"""The checks of a connection that names none: it tells of values that became NULL, and costs nothing."""


class CheckInput(NamedTuple):
    """The input of a stream's checks.

    `table` is its name in SQL, with the catalog. `miscounts` has a line for each place where the source's record count
    differs from ours. Without a `query`, checks that need one fail. `earlier` counts what syncs landed before that did
    not complete the stream: `rejects` and `nulled` are about it too.
    """

    planned: PlannedStream
    report: StreamReport
    table: str
    schema_policy: str = "evolve"
    miscounts: Sequence[str] = ()
    query: Query | None = None
    earlier: StreamReport | None = None

    @property
    def reports(self) -> Sequence[StreamReport]:
        return (self.report,) if self.earlier is None else (self.report, self.earlier)


def check_specs(key: dg.AssetKey, planned: PlannedStream, checks: StreamChecks) -> list[dg.AssetCheckSpec]:
    """The specs of the checks of one stream's asset."""
    return described_checks(key, {name: _DESCRIPTIONS[name] for name in _chosen(planned, checks)}, checks)


def described_checks(
    key: dg.AssetKey, descriptions: Mapping[str, str], checks: StreamChecks
) -> list[dg.AssetCheckSpec]:
    """The specs of the checks of these names."""
    return [
        dg.AssetCheckSpec(name, asset=key, description=text, blocking=checks.blocking)
        for name, text in descriptions.items()
    ]


def check_results(
    key: dg.AssetKey, inputs: CheckInput, checks: StreamChecks, selected: Collection[dg.AssetCheckKey]
) -> list[dg.AssetCheckResult]:
    """Evaluates the `selected` checks of one materialized stream. A failed check is a result, never an exception."""
    known = [dg.AssetCheckKey(key, name) for name in _DESCRIPTIONS]
    names = [each.name for each in known if each in selected]
    answer = _query_table(inputs, names)
    return [
        outcome.result(key, name, (checks.nulled or "warn") if name == NULLED else checks.severity)
        for name in names
        for outcome in [_outcome(name, inputs, checks, answer)]
    ]


_DESCRIPTIONS = {
    COUNTS: "Every record received is in the table or was rejected, and the source counted the same number.",
    REJECTS: "No more records than allowed were rejected.",
    NULLED: "Every value fitted its column: none became NULL.",
    SCHEMA: "Every field received has a column in the table.",
    PRIMARY_KEY: "Every row has a primary key, and no two rows share one.",
    FRESHNESS: "The newest cursor value in the table is recent enough.",
}


_SEVERITIES = {"warn": dg.AssetCheckSeverity.WARN, "error": dg.AssetCheckSeverity.ERROR}


class CheckOutcome(NamedTuple):
    """The outcome of one check, with the facts for its metadata."""

    passed: bool
    text: str
    facts: tuple[tuple[str, Any], ...] = ()

    def result(self, key: dg.AssetKey, name: str, severity: str) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(
            asset_key=key,
            check_name=name,
            passed=self.passed,
            description=self.text,
            metadata={f"airbyte_proto/{label}": value for label, value in self.facts},
            severity=_SEVERITIES[severity],
        )


class _Answer(NamedTuple):
    """The result of the table's query. `error` says why there is none."""

    rows: int = 0
    without_key: int = 0
    repeated: int = 0
    newest: datetime | None = None
    error: str = ""


def _chosen(planned: PlannedStream, checks: StreamChecks) -> Iterator[str]:
    if checks.counts:
        yield COUNTS
    if checks.max_rejected is not None:
        yield REJECTS
    if checks.nulled is not None:
        yield NULLED
    if checks.schema:
        yield SCHEMA
    if checks.primary_key and planned.primary_key and planned.write in _UNIQUE and planned.relay is None:
        yield PRIMARY_KEY
    if checks.freshness is not None and planned.relay is None and _time_column(planned) is not None:
        yield FRESHNESS


def _outcome(name: str, inputs: CheckInput, checks: StreamChecks, answer: _Answer) -> CheckOutcome:
    if name == COUNTS:
        return _counts(inputs)
    if name == REJECTS:
        return _rejects(inputs, checks)
    if name == NULLED:
        return _nulled(inputs)
    if name == SCHEMA:
        return _schema(inputs)
    if answer.error:
        return CheckOutcome(False, f"The table could not be queried: {answer.error}")
    return _primary_key(answer) if name == PRIMARY_KEY else _freshness(answer, checks)


def _counts(inputs: CheckInput) -> CheckOutcome:
    report = inputs.report
    facts = (("emitted", report.emitted), ("committed", report.committed), ("rejected", report.rejected))
    if report.unknown:
        return CheckOutcome(False, f"It is not known yet whether {report.unknown} records have landed.", facts)
    if report.emitted + report.added != report.committed + report.rejected:
        return CheckOutcome(False, "Records are not accounted for.", facts)
    if inputs.miscounts:
        return CheckOutcome(False, listed(inputs.miscounts), facts)
    return CheckOutcome(True, f"{report.committed} of {report.emitted} records are in the table.", facts)


def _rejects(inputs: CheckInput, checks: StreamChecks) -> CheckOutcome:
    # What a filter or a transform left out counts as rejected in the report, but the user asked for that.
    rejected, emitted = sum(each.refused for each in inputs.reports), sum(each.emitted for each in inputs.reports)
    share = rejected / emitted if emitted else 0.0
    passed = rejected <= (checks.max_rejected or 0) or share <= checks.max_rejected_share
    reasons = sums(each.rejections for each in inputs.reports)
    text = listed([f"{count}: {reason}" for reason, count in reasons.items()]) or "Nothing was rejected."
    before = rejected - inputs.report.refused
    facts = (("rejected", rejected), ("rejected_share", share), *facts_before("rejected", before))
    return CheckOutcome(passed, text + text_before(before), facts)


def _nulled(inputs: CheckInput) -> CheckOutcome:
    nulled = sums(each.nulled for each in inputs.reports)
    before = sum(nulled.values()) - sum(inputs.report.nulled.values())
    changed = sum(each.changed for each in inputs.reports)
    facts = (("nulled", nulled), ("changed", changed), *facts_before("nulled", before))
    if not nulled:
        return CheckOutcome(True, "Every value fitted its column.", facts)
    types = {column.name: column_type(column.type.table_type) for column in columns_in_tables(inputs.planned).all}
    found = (f"{count:,} of {name} ({types.get(name, 'no column')})" for name, count in nulled.items())
    text = f"Values that did not fit their column, now NULL: {', '.join(found)}."
    return CheckOutcome(False, text + text_before(before), facts)


def sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of several counts, by their names."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


def listed(texts: Sequence[str]) -> str:
    """The first of these texts, in a line: a run of many partitions may have no end of them."""
    more = len(texts) - _MAX_LISTED
    return "; ".join([*texts[:_MAX_LISTED], *([f"and {more:,} more"] if more > 0 else ())])


def facts_before(name: str, before: int) -> tuple[tuple[str, int], ...]:
    """The fact for the metadata of a check that so many of its counts came with earlier runs, if any did."""
    return ((f"{name}_before", before),) if before else ()


def text_before(before: int) -> str:
    """The words of a check for the same."""
    return f" ({before:,} of these came before, in runs that did not complete)" if before else ""


def _schema(inputs: CheckInput) -> CheckOutcome:
    ignored = inputs.report.ignored_fields
    facts = (("ignored_fields", dict(ignored)), ("changed", inputs.report.changed))
    if not ignored:
        return CheckOutcome(True, "Every field has its column.", facts)
    found = f"Fields without a column: {', '.join(sorted(ignored))}."
    if inputs.schema_policy in _DISCARDING_POLICIES:
        return CheckOutcome(True, f"{found} schema_policy: {inputs.schema_policy} leaves them out.", facts)
    return CheckOutcome(False, f"{found} {outdated_catalog_remedy()}", facts)


def _primary_key(answer: _Answer) -> CheckOutcome:
    facts = (("rows", answer.rows), ("rows_without_key", answer.without_key), ("repeated_keys", answer.repeated))
    passed = answer.without_key == answer.repeated == 0
    return CheckOutcome(passed, f"{answer.without_key} rows have no key, {answer.repeated} repeat another's.", facts)


def _freshness(answer: _Answer, checks: StreamChecks) -> CheckOutcome:
    if answer.newest is None:
        return CheckOutcome(False, "No row has a cursor value.")
    age = datetime.now(UTC) - answer.newest
    facts = (("newest_cursor", dg.MetadataValue.timestamp(answer.newest)), ("age_seconds", age.total_seconds()))
    return CheckOutcome(
        checks.freshness is None or age <= checks.freshness, f"The newest cursor value is {age} old.", facts
    )


def _query_table(inputs: CheckInput, names: Collection[str]) -> _Answer:
    """Runs one query for all checks that need the table."""
    if PRIMARY_KEY not in names and FRESHNESS not in names:
        return _Answer()
    if inputs.query is None:
        return _Answer(error="only tables that Spark reads can be queried")
    keys = [quoted(name) for name in _keys(inputs.planned)] if PRIMARY_KEY in names else []
    cursor = _time_column(inputs.planned) if FRESHNESS in names else None
    try:
        [[rows, whole, distinct, newest]] = inputs.query(_sql(inputs.table, keys, cursor)).rows
    except ProtoError as error:
        return _Answer(error=str(error))
    return _Answer(rows, rows - whole, whole - distinct, parsed_time(newest))


def _keys(planned: PlannedStream) -> Sequence[str]:
    """The columns that are unique together: the key, and in a table with slices the slice too."""
    keys = columns_in_tables(planned).keys
    return keys if planned.slice is None else (*keys, SLICE_COLUMN)


def _sql(table: str, keys: Sequence[str], cursor: str | None) -> str:
    has_key = " and ".join(f"{key} is not null" for key in keys) or "true"
    # A distinct count leaves out the rows in which one of its columns is null.
    distinct = f"count(distinct {', '.join(keys)})" if keys else "count(*)"
    newest = f"max({quoted(cursor)})" if cursor else "null"
    return f"select count(*), count_if({has_key}), {distinct}, {newest} from {table}"  # noqa: S608 - quoted


def _time_column(planned: PlannedStream) -> str | None:
    """The cursor's column, if it is a time."""
    columns = columns_of_asset(planned) if len(planned.cursor) == 1 else None
    for column in columns.all if columns is not None else ():
        kind = column.type.table_type
        if column.path == planned.cursor and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            return column.name
    return None


def parsed_time(value: str | None) -> datetime | None:
    """Parses a time; one without a zone is UTC. Of a year that Python does not have it is the nearest that it has.
    Raises ValueError for what is no time."""
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        year = _YEAR.match(value)
        if year is None or MINYEAR <= int(year[1]) <= MAXYEAR:
            raise
        time = datetime.max if int(year[1]) > MAXYEAR else datetime.min
    return time if time.tzinfo else time.replace(tzinfo=UTC)
