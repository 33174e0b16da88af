"""The source of a connection, watched. Its good requests may be recorded."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from dagster_airbyte_proto.certification.watching.secret_watch import SecretWatch
from dagster_airbyte_proto.certification.watching.watched_program import Gathering, WatchedProgram
from dagster_airbyte_proto.sync.connector.source import Source, recorded_connector


class WatchedSource(WatchedProgram[Source]):
    """The source, with its runs and the secrets that it leaks."""

    def __init__(self, source: Source, watch: SecretWatch, options: Gathering) -> None:
        super().__init__(source, watch, options, lambda line: self.source.protocol.event(line))

    @property
    def source(self) -> Source:
        return self.connector

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Every run of the connector is watched meanwhile, and recorded if that is wanted."""
        launcher, folder = self.source.connector.launcher, self.options.folder
        try:
            with recorded_connector(self.source, folder) if folder else nullcontext(), self.watched():
                yield
        finally:
            self.source.connector = self.source.connector._replace(launcher=launcher)
