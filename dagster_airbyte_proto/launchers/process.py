"""A running connector: bytes out, an exit report at the end, and nothing left behind."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.protocols.session import Invocation


class ExitReport(NamedTuple):
    """How a connector ended. `code` is None when a signal ended it. `stopped` when we asked it to end."""

    code: int | None
    signal: int | None
    stopped: bool
    seconds: float
    stderr_tail: tuple[str, ...] = ()

    @property
    def ended_cleanly(self) -> bool:
        return self.code == 0


class RunningConnector(Protocol):
    """One connector at work. `read` belongs to one thread; `stop` may be called from any."""

    def read(self, timeout_seconds: float) -> bytes | None:
        """Up to about 1 MiB of stdout; b"" at its end; None when nothing came in time."""
        ...

    def stop(self) -> None:
        """Asks it to end, then makes it. Safe to call twice; returns once nothing of it runs any more."""
        ...

    def wait(self, timeout_seconds: float) -> ExitReport | None:
        """Its report once it has ended and its folder is gone; None when it has not in time."""
        ...


class Launcher(Protocol):
    """A way to start a connector."""

    def identity(self) -> str:
        """Names the very version that would run: what its spec and catalog are cached by. Raises ConfigError."""
        ...

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> RunningConnector:
        """Starts it. Raises ConfigError when there is no such program, ConnectorError when it will not start."""
        ...
