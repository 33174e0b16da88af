"""The values and the interface between a driver and the task of one sync."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.connection.connection import PortableConnection
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.protocols.events import StreamStatus
from dagster_airbyte_proto.settings import CatalogSettings, CompactAfter, Settings
from dagster_airbyte_proto.sync.cluster.connector_files import SentFile
from dagster_airbyte_proto.sync.cluster.values import RemoteError
from dagster_airbyte_proto.sync.commit.auto_compact import DueTable
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run_options import Timeouts
from dagster_airbyte_proto.tables.abilities import Abilities


class SettingsOfSync(NamedTuple):
    """The settings that a sync on an executor shares with its driver. The URL of the state store is not among them."""

    lease_seconds: float
    keep_history_days: float
    compact_after: tuple[int, int]
    catalog: tuple[str, str, str]

    @classmethod
    def of(cls, settings: Settings) -> "SettingsOfSync":
        catalog, compact = settings.catalog, settings.compact_after
        return cls(
            settings.lease_seconds,
            settings.keep_history_days,
            (compact.delete_files, compact.small_files),
            (catalog.name, catalog.format, catalog.warehouse),
        )

    def at(self, home: Path) -> Settings:
        """Returns the settings of an executor with this home folder."""
        name, table_format, warehouse = self.catalog
        delete_files, small_files = self.compact_after
        return Settings.load(home).model_copy(
            update={
                "lease_seconds": self.lease_seconds,
                "keep_history_days": self.keep_history_days,
                "compact_after": CompactAfter(delete_files=delete_files, small_files=small_files),
                "catalog": CatalogSettings(name=name, format=table_format, warehouse=warehouse),
            }
        )


class TablesOfDriver(NamedTuple):
    """The tables that the driver keeps, as far as an executor has to know them."""

    abilities: Abilities
    storage: Storage
    vends_credentials: bool
    has_key_lookup: bool
    has_branches: bool


class SyncOrder(NamedTuple):
    """One sync, as its task runs it. `variables` are those of the driver's environment that the connector gets. By
    their paths on the driver, `files` are those that it is made of, `hidden_files` those that it may not see."""

    connection: PortableConnection
    files: Mapping[str, SentFile]
    variables: Mapping[str, str]
    request: SyncRequest
    settings: SettingsOfSync
    tables: TablesOfDriver
    run_id: str
    attempt: int
    lease_wait_seconds: float
    timeouts: Timeouts
    hidden_files: tuple[str, ...]


class StreamCounts(NamedTuple):
    """The progress of a stream."""

    stream: StreamId
    emitted: int
    bytes: int
    states: int
    committed: int
    rejected: int
    reported_status: StreamStatus | None
    is_complete: bool
    error: RemoteError | None


class LogLine(NamedTuple):
    """A line of the run's log, with secrets masked."""

    level: str
    text: str


class SyncOutcome(NamedTuple):
    """The end of a sync: its report and the tables that are due to be compacted, or the error before it began."""

    report: SyncReport | None = None
    due: tuple[DueTable, ...] = ()
    error: RemoteError | None = None


class SyncDriver(Protocol):
    """The driver, as the task of one sync sees it, beside the state store, the tables and the cached answers."""

    def order(self, attempt: int) -> SyncOrder | None:
        """Returns the sync to run; None if an earlier attempt has ended it."""
        ...

    def declined(self, attempt: int, outcome: SyncOutcome) -> bool:
        """Tells that an attempt cannot begin, and why. Returns false while another one is at work, of which that is no
        end. Raises ConnectorError if that one has not called for long."""
        ...

    def sees(self, path: str) -> bool:
        """True if a file that an executor wrote is there for the driver too."""
        ...

    def started(self, run_id: str, streams: Sequence[PlannedStream]) -> None: ...

    def progressed(self, lines: Sequence[LogLine], counts: Sequence[StreamCounts]) -> bool:
        """Passes on what has come since the last call. Returns true once the sync is cancelled."""
        ...

    def committed(self, attempt: int, streams: Sequence[CommittedStream]) -> None:
        """As in a `CommitListener`. Raises StateConflict for an attempt that was superseded."""
        ...

    def ended(self, attempt: int, outcome: SyncOutcome) -> None:
        """Tells the end of an attempt. One that was superseded no longer counts."""
        ...

    def is_superseded(self, attempt: int) -> bool:
        """True while a later attempt is at work. Raises ConnectorError if that one has not called for long."""
        ...
