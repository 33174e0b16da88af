"""A running connector: bytes out, an exit report at the end, and nothing left behind."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.protocols.conversation import Invocation


class ExitReport(NamedTuple):
    """How a connector ended. `code` is None when a signal ended it. `stopped` when we asked it to end. `reason` is what
    the one who ran it knows beside, such as that it took too much memory."""

    code: int | None
    signal: int | None
    stopped: bool
    seconds: float
    stderr_tail: tuple[str, ...] = ()
    reason: str = ""

    @property
    def ended_cleanly(self) -> bool:
        return self.code == 0

    @property
    def how(self) -> str:
        """In words that follow "it"."""
        how = f"exited with code {self.code}" if self.signal is None else f"was ended by signal {self.signal}"
        return f"{how}: {self.reason}" if self.reason else how


class RunOptions(NamedTuple):
    """How programs of this machine are run.

    `working_folder` is where the connector starts (None: where we are). Private run folders are made under
    `runs_folder` (None: the system's temporary folder). `on_stderr` gets each line of stderr, from another thread;
    `on_notice` what a person who waits should know.
    """

    working_folder: Path | None = None
    runs_folder: Path | None = None
    stop_grace_seconds: float = 5.0
    on_stderr: Callable[[bytes], None] | None = None
    on_notice: Callable[[str], None] | None = None


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

    def changed_file(self) -> bytes | None:
        """What stands, or stood last, in the file of its invocation that it may change; some can tell that only when it
        has ended. None where that is what was handed over, or there is no such file."""
        ...


class Launcher(Protocol):
    """A way to start a connector."""

    def identity(self) -> str:
        """Names the very version that would run: what its spec and catalog are cached by. Raises ConfigError."""
        ...

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> RunningConnector:
        """Starts it. Raises ConfigError when there is no such program, ConnectorError when it will not start."""
        ...
