"""The report of a finished sync. Names and values of its JSON are fixed: other people's programs read them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from dagster_airbyte_proto.errors import Cancelled
from dagster_airbyte_proto.schema.evolution import SchemaChange

_MAX_NAMED_STREAMS = 20
# Rejected rows of these two reasons are not lost and not refused: `committed` does not count them yet.
UNCOVERED = "not committed yet: the next sync reads it again"
ON_BRANCH = "not committed yet: the next sync goes on with its generation"


class SyncStatus(StrEnum):
    COMPLETE = "complete"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class ResentRecords(msgspec.Struct, frozen=True):
    """The rejected records of a relay that were sent again. Always `sent == acknowledged + rejected + unknown`.

    None of them counts as a row of the stream. All but the acknowledged ones are still kept.
    """

    sent: int = 0
    acknowledged: int = 0
    rejected: int = 0
    unknown: int = 0
    rejections: Mapping[str, int] = {}


class StreamReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one stream. Always `emitted + added == committed + rejected + unknown`.

    `added` rows were made by a transform, beyond the first one that it made of each record.

    - `unknown` rows belong to a load that is announced, and nobody can tell yet whether it has landed. The next run
      does. The status is unknown too.
    - `ignored_fields` counts values of fields without a column: 100 fields, and all others as one.
    - `nulled` counts, by column, the values that did not fit and are NULL now. Rows with one are among the `changed`.
    - `status` is cancelled for a stream that is incomplete only because its sync was cancelled.
    - `rejections` counts the rejected rows by reason; `filtered` of them were left out by the stream's own filter,
      `dropped` by a transform.
    - `deleted`: in a mode that replaces the table, the rows that were replaced. Else the keys that the source reported
      as deleted, and that loads removed or, in `soft_delete`, marked. Nobody looks whether the table had those keys.
    - `retryable`: the stream failed, and may succeed with nothing changed.
    - `schema_changes` are those that no earlier sync has reported.
    - `version_before` is the version of the connection's states when the sync began: a rollback to it undoes the sync.
    - `metrics` are those that connectors sent of the stream, by the sender: `source`, `transform NAME`, `destination`.
      100 names of each, and a count of the metrics of all others.
    - `resent` are the rejected records of a relay that were sent again, where that was wanted and there were any.
    """

    status: SyncStatus
    table: str
    emitted: int = 0
    committed: int = 0
    rejected: int = 0
    unknown: int = 0
    changed: int = 0
    added: int = 0
    deleted: int = 0
    bytes: int = 0
    state: Any = None
    state_before: Any = None
    load_ids: tuple[str, ...] = ()
    generation: int = 0
    error: str | None = None
    retryable: bool = False
    filtered: int = 0
    dropped: int = 0
    rejections: Mapping[str, int] = {}
    ignored_fields: Mapping[str, int] = {}
    nulled: Mapping[str, int] = {}
    miscounts: tuple[str, ...] = ()
    table_rows: int | None = None
    snapshot_id: str | None = None
    version_before: int | None = None
    schema_changes: tuple[SchemaChange, ...] = ()
    metrics: Mapping[str, Mapping[str, float]] = {}
    resent: ResentRecords | None = None

    @property
    def refused(self) -> int:
        """The rows among the rejected ones that neither the filter nor a transform left out."""
        return self.rejected - self.filtered - self.dropped

    @property
    def uncommitted(self) -> int:
        """The rows among the rejected ones that are only not committed yet."""
        return self.rejections.get(UNCOVERED, 0) + self.rejections.get(ON_BRANCH, 0)


class LineCounts(msgspec.Struct):
    """The lines that the connector wrote, by kind."""

    record: int = 0
    state: int = 0
    log: int = 0
    trace: int = 0
    other: int = 0


def sum_of_lines(counts: Sequence[LineCounts]) -> LineCounts:
    names = LineCounts.__struct_fields__
    return LineCounts(**{name: sum(getattr(each, name) for each in counts) for name in names})


class ConnectorReport(msgspec.Struct, frozen=True):
    """The end of the source's process, and the errors and metrics that it sent: of a metric its total over all streams,
    or its last value. Of several processes it has the end of the first one that failed, and the errors of all."""

    exit_code: int | None = None
    seconds: float = 0.0
    signal: int | None = None
    errors: tuple[str, ...] = ()
    version: str = ""
    metrics: Mapping[str, float] = {}


