"""The complete streams of a reading, for the run's commit listener."""

from collections.abc import Iterator

from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.plan.sync_plan import SyncPlan
from dagster_airbyte_proto.sync.read.preparation import PreparedSync
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.stream_run import StreamStates, stream_report
from dagster_airbyte_proto.sync.sync_context import SyncContext


def committed_streams(context: SyncContext, plan: SyncPlan, prepared: PreparedSync) -> Iterator[CommittedStream]:
    """The complete streams, with the state that is about to be saved. Their last load has landed."""
    states = StreamStates(context.protocol.states, len(prepared.runs))
    last = prepared.loader.last_landed
    parts = {part.stream: part for part in last.load.parts if not part.is_relayed} if last else {}
    for stream, run in prepared.runs.items():
        if run.status is SyncStatus.COMPLETE:
            yield CommittedStream(
                stream,
                run.planned.table,
                stream_report(
                    run,
                    states,
                    context.source.mask,
                    before_promotion=True,
                    metrics=context.metrics(stream),
                ),
                last.load.load_id if last and stream in parts else None,
                parts.get(stream),
                context.source.identity,
                run.planned,
                run.table.location if run.planned.relay is None else "",
                plan.read_request.sync_id,
                run.table.missing_columns,
            )
