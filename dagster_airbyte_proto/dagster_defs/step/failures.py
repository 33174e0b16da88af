"""From what went wrong to what Dagster does about it: fail the step in the connector's own words, and retry or not."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dagster as dg

from dagster_airbyte_proto.errors import InternalError, ProtoError, StateConflict
from dagster_airbyte_proto.sync.report import StreamReport, SyncReport, SyncStatus

_NAMED_STREAMS = 20


@contextmanager
def failing_the_step() -> Iterator[None]:
    """Errors that somebody can act on fail the step by what they say; our own mistakes keep their traceback."""
    try:
        yield
    except InternalError:
        raise
    except ProtoError as error:
        # Whoever holds the connection will have ended when a retry comes.
        is_retryable = error.retryable or isinstance(error, StateConflict)
        raise dg.Failure(str(error), allow_retries=is_retryable) from error


def fail_if_incomplete(report: SyncReport) -> None:
    """Raises one Failure for all that is not complete. It is retried only if no stream needs somebody's hand first."""
    failed = {name: told for name, told in report.streams.items() if told.status is not SyncStatus.COMPLETE}
    if failed:
        is_retryable = all(told.retryable for told in failed.values())
        raise dg.Failure(_words(report, failed), metadata=_metadata(report, failed), allow_retries=is_retryable)
    if report.status is not SyncStatus.COMPLETE:
        raise dg.Failure(_ending(report), metadata=_metadata(report, failed), allow_retries=False)


def cancelled(connection: str, error: BaseException | None) -> dg.Failure:
    """The end of a step that was terminated. Re-raising the interrupt would make Dagster follow the retry policy."""
    beside = f" It ended with: {error}" if error is not None else ""
    return dg.Failure(
        f"The sync of {connection} was cancelled. What was complete is in its tables, and the next run goes on from"
        f" there.{beside}",
        allow_retries=False,
    )


def _words(report: SyncReport, failed: Mapping[str, StreamReport]) -> str:
    """Each error once, with the streams that have it: a connector that breaks off fails them all alike."""
    if report.error:
        return report.error
    streams_by_error: dict[str, list[str]] = {}
    for name, told in failed.items():
        streams_by_error.setdefault((told.error or "").replace(f" (stream {name})", ""), []).append(name)
    return "\n".join(f"{_listed(names)}: {error}" for error, names in streams_by_error.items())


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_STREAMS} more" if len(names) > _NAMED_STREAMS else ""
    return ", ".join(names[:_NAMED_STREAMS]) + more


def _ending(report: SyncReport) -> str:
    how = f"exit code {report.connector.exit_code}, signal {report.connector.signal}"
    said = "\n".join(report.connector.errors) or report.error or how
    return f"Every stream is complete, but the connector failed: {said}"


def _metadata(report: SyncReport, failed: Mapping[str, StreamReport]) -> dict[str, dg.MetadataValue]:
    first = list(failed.items())[:_NAMED_STREAMS]
    return {
        **{name: dg.TextMetadataValue(told.error or "") for name, told in first},
        "airbyte_proto/run": dg.TextMetadataValue(report.run_id),
        "airbyte_proto/failed_streams": dg.IntMetadataValue(len(failed)),
    }