class Seconds(msgspec.Struct):
    """The seconds that a sync took, in all and by what it waited for. Commits run beside staging. If several
    processes of the connector are read, all but `total` are sums."""

    total: float = 0.0
    waiting_for_connector: float = 0.0
    staging: float = 0.0
    committing: float = 0.0


class SyncReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a whole sync.

    `compacted` names the tables that were compacted after it, `log` is the run's log. `processes` of the connector read
    the streams side by side. With `shared_state` one of them sent a state that covers streams of others: one process
    reads them all in the next sync.
    """

    connection: str
    status: SyncStatus
    run_id: str
    recovered_loads: int
    streams: Mapping[str, StreamReport]
    loads: int
    lines: LineCounts
    connector: ConnectorReport
    seconds: Seconds
    error: str | None = None
    warnings: tuple[str, ...] = ()
    partition: str = ""
    compacted: tuple[str, ...] = ()
    log: str = ""
    processes: int = 1
    shared_state: bool = False

    def error_lines(self) -> list[str]:
        """Each error once, with the streams that have it: a connector that crashes fails all streams with the same.
        That a stream was cancelled is no error."""
        by_error: dict[str, list[str]] = {}
        for name, stream in self.streams.items():
            if stream.status not in (SyncStatus.COMPLETE, SyncStatus.CANCELLED) and stream.error != self.error:
                by_error.setdefault((stream.error or "").replace(f" (stream {name})", ""), []).append(name)
        lines = [f"{_listed(names)}: {error}" for error, names in by_error.items()]
        if self.error:
            return [self.error, *lines]
        if not lines and self.status in (SyncStatus.PARTIAL, SyncStatus.FAILED):
            exit_text = f"exit code {self.connector.exit_code}, signal {self.connector.signal}"
            cause = "\n".join(self.connector.errors) or exit_text
            return [f"every stream is complete, but the connector failed: {cause}"]
        return lines

    def as_json(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.to_builtins(self)
        value["seconds"] = {name: round(seconds, 3) for name, seconds in value["seconds"].items()}
        value["connector"]["seconds"] = round(value["connector"]["seconds"], 3)
        return value


def resent_text(resent: ResentRecords) -> str:
    """Says what became of the rejected records that were sent again."""
    ends = {"acknowledged": resent.acknowledged, "rejected again": resent.rejected, "not acknowledged": resent.unknown}
    found = ", ".join(f"{count:,} {end}" for end, count in ends.items() if count)
    return f"{resent.sent:,} rejected records sent again{': ' if found else ''}{found}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED_STREAMS:,} more" if len(names) > _MAX_NAMED_STREAMS else ""
    return ", ".join(names[:_MAX_NAMED_STREAMS]) + more


def status_after(error: Exception) -> SyncStatus:
    """The status of what an error has ended: that somebody cancelled it is no failure."""
    return SyncStatus.CANCELLED if isinstance(error, Cancelled) else SyncStatus.FAILED


def failed_report(connection: str, run_id: str, error: Exception, log: str) -> SyncReport:
    """The report of a sync that failed, or was cancelled, before its connector ran."""
    return SyncReport(
        connection=connection,
        status=status_after(error),
        run_id=run_id,
        recovered_loads=0,
        streams={},
        loads=0,
        lines=LineCounts(),
        connector=ConnectorReport(),
        seconds=Seconds(),
        error=str(error),
        log=log,
    )


def overall_status(statuses: list[SyncStatus], *, cancelled: bool, connector_failed: bool) -> SyncStatus:
    """The sync's status by those of its streams. It is complete only if nothing at all went wrong."""
    if SyncStatus.UNKNOWN in statuses:
        return SyncStatus.UNKNOWN
    # Also after the source has ended: the destination of a relay may be cancelled then.
    if cancelled or SyncStatus.CANCELLED in statuses:
        return SyncStatus.CANCELLED
    good = sum(status is SyncStatus.COMPLETE for status in statuses)
    if good == len(statuses) and not connector_failed:
        return SyncStatus.COMPLETE
    return SyncStatus.PARTIAL if good else SyncStatus.FAILED
