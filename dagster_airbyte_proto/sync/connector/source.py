"""A connection's source, ready to be queried and read."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.recordings.recording import RecordingLauncher
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.protocols.events import SchemaEvent
from dagster_airbyte_proto.sync.connector.configured_connector import ConfiguredConnector
from dagster_airbyte_proto.sync.connector.queries import LaunchableConnector

_SCHEMA_EVENTS = msgspec.json.Decoder(list[SchemaEvent])


class Source(ConfiguredConnector[SourceProtocol]):
    """The source of one connection. It adds what only a sync needs."""

    def hash_key(self) -> str:
        """The key by which private columns are hashed, masked from now on. Raises ConfigError if there is none."""
        key = self.connection.filled_hash_key(os.environ)
        self.mask_more({key})
        return key

    def stream_schemas(self) -> Mapping[StreamId, SchemaEvent]:
        """The newest schema message of each stream that the connector sent while it read, in earlier syncs."""
        cached = self.usable_message(self.cache.stream_schemas(*self.cache_key))
        if cached is None:
            return {}
        try:
            return {event.stream: event for event in _SCHEMA_EVENTS.decode(cached)}
        except msgspec.ValidationError as error:  # Another version of this program may have written it.
            self.log.write("WARN", f"the schemas that the connector sent in earlier syncs cannot be used: {error}")
            return {}

    def keep_stream_schemas(self, schemas: Iterable[SchemaEvent]) -> None:
        """Keeps the schemas in the cache, in the place of those that are there."""
        message = msgspec.json.encode([*schemas])
        self.cache.keep_stream_schemas(*self.cache_key, message)


@contextmanager
def recorded_connector(source: Source, folder: Path) -> Iterator[None]:
    """Records every run of the source's connector in `folder`. Secrets that come meanwhile are masked in all files.

    Raises ConfigError if it sends Arrow.
    """
    if source.protocol.sends_batches:
        raise ConfigError(
            f"recording connection {source.connection.name}",
            "its connector sends Arrow batches, in which no secret could be masked",
            remedy="Run it without a recording.",
        )
    launcher = RecordingLauncher(source.connector.launcher, folder, lambda data: source.mask.data(data))
    source.connector = LaunchableConnector(launcher, source.protocol)
    try:
        yield
    finally:
        launcher.mask_again()
