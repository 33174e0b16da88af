"""The step of a push: runs it beside the step's thread, and turns its report into Dagster's events."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import dagster as dg

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition
from dagster_airbyte_proto.dagster_defs.push.push_checks import PushCheckInput, push_check_results
from dagster_airbyte_proto.dagster_defs.push.push_metadata import push_metadata
from dagster_airbyte_proto.dagster_defs.push.translator import table_asset
from dagster_airbyte_proto.dagster_defs.step.background_sync import BackgroundSync, SyncEnded
from dagster_airbyte_proto.dagster_defs.step.failures import cancellation, failing_the_step
from dagster_airbyte_proto.dagster_defs.step.materialization_builder import QueryableIOManager
from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.sync.push.report import PushedStreamReport, PushReport
from dagster_airbyte_proto.sync.report import SyncStatus

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.session import QueryResult

_POLL_SECONDS = 0.5

PushEvents = Iterator[dg.MaterializeResult[None]]


class PushedAssets(NamedTuple):
    """The connection that a step pushes, as its definitions have it or another, and the IO manager of its tables."""

    connection: Connection
    definition: ConnectionDefinition
    io_manager: object


class PushStep:
    """Waits for a push, and yields a materialization for each stream that is complete."""

    def __init__(
        self, context: dg.AssetExecutionContext, pushed: PushedAssets, background: BackgroundSync[PushReport]
    ) -> None:
        self._context, self._pushed, self._background = context, pushed, background

    def events(self, stop: Callable[[], bool]) -> PushEvents:
        """Raises dg.Failure where a stream is not complete, after the good ones. `stop` ends the push early."""
        report = self._report(stop)
        failed = {}
        for key, stream in self._pushed.definition.streams.items():
            pushed = report.streams.get(str(stream))
            if pushed is None:
                continue
            if pushed.status is SyncStatus.COMPLETE:
                yield self._materialization(key, report, pushed)
            else:
                # Not a materialization: with one, Dagster's re-execution from failure would skip the stream.
                failed[str(stream)] = pushed
                metadata = push_metadata(report, pushed, self._upstream(key))
                self._context.log_event(dg.AssetObservation(key, description=pushed.error, metadata=metadata))
        if failed:
            text = "\n".join(f"{name}: {each.error or each.status.value}" for name, each in failed.items())
            raise dg.Failure(
                text,
                metadata={"airbyte_proto/run": report.run_id, "airbyte_proto/log": dg.PathMetadataValue(report.log)},
                allow_retries=all(each.retryable for each in failed.values()),
            )

    def _materialization(
        self, key: dg.AssetKey, report: PushReport, pushed: PushedStreamReport
    ) -> dg.MaterializeResult[None]:
        checks = self._pushed.definition.checks
        options = (self._pushed.connection.push or {})[str(self._pushed.definition.streams[key])]
        query = self._query if isinstance(self._pushed.io_manager, QueryableIOManager) else None
        inputs = PushCheckInput(options, pushed, query)
        selected = self._context.selected_asset_check_keys
        return dg.MaterializeResult(
            asset_key=key,
            metadata=push_metadata(report, pushed, self._upstream(key)),
            check_results=push_check_results(key, inputs, checks, selected) if checks else [],
        )

    def _upstream(self, key: dg.AssetKey) -> dg.AssetKey | None:
        """The asset of the table that the stream reads, if the assets depend on it."""
        options = (self._pushed.connection.push or {})[str(self._pushed.definition.streams[key])]
        upstream = self._context.assets_def.asset_deps[key]
        if options.table is None:
            return None
        return next(iter(upstream)) if len(upstream) == 1 else next(iter(upstream & {table_asset(options.table)}), None)

    def _query(self, sql: str) -> "QueryResult":
        """Runs a query in a thread of its own: an interrupt must find the step's thread waiting."""
        assert isinstance(self._pushed.io_manager, QueryableIOManager)
        with ThreadPoolExecutor(1, thread_name_prefix="query") as thread:
            return thread.submit(self._pushed.io_manager.query, sql).result()

    def _report(self, stop: Callable[[], bool]) -> PushReport:
        self._background.start()
        try:
            while not isinstance(ended := self._background.next_message(_POLL_SECONDS), SyncEnded):
                pass
        except BaseException as error:
            stop()
            if isinstance(error, KeyboardInterrupt | dg.DagsterExecutionInterruptedError):
                raise cancellation(self._pushed.connection.name, None) from None
            raise
        with failing_the_step():
            if ended.error is not None:
                raise ended.error
        report: PushReport | None = ended.report
        if report is None:
            raise InternalError("ending a push", "it has no report")
        return report
