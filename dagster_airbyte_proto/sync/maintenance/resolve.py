"""Ends a load whose outcome is unknown, as you say."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from dagster_airbyte_proto.checkpoints.load_ending import Resolution
from dagster_airbyte_proto.checkpoints.store import LoadStatus, LoggedLoad, StateStore
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.loads.load import Load
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.commit.committer import Committer, sharing_state
from dagster_airbyte_proto.sync.lease import NO_WAIT, LeaseWait, acquire_lease
from dagster_airbyte_proto.sync.relay.kept_rejections import RejectionKeeping
from dagster_airbyte_proto.sync.run_log import new_run_id

if TYPE_CHECKING:
    from dagster_airbyte_proto.sync.engine import Engine


def resolve_load(engine: "Engine", load_id: str, resolution: Resolution, waiting: LeaseWait = NO_WAIT) -> LoggedLoad:
    """Ends an announced load, and returns its entry in the log.

    Tables that can be read tell themselves whether it landed, and get the rows that they lack. The resolution counts
    for the others. Raises ConfigError where there is none, or where it would double rows. Of a relay's load that has
    landed the rejected records are kept first: no run reads its files after this.
    """
    connection = _announced(engine.store, load_id).load.connection
    with (
        acquire_lease(engine.store, connection, new_run_id(), engine.settings.lease_seconds, waiting) as renewal,
        Committer(engine.store, lambda: engine.tables, renewal.lease) as committer,
    ):
        load = _announced(engine.store, load_id).load
        is_relay = any(part.is_relayed for part in load.parts)
        if resolution.as_landed and is_relay:
            RejectionKeeping(engine.store, renewal.lease, waiting.notify).keep_all(load)
        held_back = () if resolution.as_landed or is_relay else _lost_together(engine, load)
        committer.resolve(load, resolution, held_back)
    entry = engine.store.load(load_id)
    assert entry is not None, "the store forgets no load"
    return entry


def _lost_together(engine: "Engine", load: Load) -> Collection[StreamId]:
    """The streams that share a state, if nobody can read the table of one of them: its lost rows come again, and those
    of the others with them. Whoever gave the others the rows that they lack would make the word wrong."""
    sharing = sharing_state(load)
    try:
        for part in load.parts:
            if part.stream in sharing:
                engine.tables.find_load(load.load_id, part)
    except ProtoError:
        return sharing
    return ()


def _announced(store: StateStore, load_id: str) -> LoggedLoad:
    entry = store.load(load_id)
    if entry is None or entry.status is not LoadStatus.ANNOUNCED:
        found = f"there is no load {load_id!r}" if entry is None else f"it has ended already: {entry.status}"
        raise ConfigError(
            f"resolving load {load_id}", found, remedy="`airbyte-proto loads list C` shows the loads of C."
        )
    return entry
