"""A destination in this process: it takes rows as any connector does, and keeps what it has written, in its order."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.launchers.process import ExitReport
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb

REMOVED = -1
"""In the place of the version of a row that is removed."""
_UNFIT = 7
_MODES = ("append", "append_dedup", "update", "overwrite")


class Sent(NamedTuple):
    """A row to send: its key, and which version of it."""

    id: int
    version: int

    @property
    def is_sendable(self) -> bool:
        """False for the versions that are rejected before they are sent."""
        return self.version == REMOVED or self.version % _UNFIT != 0


class Manner(NamedTuple):
    """The manner of a destination.

    `echo` says how it proves rows: `each` state at once, the last one at its `end`, `bare` states, or by its `exit`
    alone. One that `holds_back` writes rows only when it proves them; else it writes each as it comes. When its caller
    dies it writes what it holds (`outlives`), or is killed with it.
    """

    protocol: str
    echo: str
    holds_back: bool
    outlives: bool


class Misbehaviour(NamedTuple):
    """One process dies or hangs after so many rows, or ends with a transient error. The next one does not."""

    dies_after: int = 0
    hangs_after: int = 0
    is_busy: bool = False


class DestinationContent:
    """The rows that the destination has written. `arrives` is called before each row that a process takes."""

    def __init__(self, manner: Manner, arrives: Callable[[Sent], None]) -> None:
        self.manner, self.arrives = manner, arrives
        self.written: list[Sent] = []
        self.shown: list[Sent] = []
        self.misbehaves = Misbehaviour()
        self._generations: dict[int, list[Sent]] = {}
        self._running: list[RunningDestination] = []

    def held(self) -> dict[int, int]:
        """The version of each key, where the destination upserts and heeds removals."""
        held: dict[int, int] = {}
        for row in self.written:
            if row.version == REMOVED:
                held.pop(row.id, None)
            else:
                held[row.id] = row.version
        return held

    def write(self, rows: list[Sent], generation: int) -> None:
        self.written += rows
        self._generations.setdefault(generation, []).extend(rows)

    def show(self, generation: int) -> None:
        """Shows the rows of a generation, which is complete, in the place of all others."""
        self.shown = list(self._generations.get(generation, ()))

    def begin(self, process: "RunningDestination") -> None:
        self._running.append(process)

    def caller_has_died(self) -> None:
        """Ends the processes of a run that has died."""
        for process in self._running:
            process.lose_caller()
        self._running.clear()

    def take_misbehaviour(self) -> Misbehaviour:
        """That of the next process: it misbehaves once."""
        found, self.misbehaves = self.misbehaves, Misbehaviour()
        return found


class DestinationLauncher:
    """Starts the destination's processes."""

    def __init__(self, content: DestinationContent) -> None:
        self._content = content

    def identity(self) -> str:
        return "scripted"

    def host_place(self) -> None:
        return

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> "RunningDestination":  # noqa: ARG002 - no program runs that would read it
        process = RunningDestination(self._content, _generation(invocation))
        if invocation.verb is Verb.SPEC:
            process.say(
                {"type": "SPEC", "spec": {"connectionSpecification": {}, "supported_destination_sync_modes": _MODES}}
                if self._content.manner.protocol == "airbyte"
                else {"name": "scripted", "settings": {"type": "object", "properties": {}}, "capabilities": []}
            )
            process.close_input()
        elif invocation.verb is Verb.WRITE:
            self._content.begin(process)
        else:
            raise ConnectorError("running the scripted destination", f"it has no {invocation.verb}")
        return process


class RunningDestination:
    """A process of the destination. It takes each line as it is written."""

    def __init__(self, content: DestinationContent, generation: int) -> None:
        self._content, self._generation = content, generation
        self._manner, self._misbehaves = (
            content.manner,
            content.take_misbehaviour() if generation >= 0 else Misbehaviour(),
        )
        self._unfinished = self._output = b""
        self._waiting: list[Sent] = []
        self._last_state: Any = None
        self._taken = 0
        self._code: int | None = None
        self._hangs = False

    def say(self, message: Any) -> None:
        self._output += json.dumps(message).encode() + b"\n"

    def read(self, timeout_seconds: float) -> bytes | None:  # noqa: ARG002 - it never waits
        output, self._output = self._output, b""
        return output or (None if self._code is None else b"")

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:  # noqa: ARG002 - it never waits
        if self._hangs:
            return 0
        if self._code is not None:
            raise ConnectorError("writing to the scripted destination", "it has ended")
        *lines, self._unfinished = (self._unfinished + bytes(data)).split(b"\n")
        for line in lines:
            if self._code is None and not self._hangs:
                self._take(json.loads(line))
        return len(data)

    def close_input(self) -> None:
        if self._code is not None or self._hangs:
            return
        self._write()
        if self._manner.echo == "end" and self._last_state is not None:
            self._echo(self._last_state)
        if self._misbehaves.is_busy:
            error = {"message": "it is busy", "failure_type": "transient_error"}
            self.say({"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1.0, "error": error}})
        self._code = int(self._misbehaves.is_busy)

    def request_stop(self) -> None:
        self.stop()

    def stop(self) -> None:
        if self._code is None:
            self._code = 143

    def wait(self, timeout_seconds: float) -> ExitReport | None:  # noqa: ARG002 - it never waits
        if self._code is None:
            return None
        return ExitReport(self._code, None, stopped=self._code == 143, seconds=0.0)

    def rewritten_file(self) -> bytes | None:
        return None

    def lose_caller(self) -> None:
        """The caller is dead, and the input ends."""
        if self._code is None and self._manner.outlives and not self._hangs:
            self._write()
        self.stop()

    def _take(self, message: Mapping[str, Any]) -> None:
        kind = message["type"]
        if kind == "RECORD":
            self._take_row(message)
        elif kind == "STATE":
            self._last_state = message["state"] if self._is_airbyte else message["value"]
            if self._manner.echo in ("each", "bare"):
                self._write()
                self._echo(self._last_state)
        elif kind in ("TRACE", "ACTIVATE_VERSION"):
            self._write()
            self._content.show(self._generation if self._is_airbyte else message["version"])

    def _take_row(self, message: Mapping[str, Any]) -> None:
        record = message["record"]["data"] if self._is_airbyte else message["record"]
        is_removed = bool(record.get("_ab_cdc_deleted_at") or record.get("_sdc_deleted_at"))
        row = Sent(record["id"], REMOVED if is_removed else record["version"])
        if not self._is_airbyte:
            self._generation = message.get("version", 0)
        self._content.arrives(row)
        self._waiting.append(row)
        self._taken += 1
        if not self._manner.holds_back:
            self._write()
        if self._taken == self._misbehaves.dies_after:
            self._code = 7
        self._hangs = self._taken == self._misbehaves.hangs_after

    def _write(self) -> None:
        self._content.write(self._waiting, self._generation)
        self._waiting = []

    def _echo(self, state: Any) -> None:
        is_bare = not self._is_airbyte or self._manner.echo == "bare"
        self.say(state if is_bare else {"type": "STATE", "state": state})

    @property
    def _is_airbyte(self) -> bool:
        return self._manner.protocol == "airbyte"


def _generation(invocation: Invocation) -> int:
    """The generation that a process writes, as its catalog has it; below 0 where it writes none."""
    if invocation.verb is not Verb.WRITE:
        return -1
    catalog = invocation.files.get("catalog.json")
    return json.loads(catalog)["streams"][0]["generation_id"] if catalog else 0
