"""Turns errors and reports into failures of Dagster's steps and ticks, with the connector's own message and whether a
retry can help."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy

import dagster as dg
from dagster._core.errors import DagsterUserCodeProcessError
from dagster_shared.error import SerializableErrorInfo

from dagster_airbyte_proto.errors import InternalError, ProtoError, StateConflict, mask_signatures
from dagster_airbyte_proto.sync.report import StreamReport, SyncReport, SyncStatus

_MAX_NAMED_STREAMS = 20

INTERRUPTS = (dg.DagsterExecutionInterruptedError, KeyboardInterrupt)
"""Raised in a step's main thread by Terminate and by Ctrl-C, at any point."""


class StepCancelled(DagsterUserCodeProcessError, dg.Failure):
    """The failure of a terminated step, which Dagster neither tries again nor shows with a stack trace.

    Re-raising the interrupt would make Dagster apply the retry policy. Of a `dg.Failure` alone it keeps the frames of
    its own and of ours through which it was raised: a page of them, for a user who pressed Terminate. Of an error that
    another process has described it keeps that description, and this one has no frames.
    """

    def __init__(self, text: str) -> None:
        described = SerializableErrorInfo(text, [], type(self).__name__)
        super().__init__(  # type: ignore[no-untyped-call]  # Dagster's has no annotations
            text, allow_retries=False, user_code_process_error_infos=[described]
        )


@contextmanager
def failing_the_step() -> Iterator[None]:
    """Turns errors that a user can act on into a dg.Failure with their message; internal errors pass through."""
    try:
        yield
    except InternalError:
        raise
    except ProtoError as error:
        # By the time of a retry, the run that holds the connection's lease will have ended.
        is_retryable = error.retryable or isinstance(error, StateConflict)
        # Not from the error itself: it would be shown again, with a stack trace that says nothing about the fault.
        raise dg.Failure(str(error), allow_retries=is_retryable) from _shown_cause(error)


@contextmanager
def failing_the_tick() -> Iterator[None]:
    """Has a sensor's tick show the message of an error that a user can act on, without the stack traces of what it was
    made from; internal errors pass through."""
    try:
        yield
    except InternalError:
        raise
    except ProtoError as error:
        # A copy: contextlib gives the error itself its traceback again.
        raise copy(error) from _shown_cause(error)


def _shown_cause(error: ProtoError) -> BaseException | None:
    """The cause of an error, if it says what the error does not."""
    cause = error.__cause__
    mask_signatures(error)
    # Of the error of a database only the driver's own words count: around them are a class and a link.
    has_more_to_say = cause is not None and str(getattr(cause, "orig", cause)).strip() not in str(error)
    return cause if has_more_to_say else None


def fail_if_incomplete(report: SyncReport) -> None:
    """Raises one Failure for all incomplete streams. It allows retries only if every one of them is retryable."""
    failed = {name: stream for name, stream in report.streams.items() if stream.status is not SyncStatus.COMPLETE}
    if failed or report.status is not SyncStatus.COMPLETE:
        text = "\n".join(report.error_lines()) or "The sync was cancelled."
        # A connector that fails after its streams are complete has nothing left to read.
        is_retryable = bool(failed) and all(stream.retryable for stream in failed.values())
        raise dg.Failure(text, metadata=_metadata(report, failed), allow_retries=is_retryable)


def fail_if_blocked_before(context: dg.AssetExecutionContext) -> None:
    """Raises Failure if a blocking check has failed in an earlier attempt of this step.

    A retry leaves out the streams that are complete, and so their checks. Dagster knows only those of the attempt: it
    would start the assets downstream.
    """
    if context.retry_number == 0:
        return
    logged = context.instance.all_logs(context.run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    evaluations = [entry.dagster_event.asset_check_evaluation_data for entry in logged if entry.dagster_event]
    newest = {each.asset_check_key: each for each in evaluations}
    blocking = [newest[key] for key in newest if key in context.selected_asset_check_keys and newest[key].blocking]
    failed = [each for each in blocking if not each.passed and each.severity is dg.AssetCheckSeverity.ERROR]
    if failed:
        lines = (
            f"{each.asset_key.to_user_string()}: its blocking check {each.check_name} has failed: {each.description}"
            for each in failed
        )
        raise dg.Failure("\n".join(lines), allow_retries=False)


def cancellation(connection: str, error: BaseException | None) -> StepCancelled:
    """Returns the failure of the terminated step of a sync."""
    cause = f" It ended with: {error}" if error is not None else ""
    return StepCancelled(
        f"The sync of {connection} was cancelled. What was complete is in its tables, and the next run continues from"
        f" there.{cause}"
    )


@contextmanager
def ending_by_interrupts(failure: StepCancelled) -> Iterator[None]:
    """Raises the failure of a terminated step in the place of an interrupt, wherever in the step that strikes."""
    try:
        yield
    except INTERRUPTS:
        raise failure from None


@contextmanager
def doing_the_job(what: str, *, again: str = "for the rest") -> Iterator[None]:
    """Turns errors into failures, as `failing_the_step` does, and an interrupt into one that names the job, and why or
    when to launch it `again`."""
    cancelled = StepCancelled(f"The {what} was cancelled. What is done stays: launch the job again {again}.")
    with ending_by_interrupts(cancelled), failing_the_step():
        yield


def _metadata(report: SyncReport, failed: Mapping[str, StreamReport]) -> dict[str, dg.MetadataValue]:
    first = list(failed.items())[:_MAX_NAMED_STREAMS]
    return {
        **{name: dg.TextMetadataValue(stream.error or "") for name, stream in first},
        "airbyte_proto/run": dg.TextMetadataValue(report.run_id),
        "airbyte_proto/log": dg.PathMetadataValue(report.log),
        "airbyte_proto/failed_streams": dg.IntMetadataValue(len(failed)),
    }
