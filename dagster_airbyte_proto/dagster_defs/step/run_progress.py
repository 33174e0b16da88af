"""The progress of a sync and its connector's log lines, shown in Dagster's run log and compute logs."""

import itertools
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dagster as dg
from dagster._core.events import EngineEventData

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.stack_traces import brief_log_text
from dagster_airbyte_proto.sync.stream_run import Phase, StreamRun

_RUN_LOG_LEVELS = {"NOTE": "info", "WARN": "warning", "ERROR": "error", "FATAL": "error"}
_MAX_RUN_LOG_LINES = 100
_MAX_NAMED_STREAMS = 3


@contextmanager
def writing_to_dagster() -> Iterator[None]:
    """Has a line that Dagster's database does not take in the compute log alone: no reason to end a sync of hours."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever the storage of an instance raises; an interrupt is none
        sys.stderr.write(f"WARN a line is missing in the run's log, as Dagster could not write it: {error}\n")


class RunProgress:
    """A ProgressListener that writes to Dagster. The connector's log lines come from the sync's threads and go to
    stderr, the step's compute log. Warnings and errors go to the run's log too, without stack traces, up to a limit.
    `report_progress` belongs to the step's own thread."""

    def __init__(self, context: dg.AssetExecutionContext, *, interval_seconds: float) -> None:
        self._context = context
        self._interval_seconds = interval_seconds
        self._line_numbers = itertools.count()
        self._logged_texts: set[str] = set()
        self._runs: Mapping[StreamId, StreamRun] = {}
        self._reported_at = time.monotonic()
        self._reported_rows = 0

    def run_started(self, run_id: str, runs: Mapping[StreamId, StreamRun]) -> None:  # noqa: ARG002 - the protocol has it
        self._runs = runs
        self._reported_rows = 0  # each partition is a sync of its own and counts from 0

    def progressed(self) -> None:
        """Does nothing: Dagster's events are written by the step's thread, which polls."""

    def connector_logged(self, level: str, text: str) -> None:
        sys.stderr.write(f"{level} {text}\n")
        if level in _RUN_LOG_LEVELS and (number := next(self._line_numbers)) <= _MAX_RUN_LOG_LINES:
            line = (
                brief_log_text(text)
                if number < _MAX_RUN_LOG_LINES
                else "The step's compute logs have more lines like these."
            )
            self._logged_texts.add(line)
            with writing_to_dagster():
                self._context.log.log(_RUN_LOG_LEVELS[level], line)

    def warn(self, text: str) -> None:
        """Logs a warning of the sync's report, unless the connector's lines have shown it already."""
        if text not in self._logged_texts:
            self._context.log.warning(text)

    def report_progress(self) -> None:
        """Writes one engine event if the interval is over and rows have come since the last one."""
        now = time.monotonic()
        seconds = now - self._reported_at
        if seconds < self._interval_seconds:
            return
        rows = sum(run.counts.emitted for run in self._runs.values())
        if rows == self._reported_rows:
            return
        rate = (rows - self._reported_rows) / seconds
        self._reported_at, self._reported_rows = now, rows
        self._report(rows, rate)

    def _report(self, rows: int, rate: float) -> None:
        committed = sum(run.outcome.committed for run in self._runs.values())
        size = sum(run.counts.bytes for run in self._runs.values())
        reading = [str(stream) for stream, run in self._runs.items() if run.phase is Phase.READING]
        streams = ", ".join(reading[:_MAX_NAMED_STREAMS]) + (", …" if len(reading) > _MAX_NAMED_STREAMS else "")
        with writing_to_dagster():
            self._context.instance.report_engine_event(
                f"{rows:,} rows read, {committed:,} committed, {rate:,.0f} a second"
                + (f"; reading {streams}" if streams else ""),
                self._context.run,
                EngineEventData(
                    metadata={
                        "airbyte_proto/rows": dg.IntMetadataValue(rows),
                        "airbyte_proto/committed": dg.IntMetadataValue(committed),
                        "airbyte_proto/bytes": dg.IntMetadataValue(size),
                        "airbyte_proto/rows_per_second": dg.FloatMetadataValue(rate),
                    }
                ),
                step_key=step_key(self._context),
            )


def step_key(context: dg.AssetExecutionContext) -> str:
    return context.op_execution_context.get_step_execution_context().step.key
