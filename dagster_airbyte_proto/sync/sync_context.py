"""The services and the request of one run that holds its connection, for every step of it."""

from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.logs import states_version
from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.connection import ProgramLaunch, ReplayLaunch
from dagster_airbyte_proto.loads.batch_folder import BatchFolder
from dagster_airbyte_proto.model import State, StreamId
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.protocols.events import ConfigEvent
from dagster_airbyte_proto.sync.commit.committer import Committer
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import LeaseRenewal
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.plan.stream_profiles import StreamProfiles
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.sync.telemetry.sent_metrics import MetricsBySender, RunSenders
from dagster_airbyte_proto.transforms.transform_choice import NO_ENRICHERS, Enrichers


class SyncContext(NamedTuple):
    """One run: what it reads, how it behaves, and what it holds until it ends.

    A relay has a `destination`, transforms by connectors have `enrichers`. `is_group` is true if it reads one of
    several groups of the run's streams.
    """

    engine: Engine
    source: Source
    request: SyncRequest
    options: RunOptions
    renewal: LeaseRenewal
    committer: Committer
    profiles: StreamProfiles
    log: RunLog
    destination: Destination | None = None
    enrichers: Enrichers = NO_ENRICHERS
    is_group: bool = False

    @property
    def store(self) -> StateStore:
        return self.engine.store

    @property
    def lease(self) -> Lease:
        return self.renewal.lease

    @property
    def connection(self) -> str:
        return self.lease.connection

    @property
    def protocol(self) -> SourceProtocol:
        return self.source.protocol

    @property
    def batch_folder(self) -> BatchFolder | None:
        """The folder whose files the connector may pass: the one that the connection names, or its working folder."""
        connector = self.source.connection.connector
        working_folder = connector.launch.working_folder if isinstance(connector.launch, ProgramLaunch) else None
        place = connector.batch_folder or working_folder
        return BatchFolder(str(place), working_folder) if place else None

    @property
    def is_replay(self) -> bool:
        """True if the connector's output is that of a recording."""
        return isinstance(self.source.connection.connector.launch, ReplayLaunch)

    def metrics(self, stream: StreamId) -> MetricsBySender:
        """The metrics that the connectors of the run have sent so far of a stream."""
        destination = self.destination.metrics if self.destination else None
        return RunSenders(self.enrichers, source=self.source.metrics, destination=destination).of_stream(stream)

    def stored_states(self) -> list[State]:
        """The states of the run's partition as they stand in the store."""
        return [each.state for each in self.store.states(self.connection, partition=self.request.partition)]

    def is_cancelled(self) -> bool:
        """True once somebody has cancelled the run. Raises StateConflict if another run has taken over."""
        self.renewal.check()
        return self.options.cancel.is_set()

    def save_config(self, event: ConfigEvent) -> None:
        """Stores a config that the connector rewrote."""
        with self.source.rewriting:
            self.source.accept_rewritten_config(event)
            self.source.save_config(self.store, self.lease)

    def stored_version(self) -> int:
        """The version of the stored states; 0 before the first."""
        return states_version(self.store, self.connection)
