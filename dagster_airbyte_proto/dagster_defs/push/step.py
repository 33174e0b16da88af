"""The step of a push: runs it beside the step's thread, and turns its report into materializations."""

from collections.abc import Callable, Iterator, Mapping

import dagster as dg

from dagster_airbyte_proto.dagster_defs.step.background_sync import BackgroundSync, SyncEnded
from dagster_airbyte_proto.dagster_defs.step.failures import cancellation, failing_the_step
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.push.report import PushedStreamReport, PushReport
from dagster_airbyte_proto.sync.report import SyncStatus

_POLL_SECONDS = 0.5


class PushStep:
    """Waits for a push, and yields a materialization for each stream that is complete."""

    def __init__(
        self, connection: str, streams: Mapping[dg.AssetKey, StreamId], background: BackgroundSync[PushReport]
    ) -> None:
        self._connection, self._streams, self._background = connection, streams, background

    def events(self, stop: Callable[[], bool]) -> Iterator[dg.MaterializeResult[None]]:
        """Raises dg.Failure where a stream is not complete, after the good ones. `stop` ends the push early."""
        report = self._report(stop)
        for key, stream in self._streams.items():
            pushed = report.streams[str(stream)]
            if pushed.status is SyncStatus.COMPLETE:
                yield dg.MaterializeResult(asset_key=key, metadata=push_metadata(report, pushed))
        failed = {name: each for name, each in report.streams.items() if each.status is not SyncStatus.COMPLETE}
        if failed:
            text = "\n".join(f"{name}: {each.error or each.status.value}" for name, each in failed.items())
            raise dg.Failure(
                text,
                metadata={"airbyte_proto/run": report.run_id, "airbyte_proto/log": dg.PathMetadataValue(report.log)},
                allow_retries=all(each.retryable for each in failed.values()),
            )

    def _report(self, stop: Callable[[], bool]) -> PushReport:
        self._background.start()
        try:
            while not isinstance(ended := self._background.next_message(_POLL_SECONDS), SyncEnded):
                pass
        except BaseException as error:
            stop()
            if isinstance(error, KeyboardInterrupt | dg.DagsterExecutionInterruptedError):
                raise cancellation(self._connection, None) from None
            raise
        with failing_the_step():
            if ended.error is not None:
                raise ended.error
        report: PushReport | None = ended.report
        assert report is not None
        return report


def push_metadata(report: PushReport, pushed: PushedStreamReport) -> dict[str, dg.MetadataValue]:
    """The numbers of one pushed stream, for its materialization."""
    planned = pushed.planned
    numbers = {
        "planned_added": planned.added,
        "planned_changed": planned.changed,
        "planned_removed": planned.removed,
        "unchanged": planned.unchanged,
        "sent": pushed.sent,
        "acknowledged": pushed.acknowledged,
        "rejected": pushed.rejected,
        "unknown": pushed.unknown,
    }
    texts = {"run": report.run_id, "connector": report.connector, "from": pushed.origin}
    if pushed.table is not None:
        texts["delivered_table"] = pushed.table
    return {
        **{f"airbyte_proto/{name}": dg.IntMetadataValue(number) for name, number in numbers.items()},
        **{f"airbyte_proto/{name}": dg.TextMetadataValue(text) for name, text in texts.items()},
    }
