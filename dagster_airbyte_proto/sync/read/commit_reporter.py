"""Reports complete streams to the run's commit listener, once their last load has landed and before its states move."""

from typing import NamedTuple

from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.plan.sync_plan import SyncPlan
from dagster_airbyte_proto.sync.preparation import PreparedSync
from dagster_airbyte_proto.sync.relay.relay_tables import is_relayed
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.stream_run import stream_report
from dagster_airbyte_proto.sync.sync_context import SyncContext


class CommitReporter(NamedTuple):
    """Reports what one sync has landed."""

    context: SyncContext
    plan: SyncPlan
    prepared: PreparedSync

    def notify(self) -> None:
        """Reports every complete stream, with the state that is about to be saved."""
        last = self.prepared.loader.last_landed
        parts = {part.stream: part for part in last.load.parts if not is_relayed(part)} if last else {}
        self.context.options.commit_listener.committed(
            [
                CommittedStream(
                    stream,
                    run.planned.table,
                    stream_report(run, self.context.protocol.states, self.context.source.mask, before_promotion=True),
                    last.load.load_id if last and stream in parts else None,
                    parts.get(stream),
                    self.context.source.identity,
                    run.planned,
                    run.table.location if run.planned.relay is None else "",
                    self.plan.read_request.sync_id,
                    run.table.missing_columns,
                )
                for stream, run in self.prepared.runs.items()
                if run.status is SyncStatus.COMPLETE
            ]
        )
