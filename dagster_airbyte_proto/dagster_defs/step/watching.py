"""How far a sync is and what its connector says, where people look in Dagster."""

import itertools
import sys
import time
from collections.abc import Mapping

import dagster as dg
from dagster._core.events import EngineEventData

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.stream_run import Phase, StreamRun

_LOUD = {"NOTE": "info", "WARN": "warning", "ERROR": "error", "FATAL": "error"}
_MOST_LOUD_LINES = 100
_NAMED_STREAMS = 3


class RunWatcher:
    """A Watcher. What the connector says comes from the sync's threads and goes to stderr, which is the step's compute
    log; warnings go to the run's log too. `tell_progress` belongs to the step's own thread."""

    def __init__(self, context: dg.AssetExecutionContext, *, every_seconds: float) -> None:
        self._context = context
        self._every_seconds = every_seconds
        self._loud_lines = itertools.count()
        self._loud_texts: set[str] = set()
        self._runs: Mapping[StreamId, StreamRun] = {}
        self._told_at = time.monotonic()
        self._told_rows = 0

    def began(self, run_id: str, runs: Mapping[StreamId, StreamRun]) -> None:  # noqa: ARG002 - as a watcher has it
        self._runs = runs
        self._told_rows = 0  # of several partitions, each begins anew

    def progressed(self) -> None:
        """Dagster's events are written by the step's thread, which looks by itself."""

    def said(self, level: str, text: str) -> None:
        sys.stderr.write(f"{level} {text}\n")
        if level in _LOUD and (number := next(self._loud_lines)) <= _MOST_LOUD_LINES:
            told = text if number < _MOST_LOUD_LINES else "There is more of this in the step's compute logs."
            self._loud_texts.add(told)
            self._context.log.log(_LOUD[level], told)

    def warn(self, text: str) -> None:
        """Of the sync's report: most of its warnings were said before."""
        if text not in self._loud_texts:
            self._context.log.warning(text)

    def tell_progress(self) -> None:
        """One engine event, if it is time for it and rows have come."""
        now = time.monotonic()
        seconds = now - self._told_at
        if seconds < self._every_seconds:
            return
        rows = sum(run.emitted for run in self._runs.values())
        if rows == self._told_rows:
            return
        rate = (rows - self._told_rows) / seconds
        self._told_at, self._told_rows = now, rows
        self._report(rows, rate)

    def _report(self, rows: int, rate: float) -> None:
        size = sum(run.bytes for run in self._runs.values())
        reading = [str(stream) for stream, run in self._runs.items() if run.phase is Phase.READING]
        what = ", ".join(reading[:_NAMED_STREAMS]) + (", …" if len(reading) > _NAMED_STREAMS else "")
        self._context.instance.report_engine_event(
            f"{rows:,} rows read, {rate:,.0f} a second" + (f"; reading {what}" if what else ""),
            self._context.run,
            EngineEventData(
                metadata={
                    "airbyte_proto/rows": dg.IntMetadataValue(rows),
                    "airbyte_proto/bytes": dg.IntMetadataValue(size),
                    "airbyte_proto/rows_per_second": dg.FloatMetadataValue(rate),
                }
            ),
            step_key=step_key(self._context),
        )


def step_key(context: dg.AssetExecutionContext) -> str:
    return context.op_execution_context.get_step_execution_context().step.key
