"""The interface of launchers: a running connector takes and gives bytes, then reports its exit, and leaves nothing."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.launchers.permissions import Permissions
from dagster_airbyte_proto.masking import UnmaskedText
from dagster_airbyte_proto.protocols.conversation import Invocation
from dagster_airbyte_proto.stack_traces import last_words


class ExitReport(NamedTuple):
    """The report of how a connector ended.

    `code` is None if a signal ended it. `stopped` is true if we asked it to end. `reason` is what the launcher knows in
    addition, for example that it took too much memory. `is_over_limit`: we ended it for a limit of its connection.
    """

    code: int | None
    signal: int | None
    stopped: bool
    seconds: float
    stderr_tail: tuple[str, ...] = ()
    reason: str = ""
    is_over_limit: bool = False

    @property
    def ended_cleanly(self) -> bool:
        return self.code == 0

    @property
    def how_it_ended(self) -> str:
        """A phrase that follows "it", for messages."""
        how = f"exited with code {self.code}" if self.signal is None else f"was ended by signal {self.signal}"
        return f"{how}: {self.reason}" if self.reason else how

    @property
    def how_it_ended_and_why(self) -> UnmaskedText:
        """The same, with the last words on stderr: the error of a stack trace, without the trace."""
        words = last_words(self.stderr_tail)
        gap = "\n" if "\n" in words else " "
        return UnmaskedText(f"{self.how_it_ended}:{gap}{words}" if words else self.how_it_ended)


class HostPlace(NamedTuple):
    """The place where a connector can reach us: the `address` to listen at, and the `name` that it has there for us."""

    address: str
    name: str


OUR_MACHINE = HostPlace("127.0.0.1", "127.0.0.1")


class LaunchOptions(NamedTuple):
    """Options of a launch that every launcher takes.

    - `permissions`: what the connector may have of this machine.
    - `connection`: the name of the connection that starts it, if one does.
    - `working_folder`: where the connector starts (None: our own).
    - `runs_folder`: where private run folders are made (None: the system's temporary folder).
    - `stop_grace_seconds`: how long a connector may take to end after SIGTERM.
    - `waits_for_replies`: it waits for an answer to what it writes, so each piece of its output is read at once.
    - `on_stderr`: receives each line of stderr, from another thread.
    - `read_file`: gives the content of a file that the connector is made of. Raises OSError.
    - `on_notice`: receives messages for a person who waits, for example that an image is being pulled.
    """

    permissions: Permissions = Permissions()
    connection: str = ""
    working_folder: Path | None = None
    runs_folder: Path | None = None
    stop_grace_seconds: float = 5.0
    waits_for_replies: bool = False
    on_stderr: Callable[[bytes], None] | None = None
    on_notice: Callable[[str], None] | None = None
    read_file: Callable[[Path], bytes] = Path.read_bytes

    @property
    def host_place(self) -> HostPlace | None:
        """Where a program of this machine can reach us; None for one in a sandbox without a network."""
        permissions = self.permissions
        return None if permissions.sandbox and not permissions.network else OUR_MACHINE


class RunningConnector(Protocol):
    """A connector that runs. Only one thread may call `read`, and one `write`: the same one, in turn, if it likes.

    Any thread may call `stop`.
    """

    def read(self, timeout_seconds: float) -> bytes | None:
        """Returns up to about 1 MiB of stdout; b"" at its end; None if nothing came in time."""
        ...

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:
        """Returns how many bytes the connector's stdin took, from 1 to all; 0 if it was full for that long.

        Only if the invocation has `takes_input`. Raises ConnectorError if the connector has closed its stdin or ended:
        `wait` then knows more. A replay raises ConfigError at the first line that was not recorded so.
        """
        ...

    def close_input(self) -> None:
        """Ends the connector's stdin. Safe to call twice, and after the connector has ended.

        A replay raises ConfigError if more was written in the recorded run.
        """
        ...

    def request_stop(self) -> None:
        """Asks the connector to end (SIGTERM), and returns. What it still writes can be read. Safe to call twice."""
        ...

    def stop(self) -> None:
        """Asks the connector to end, then kills it. Returns when none of its processes runs. Safe to call twice."""
        ...

    def wait(self, timeout_seconds: float) -> ExitReport | None:
        """Returns the report after the connector has ended and its folder is gone; None if it has not ended in time."""
        ...

    def rewritten_file(self) -> bytes | None:
        """The last known content of the invocation's rewritable file; None if it is unchanged or there is no such file.

        A container's file is known only after the container has ended.
        """
        ...


class Launcher(Protocol):
    """A way to start a connector."""

    def host_place(self) -> HostPlace | None:
        """Returns where its connectors can reach us; None if they cannot."""
        ...

    def identity(self) -> str:
        """Names the exact version that would run: the cache key of its spec and catalog. Raises ConfigError."""
        ...

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> RunningConnector:
        """Starts the connector. Raises ConfigError if there is no such program, ConnectorError if it does not start."""
        ...
