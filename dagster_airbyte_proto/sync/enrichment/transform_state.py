"""The states of a run's transforms: from which they go on, and what they keep for no stream.

The states that belong to rows move with the load of these rows, see `checkpoints/transform_states.py`.
"""

import hashlib
from collections.abc import Collection
from typing import Protocol, runtime_checkable

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.kept_values import Asset, ValueStore
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.checkpoints.transform_states import TRANSFORMS, stored_transform_states
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.loads.program_identity import connector_program
from dagster_airbyte_proto.model import ComponentSpec, EnrichmentSpec, PlannedStream
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.plan.stream_plan import replaces_table
from dagster_airbyte_proto.sync.state_server.component_values import Kept, shared_asset, shared_changes, shared_values
from dagster_airbyte_proto.sync.sync_context import SyncContext
from dagster_airbyte_proto.transforms.transform_choice import Enrichers

_LONGEST_NAME = 200


@runtime_checkable
class SupportsSharedValues(Protocol):
    """A transform that keeps values for no stream. `changed` are those that are new in this run, by scope."""

    name: str

    @property
    def changed(self) -> Kept: ...


def component_name(connector: Destination, others: Collection[str]) -> str:
    """Returns the name under which a transform keeps its state: its own id, numbered among several of one id.

    So it is found again where other transforms come before it, or its file has another name.
    """
    manifest = connector.spec().message.get("manifest")
    found = manifest.get("id") if isinstance(manifest, dict) else None
    return _numbered(found if isinstance(found, str) and found else "component", others)


def enrichment_name(connector: Destination, spec: EnrichmentSpec, others: Collection[str]) -> str:
    """Returns the name under which an enrichment keeps its values: its program, without its version, and the columns
    that it fills. So it is found again where others come before it, and after an upgrade."""
    own = f"{connector_program(connector.connection.connector)}: {', '.join(name for name, _ in spec.columns)}"
    own = own.replace("#", "_").encode("utf-8", "backslashreplace").decode()
    if len(own.encode()) > _LONGEST_NAME:  # A key of the store has it.
        digest = hashlib.sha256(own.encode()).hexdigest()[:16]
        own = f"{own.encode()[:150].decode('utf-8', 'ignore')}… {digest}"
    return _numbered(own, others)


def _numbered(own: str, others: Collection[str]) -> str:
    same = sum(each.partition("#")[0] == own for each in others)
    return f"{own}#{same + 1}" if same else own


def states_before(context: SyncContext, planned: PlannedStream, *, is_continued: bool) -> tuple[TransformState, ...]:
    """Returns the states from which the transforms of a stream go on.

    Where the table is replaced there are none, unless the sync goes on with a generation that an earlier one began.
    """
    if not any(isinstance(each, ComponentSpec | EnrichmentSpec) for each in planned.transforms):
        return ()
    asset = Asset(context.connection, planned.id, context.request.partition)
    if not replaces_table(planned):
        return stored_transform_states(context.engine.store, asset)
    return stored_transform_states(context.engine.store, asset, planned.generation_id) if is_continued else ()


def shared_before(store: ValueStore, connection: str, name: str) -> Kept:
    """Returns the values that a transform keeps for no stream, by their scopes."""
    return shared_values(store, connection, _role(name))


def keep_shared(store: DeliveryStore, lease: Lease, enrichers: Enrichers) -> None:
    """Keeps what transforms keep for no stream: the run came to a good end."""
    for each in enrichers.values():
        if isinstance(each, SupportsSharedValues):
            changes = shared_changes(store, lease.connection, _role(each.name), each.changed)
            store.keep_values(lease, shared_asset(lease.connection), changes)


def _role(name: str) -> str:
    return f"{TRANSFORMS}/{name}"
