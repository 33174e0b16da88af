"""Prunes what the state store has of a connection's past, at the end of a sync or push."""

from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run_log import RunLog


def prune_old_history(engine: Engine, lease: Lease, log: RunLog) -> None:
    """Prunes the history that is older than the settings say."""
    days = engine.settings.keep_history_days
    if days:
        try:
            engine.store.prune_history(lease, days=days)
        except ProtoError as error:  # The run is over. The next one prunes.
            log.write("WARN", f"old history was not pruned: {error}")
