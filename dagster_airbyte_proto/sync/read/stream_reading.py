"""Reads the streams of a sync: by one process of the connector, or in groups by several, side by side.

Each group has a process, a thread that reads it, a ledger and loads of its own. They share the run: its lease, its
number, its tables. So a group whose process dies takes no other down, and a run that dies leaves the announced loads of
each to the next run, which finds them all.

The last load of each group has landed when the slowest one is read. Then the commit listener learns of all streams
once, and the states of these loads move.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial
from typing import NamedTuple

from dagster_airbyte_proto.errors import InternalError, ProtoError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.sync.plan.stream_groups import group_plans, last_report
from dagster_airbyte_proto.sync.plan.sync_plan import SyncPlan
from dagster_airbyte_proto.sync.read.commit_reporter import committed_streams
from dagster_airbyte_proto.sync.read.connector_reading import ReadOutcome, close_prepared, read_connector
from dagster_airbyte_proto.sync.read.preparation import PreparedSync, prepare_sync
from dagster_airbyte_proto.sync.read.pull import Pull
from dagster_airbyte_proto.sync.run_options import ProgressListener
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.sync.sync_context import SyncContext


class StreamReading(NamedTuple):
    """One process of the connector that has been read to its end. `fatal` ended its reading as a whole."""

    context: SyncContext
    plan: SyncPlan
    prepared: PreparedSync
    pull: Pull
    fatal: ProtoError | None = None


class _Group(NamedTuple):
    """A group of streams, before its process of the connector starts."""

    context: SyncContext
    plan: SyncPlan
    prepared: PreparedSync


def read_streams(context: SyncContext, plan: SyncPlan) -> Sequence[StreamReading]:
    """Reads all streams of the plan, and moves the states of what has landed. Raises what goes wrong before the
    connector runs."""
    plans = group_plans(context, plan)
    if len(plans) > 1:
        return _read_side_by_side(context, plan, plans)
    prepared = prepare_sync(context, plan)
    context.options.progress_listener.run_started(context.lease.run_id, prepared.runs)
    reading = StreamReading(context, plan, prepared, *read_connector(context, plan, prepared))
    return _promote_last_loads(context, [reading])


def runs_in_order(plan: SyncPlan, prepared: Sequence[PreparedSync]) -> Mapping[StreamId, StreamRun]:
    """The streams of all groups, in the order of the plan."""
    runs = {stream: run for each in prepared for stream, run in each.runs.items()}
    return {planned.id: runs[planned.id] for planned in plan.streams}


def shares_state(context: SyncContext, readings: Sequence[StreamReading]) -> bool:
    """True if the next sync has to read all streams by one process: a group met a state that they share, in this sync
    or in an earlier one after which no state has moved."""
    if any(each.pull.met_shared_state for each in readings):
        return True
    if (context.source.connection.parallel or 1) == 1:
        return False
    was_met = bool(last_report(context.store, context.connection).get("shared_state"))
    return was_met and all(run.outcome.state is None for each in readings for run in each.prepared.runs.values())


def _read_side_by_side(context: SyncContext, plan: SyncPlan, plans: Sequence[SyncPlan]) -> Sequence[StreamReading]:
    listener = _LockedListener(context.options.progress_listener)
    with ExitStack() as opened:
        groups = []
        for group in plans:
            own = _context_of_group(context, listener)
            opened.enter_context(own.committer)
            prepared = prepare_sync(own, group)
            opened.callback(close_prepared, prepared)
            groups.append(_Group(own, group, prepared))
        listener.run_started(context.lease.run_id, runs_in_order(plan, [each.prepared for each in groups]))
        outcomes = _read_groups(context, groups)
        read = [
            StreamReading(*group, *outcome.result())
            for group, outcome in zip(groups, outcomes, strict=True)
            if outcome.exception() is None
        ]
        readings = _promote_last_loads(context, read)
    for outcome in outcomes:
        outcome.result()  # Raises a fault of ours, after what the others landed has moved its states.
    return readings


def _read_groups(context: SyncContext, groups: Sequence[_Group]) -> Sequence["Future[ReadOutcome]"]:
    """Reads each group in a thread, and waits for all of them. Raises what is no error, such as an interrupt."""
    with ThreadPoolExecutor(len(groups), thread_name_prefix="group") as pool:
        # Each thread gets a copy of the context: spans nest by it.
        outcomes = [pool.submit(copy_context().run, partial(read_connector, *group)) for group in groups]
        try:
            wait(outcomes)
        except BaseException:
            context.options.cancel.set()  # The threads would go on, and the pool waits for them.
            raise
    for outcome in outcomes:
        error = outcome.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
    return outcomes


def _context_of_group(context: SyncContext, listener: ProgressListener) -> SyncContext:
    """The context of one group: whatever belongs to one reading thread is its own."""
    return context._replace(
        committer=context.committer.for_other_streams(),
        profiles=context.profiles.for_another_thread(),
        options=context.options._replace(progress_listener=listener),
        is_group=True,
    )


def _promote_last_loads(context: SyncContext, readings: Sequence[StreamReading]) -> Sequence[StreamReading]:
    """Reports the complete streams to the commit listener, then moves the states of the last loads.

    A reading that was ended as a whole moves none: its last load stays announced. InternalError is raised.
    """
    good = [each for each in readings if each.fatal is None]
    refused = _error_of(lambda: _report_committed(context, good)) if good else None
    ended = []
    for each in readings:
        fatal = each.fatal or refused or _error_of(each.prepared.loader.promote_last)
        if fatal is not None:
            for run in each.prepared.runs.values():
                run.abandon(fatal)
        ended.append(each._replace(fatal=fatal))
    return ended


def _report_committed(context: SyncContext, readings: Sequence[StreamReading]) -> None:
    streams = [
        each for reading in readings for each in committed_streams(reading.context, reading.plan, reading.prepared)
    ]
    context.options.commit_listener.committed(streams)
    reach("run.delivered")


def _error_of(step: Callable[[], object]) -> ProtoError | None:
    try:
        step()
    except InternalError:
        raise
    except ProtoError as error:
        return error
    return None


class _LockedListener:
    """Passes the progress of several reading threads on, one at a time."""

    def __init__(self, listener: ProgressListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()

    def run_started(self, run_id: str, runs: Mapping[StreamId, StreamRun]) -> None:
        self._listener.run_started(run_id, runs)

    def progressed(self) -> None:
        with self._lock:
            self._listener.progressed()

    def connector_logged(self, level: str, text: str) -> None:
        self._listener.connector_logged(level, text)
