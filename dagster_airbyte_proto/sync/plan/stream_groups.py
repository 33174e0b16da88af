"""Divides the streams of a sync into groups, each of which a process of the connector reads, side by side.

Only streams with states of their own may be read so: a shared state (GLOBAL, LEGACY) is one position for all of them,
and each process would move it on without the rows of the others. So one process reads all of them

- as long as the store has no state by which it is known: the first sync, and the first after a reset. Streams that are
  read whole each time need none;
- when the last sync met a shared state in a group (`SyncReport.shared_state`);
- where a connector rewrites its config: the tokens of two processes would invalidate each other.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.model import PlannedStream, ReadMode, StateScope, StreamId
from dagster_airbyte_proto.sync.plan.sync_plan import SyncPlan
from dagster_airbyte_proto.sync.sync_context import SyncContext


def group_plans(context: SyncContext, plan: SyncPlan) -> tuple[SyncPlan, ...]:
    """The plan of each group of streams; the plan itself where one process reads all of them."""
    most = min(context.source.connection.parallel or 1, len(plan.streams))
    if most == 1 or context.request.slice is not None:  # The partitions of a connection run side by side.
        return (plan,)
    last = last_report(context.store, context.connection)
    why = _why_together(context, plan, last)
    if why is not None:
        context.log.write("NOTE", f"one process of the connector reads all streams, not {most}: {why}")
        return (plan,)
    groups = divided(plan.streams, most, _last_rows(last))
    context.log.write("NOTE", f"{most} processes of the connector read {'; '.join(map(_stream_names, groups))}")
    return tuple(_of_group(plan, group) for group in groups)


def last_report(store: StateStore, connection: str) -> Mapping[str, Any]:
    """The report of the sync that ended last, as JSON; empty without one."""
    report = store.newest_report(connection)
    value: Mapping[str, Any] = msgspec.json.decode(report) if report else {}
    return value


def divided(
    streams: Sequence[PlannedStream], groups: int, last_rows: Mapping[str, int]
) -> list[tuple[PlannedStream, ...]]:
    """Divides the streams into groups with about as many rows each, by those that the last sync read.

    Each keeps the order of the streams. A stream of which nothing is known counts as an average one.
    """
    average = sum(last_rows.values()) // len(last_rows) if last_rows else 0
    # One more for each, so that streams without rows are divided too.
    rows = {each.id: last_rows.get(str(each.id), average) + 1 for each in streams}
    members: list[set[StreamId]] = [set() for _ in range(groups)]
    sums = [0] * groups
    for stream in sorted(rows, key=lambda each: -rows[each]):
        least = sums.index(min(sums))
        members[least].add(stream)
        sums[least] += rows[stream]
    return [tuple(each for each in streams if each.id in group) for group in members if group]


def _why_together(context: SyncContext, plan: SyncPlan, last: Mapping[str, Any]) -> str | None:
    """The reason for which one process must read all streams; None if there is none."""
    if context.destination is not None:
        return "they go to one process of the destination"
    if not context.protocol.can_divide_streams:
        return f"{context.protocol.name} connectors do not let several read"
    if context.is_replay:
        return "it is a recording of one"
    if context.enrichers:
        return "connectors transform them, with values of their own"
    if context.store.stored_config(context.connection) is not None:
        return "the connector rewrites its config, and two at once would invalidate each other's tokens"
    if any(state.scope is not StateScope.STREAM for state in plan.stored_states):
        return "they share one state"
    if last.get("shared_state"):
        return "the last sync met a state that they share"
    if not plan.stored_states and any(each.read is ReadMode.INCREMENTAL for each in plan.streams):
        return "it is not known yet whether each has a state of its own"
    return None


def _last_rows(last: Mapping[str, Any]) -> dict[str, int]:
    return {name: stream["emitted"] for name, stream in last.get("streams", {}).items() if "emitted" in stream}


def _of_group(plan: SyncPlan, group: tuple[PlannedStream, ...]) -> SyncPlan:
    ids = {each.id for each in group}
    request = plan.read_request._replace(
        streams=group, states=tuple(state for state in plan.read_request.states if state.stream in ids)
    )
    return dataclasses.replace(
        plan,
        streams=group,
        columns={stream: columns for stream, columns in plan.columns.items() if stream in ids},
        specs={stream: spec for stream, spec in plan.specs.items() if stream in ids},
        read_request=request,
    )


def _stream_names(group: Sequence[PlannedStream]) -> str:
    return ", ".join(str(each.id) for each in group)
