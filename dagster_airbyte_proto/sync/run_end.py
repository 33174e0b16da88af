"""Ends a sync or push in the state store: its report is kept, and the connection's old history is pruned."""

import msgspec

from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.push_report import PushReport
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run_log import RunLog


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
