"""Ends a sync or push in the state store: its report is kept, and the connection's old history is pruned."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import msgspec

from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import ProtoError, StateConflict
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.push_report import PushReport
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from dagster_airbyte_proto.sync.run_log import RunLog

_AnyReport = TypeVar("_AnyReport", SyncReport, PushReport)


def end_run(engine: Engine, lease: Lease, report: SyncReport | PushReport, log: RunLog) -> None:
    """Writes the report to the store, and prunes the history that is older than the settings say."""
    encoded = msgspec.json.encode(report.as_json()).decode()
    engine.store.end_run(lease, status=report.status, report=encoded)
    reach("run.ended")
    days = engine.settings.keep_history_days
    if days:
        try:
            engine.store.prune_history(lease, days=days)
        except ProtoError as error:  # The run is over. The next one prunes.
            log.write("WARN", f"old history was not pruned: {error}")


@contextmanager
def noting_failure(
    engine: Engine, lease: Lease, log: RunLog, failed: Callable[[ProtoError], SyncReport | PushReport]
) -> Iterator[None]:
    """Ends the run in the store, by the report that `failed` makes, if an error ends it in here: while it prepares, or
    behind its streams. Without that the store would show the run before, or one that seems to have died.
    """
    try:
        yield
    except StateConflict:  # Another run has taken the connection over, and its runs are that one's to record.
        raise
    except ProtoError as error:
        with suppress(ProtoError):  # The store may be what failed, and the first error is the one to be raised.
            report = failed(error)
            report = msgspec.structs.replace(report, error=log.masked(report.error or ""))
            # Without streams: no generation begins or ends. If the run has begun, this repeats it and changes nothing.
            engine.store.begin_run(lease, refreshed=(), streams=(), partition=report.partition)
            end_run(engine, lease, report, log)
        raise


def failed_behind_streams(report: _AnyReport, error: ProtoError) -> _AnyReport:
    """The report of a run that an error ends behind its streams. What became of these is true all the same: that rows
    are unknown says more than that the run failed."""
    status = report.status if report.status is SyncStatus.UNKNOWN else SyncStatus.FAILED
    return msgspec.structs.replace(report, status=status, error=report.error or str(error))
