"""A connection's connector whose every run is watched: what it answers, what it leaks, what it costs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple, TypeVar

from dagster_airbyte_proto.certification.evidence import Reply, Step
from dagster_airbyte_proto.certification.watching.memory_meter import MemoryMeter, container_meter, process_meter
from dagster_airbyte_proto.certification.watching.secret_watch import SecretWatch
from dagster_airbyte_proto.certification.watching.watched_launcher import WatchedLauncher
from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.masking import named_secrets
from dagster_airbyte_proto.protocols.events import ConfigEvent
from dagster_airbyte_proto.sync.connector.source import Source, recorded_connector
from dagster_airbyte_proto.sync.run_log import ignore_line

Answer = TypeVar("Answer")


class Bounds(NamedTuple):
    """The bounds of the runs: each short request, and each read, ends within so many seconds."""

    query_seconds: float = 120.0
    read_seconds: float = 600.0


class Gathering(NamedTuple):
    """Options of a gathering. `on_step` gets the name of each step before it begins; `folder` is for a recording."""

    bounds: Bounds = Bounds()
    folder: Path | None = None
    on_step: Callable[[str], None] = lambda _step: None
    on_line: Callable[[str, str], None] = ignore_line


class WatchedSource:
    """The source, with its runs and the secrets that it leaks."""

    def __init__(self, source: Source, watch: SecretWatch, options: Gathering) -> None:
        self.source, self.watch, self.options = source, watch, options
        self._launcher = WatchedLauncher(source.connector.launcher, _meter(source))
        self.steps: list[Step] = []

    @property
    def is_replay(self) -> bool:
        return self.source.connection.connector.launch.kind == "replay"

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Every run of the connector is watched meanwhile, and recorded if that is wanted."""
        launcher, folder = self.source.connector.launcher, self.options.folder
        try:
            with recorded_connector(self.source, folder) if folder else nullcontext(), self.watched():
                yield
        finally:
            self.source.connector = self.source.connector._replace(launcher=launcher)

    @contextmanager
    def watched(self) -> Iterator[None]:
        before = self.source.connector.launcher
        self._launcher.inner = before
        self.source.connector = self.source.connector._replace(launcher=self._launcher)
        try:
            yield
        finally:
            self.source.connector = self.source.connector._replace(launcher=before)

    def reply(self, step: str, ask: Callable[[], Answer]) -> Reply[Answer]:
        """Asks the connector, and returns its answer or its error."""
        self.options.on_step(step)
        self.watch.run = step
        config = self.source.config  # A connector may have rewritten it, with new secrets.
        self.watch.mask = self.watch.mask.extended(named_secrets(config.current) | config.secrets)
        before = len(self._launcher.runs)
        answer, failure = None, None
        try:
            answer = ask()
        except ConnectorError as error:
            failure = error
        runs = tuple(self._launcher.runs[before:])
        self.steps += [Step(step, run.without_output) for run in runs]
        for run in runs:
            self.watch.look_through(run.output, self._is_config)
        return Reply(answer, failure, runs)

    def _is_config(self, line: bytes) -> bool:
        return isinstance(self.source.protocol.event(line), ConfigEvent)


def _meter(source: Source) -> MemoryMeter:
    connection = source.connection
    if connection.connector.launch.kind == "docker":
        return container_meter(connection.name, source.log.run_id)
    return process_meter
