"""A connection's connector whose every run is watched: what it answers, what it leaks, what it costs."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from dagster_airbyte_proto.certification.evidence import Reply, Step
from dagster_airbyte_proto.certification.watching.memory_meter import MemoryMeter, container_meter, process_meter
from dagster_airbyte_proto.certification.watching.secret_watch import SecretWatch
from dagster_airbyte_proto.certification.watching.watched_launcher import ConnectorRun, WatchedLauncher
from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.masking import named_secrets
from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.protocols.events import ConfigEvent
from dagster_airbyte_proto.sync.connector.configured_connector import ConfiguredConnector
from dagster_airbyte_proto.sync.run_log import ignore_line

Answer = TypeVar("Answer")
AnyConnector = TypeVar("AnyConnector", bound=ConfiguredConnector[Any])


class Bounds(NamedTuple):
    """The bounds of the runs: each short request, each read, and each write, ends within so many seconds."""

    query_seconds: float = 120.0
    read_seconds: float = 600.0
    write_seconds: float = 120.0


class Scratch(NamedTuple):
    """The object of its own that a certification of a destination writes to, and the rows of its longest write.

    With `may_overwrite` the whole place is one for trials: certify may write over what is there.
    """

    name: str = "airbyte_proto_certify"
    rows: int = 20_000
    may_overwrite: bool = False

    @property
    def objects(self) -> tuple[str, ...]:
        """The names of all objects that it writes to: other rows have other fields."""
        return self.name, f"{self.name}_types", f"{self.name}_misfit"


class Gathering(NamedTuple):
    """Options of a gathering. `on_step` gets the name of each step before it begins; `folder` is for a recording."""

    bounds: Bounds = Bounds()
    folder: Path | None = None
    scratch: Scratch = Scratch()
    on_step: Callable[[str], None] = lambda _step: None
    on_line: Callable[[str, str], None] = ignore_line


class WatchedProgram(Generic[AnyConnector]):
    """The connector, with its runs and the secrets that it leaks. `read` says what a line of its output means."""

    def __init__(
        self, connector: AnyConnector, watch: SecretWatch, options: Gathering, read: Callable[[bytes], object]
    ) -> None:
        self.connector, self.watch, self.options, self._read = connector, watch, options, read
        self._launcher = WatchedLauncher(connector.connector.launcher, _meter(connector))
        self.steps: list[Step] = []
        self._secrets: frozenset[str] = frozenset()

    @property
    def is_replay(self) -> bool:
        return self.connector.connection.connector.launch.kind == "replay"

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Every run of the connector is watched meanwhile."""
        before = self.connector.connector.launcher
        self._launcher.inner = before
        self.connector.connector = self.connector.connector._replace(launcher=self._launcher)
        try:
            yield
        finally:
            self.connector.connector = self.connector.connector._replace(launcher=before)

    def reply(self, step: str, ask: Callable[[], Answer]) -> Reply[Answer]:
        """Asks the connector, and returns its answer or its error."""
        self.options.on_step(step)
        self.watch.begin(step)
        self.mask_more()
        self._launcher.taken_runs()  # Those between two requests are none of this one.
        answer, failure = None, None
        try:
            answer = ask()
        except ConnectorError as error:
            failure = error
        self.mask_more()
        runs = self._launcher.taken_runs()
        self.steps += [Step(step, run.without_output) for run in runs]
        for run in runs:
            self.watch.look_through(run.output, self._is_config)
        # Rules look at the output of a short request that was not answered, and at no other.
        return Reply(
            answer, failure, tuple(each if _is_unanswered(each, answer) else each.without_stdout for each in runs)
        )

    def mask_more(self, secrets: Iterable[str] = ()) -> None:
        """Has the watch know these secrets, and those of the config as it is: a connector may have rewritten it."""
        self._secrets |= named_secrets(self.connector.config.current) | frozenset(secrets)
        self.watch.extend(self.connector.mask.extended(self._secrets))

    def take_config(self, event: ConfigEvent) -> None:
        """Takes a config that the connector rewrote in the middle of a run."""
        self.connector.try_rewritten_config(event)
        self.mask_more()

    def _is_config(self, line: bytes) -> bool:
        return isinstance(self._read(line), ConfigEvent)


def _is_unanswered(run: ConnectorRun, answer: object) -> bool:
    """True for a short request without an answer, or with an empty one."""
    return run.verb is not Verb.WRITE and not answer


def _meter(connector: ConfiguredConnector[Any]) -> MemoryMeter:
    connection = connector.connection
    if connection.connector.launch.kind == "docker":
        return container_meter(connection.name, connector.log.run_id)
    return process_meter
