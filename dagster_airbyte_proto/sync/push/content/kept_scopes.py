"""The values that a component keeps while it gets rows: those of its stream go with rows, the others with its end."""

from collections.abc import Mapping

from dagster_airbyte_proto.checkpoints.deliveries import asset_of
from dagster_airbyte_proto.checkpoints.kept_values import ValueChanges
from dagster_airbyte_proto.loads.push import SealedPlan
from dagster_airbyte_proto.sync.push.push_context import DeliveryContext
from dagster_airbyte_proto.sync.state_server.component_values import (
    ComponentRole,
    Kept,
    shared_asset,
    shared_changes,
    shared_values,
    stream_changes,
    stream_values,
)


class KeptScopes:
    """The values of one process. Where a protocol has none, nothing is read and nothing changes."""

    def __init__(self, context: DeliveryContext, plan: SealedPlan) -> None:
        self._context, self._plan = context, plan
        self._of_stream: Mapping[str, str] = {}

    def before(self) -> Kept:
        """The values of earlier runs, by their scopes."""
        context, plan = self._context, self._plan
        if not context.destination.protocol.keeps_scopes:
            return {}
        self._of_stream = stream_values(context.store, asset_of(plan), ComponentRole.DESTINATION)
        shared = shared_values(context.store, plan.connection, ComponentRole.DESTINATION)
        return {**shared, "stream": self._of_stream}

    def changes(self, kept: Kept) -> ValueChanges:
        """The changes of the stream's values that go with the rows that are proved now."""
        return stream_changes(self._of_stream, kept.get("stream", {}), ComponentRole.DESTINATION)

    def noted(self, kept: Kept) -> None:
        """Takes the changes for stored."""
        self._of_stream = {**self._of_stream, **kept.get("stream", {})}

    def keep_at_end(self, kept: Kept) -> None:
        """Stores what is left when the process has come to a good end."""
        store, lease, plan = self._context.store, self._context.lease, self._plan
        shared = shared_changes(store, plan.connection, ComponentRole.DESTINATION, kept) if kept else ValueChanges()
        for asset, changes in (
            (asset_of(plan), self.changes(kept)),
            (shared_asset(plan.connection), shared),
        ):
            if changes != ValueChanges():
                store.keep_values(lease, asset, changes)
