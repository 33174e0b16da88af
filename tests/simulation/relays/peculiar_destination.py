"""A destination of several streams, with peculiarities: it stands before the scripted one, and changes what goes in and
what comes out."""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.launchers.process import ExitReport
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb
from tests.simulation.pushes.scripted_destination import (
    DestinationContent,
    DestinationLauncher,
    Manner,
    Misbehaviour,
    RunningDestination,
    Sent,
)

_REJECTED_EACH = 3
_WAITS = 8
"""A caller that has waited so often for a word, and says nothing itself, has waited for seconds: then the process ends.
No time passes here."""


class Oddity(StrEnum):
    """A peculiarity of a destination.

    - TWICE: it echoes each state twice.
    - BACKWARDS: it keeps all echoes to its end, and then echoes the last state first.
    - STRANGER: before each echo it sends states that it never got.
    - SILENT: it takes all rows, echoes nothing and ends well.
    - REJECTS: it rejects rows, and counts them.
    - DROPS: it drops its first row, and counts honestly.
    - UNWELL: it ends with an error after it has done all.
    """

    NONE = ""
    TWICE = "twice"
    BACKWARDS = "backwards"
    STRANGER = "stranger"
    SILENT = "silent"
    REJECTS = "rejects"
    DROPS = "drops"
    UNWELL = "unwell"


COUNTING = (Oddity.REJECTS, Oddity.DROPS)
"""Those of destinations that count: of Airbyte's protocol, and by an echo of each state. A count for several states may
be one since any of them, so nobody can tell that it is too small."""


class Behaviour(NamedTuple):
    """How a destination behaves in one step at a stream, as long as the step lasts. `breaks` only its next process,
    or with `is_bad` each."""

    oddity: Oddity = Oddity.NONE
    breaks: Misbehaviour = Misbehaviour()
    is_bad: bool = False


class RelayedContent(DestinationContent):
    """What the destination has of one stream. A generation that is to replace the rows is shown once it is complete."""

    def __init__(self, manner: Manner, arrives: Callable[[Sent], None]) -> None:
        super().__init__(manner, arrives)
        self.behaviour = Behaviour()
        self.visible: list[Sent] = []
        """The rows that its readers see, in the order in which they were written."""
        self.proved: set[Sent] = set()
        """The rows that it has proved, by an echo or by its good end, the rejected ones among them."""
        self.rejected: set[Sent] = set()
        self.dropped: set[Sent] = set()
        self.batches = 0
        """The batches that its processes have begun to take."""
        self.replacing: set[int] = set()
        """The generations that are to take the place of all rows."""

    def take_misbehaviour(self) -> Misbehaviour:
        if self.behaviour.is_bad:
            return self.behaviour.breaks
        return super().take_misbehaviour()

    def write(self, rows: list[Sent], generation: int) -> None:
        super().write(rows, generation)
        self.rejected.difference_update(rows)
        if not self._replaces(generation):
            self.visible += rows

    def show(self, generation: int) -> None:
        if self._replaces(generation):
            super().show(generation)
            self.visible = list(self.shown)

    def held(self) -> dict[int, int]:
        """The version of each key, where the destination upserts."""
        return {row.id: row.version for row in self.visible}

    def _replaces(self, generation: int) -> bool:
        # Singer's rows have a version only where they replace others.
        return generation in self.replacing or (self.manner.protocol == "singer" and generation > 0)


class PeculiarLauncher:
    """Starts the destination's processes, each for one stream."""

    def __init__(self, contents: Mapping[str, RelayedContent]) -> None:
        self._contents = contents

    def identity(self) -> str:
        return "scripted"

    def host_place(self) -> None:
        return

    def launch(
        self, invocation: Invocation, *, environment: Mapping[str, str]
    ) -> "RunningDestination | PeculiarDestination":
        if invocation.verb is not Verb.WRITE:
            any_content = next(iter(self._contents.values()))
            return DestinationLauncher(any_content).launch(invocation, environment=environment)
        running = PeculiarDestination(self._contents, invocation)
        catalog = invocation.files.get("catalog.json")
        if catalog:
            [configured] = json.loads(catalog)["streams"]
            name = configured["stream"]["name"]
            if configured["minimum_generation_id"]:
                self._contents[name].replacing.add(configured["generation_id"])
            running.begin(name)
        return running


class _Taken(NamedTuple):
    """A state that it got, with the rows before it since the process began."""

    state: Any
    rows: int


class PeculiarDestination:
    """A process of the destination. A Singer target learns of its stream by its first line."""

    def __init__(self, contents: Mapping[str, RelayedContent], invocation: Invocation) -> None:
        self._contents, self._invocation = contents, invocation
        self._inner: RunningDestination | None = None
        self._content: RelayedContent
        self._oddity = Oddity.NONE
        self._unfinished = b""
        self._rows: list[Sent] = []
        self._taken: list[_Taken] = []
        self._kept_back: list[bytes] = []
        self._counted = self._waits = 0
        self._is_short = self._is_at_end = self._is_gone = False

    def begin(self, stream: str) -> None:
        self._content = self._contents[stream]
        self._oddity = self._content.behaviour.oddity
        self._content.batches += 1
        self._inner = DestinationLauncher(self._content).launch(self._invocation, environment={})

    # In.

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:
        *lines, unfinished = (self._unfinished + bytes(data)).split(b"\n")
        if lines and self._inner is None:
            self.begin(json.loads(lines[0])["stream"])
        for number, line in enumerate(lines):
            if self._passes(json.loads(line)) and not self._running.write(line + b"\n", timeout_seconds):
                # It hangs. If it did so before the first line, nothing was taken.
                if not number:
                    return 0
                break
        self._unfinished = unfinished
        return len(data)

    def close_input(self) -> None:
        self._running.close_input()
        self._is_at_end = True

    def _passes(self, message: Mapping[str, Any]) -> bool:
        """Notes a line; False for one that the destination gets and does not write."""
        if message["type"] == "STATE":
            self._taken.append(_Taken(message.get("state", message.get("value")), len(self._rows)))
            self._content.batches += 1
        if message["type"] != "RECORD":
            return True
        record = message["record"]
        record = record.get("data", record)
        row = Sent(record["id"], record["version"])
        self._rows.append(row)
        if self._oddity is Oddity.REJECTS and row.version % _REJECTED_EACH == 0:
            self._content.arrives(row)
            self._content.rejected.add(row)
            return False
        if self._oddity is Oddity.DROPS and len(self._rows) == 1:
            self._content.arrives(row)
            self._content.dropped.add(row)
            return False
        return True

    # Out.

    def read(self, timeout_seconds: float) -> bytes | None:
        self._waits += timeout_seconds > 0 and not self._is_at_end
        if self._waits > _WAITS:
            self.stop()
        chunk = self._running.read(timeout_seconds) if self._inner else b"" if self._is_gone else None
        if chunk:
            found = b"".join(each for line in chunk.splitlines() for each in self._said(line))
            return found or None
        if chunk is None or not self._kept_back:
            return chunk
        kept, self._kept_back = self._kept_back[::-1], []
        return b"".join(kept)

    def wait(self, timeout_seconds: float) -> ExitReport | None:
        if self._inner is None:
            return ExitReport(143, None, stopped=True, seconds=0.0) if self._is_gone else None
        report = self._inner.wait(timeout_seconds)
        if report is None or not self._is_at_end or report.code:
            return report
        if self._oddity is Oddity.UNWELL:
            return ExitReport(9, None, stopped=False, seconds=0.0)
        if self._content.manner.echo == "exit":
            self._content.proved.update(self._rows)
        return report

    def _said(self, line: bytes) -> list[bytes]:
        """The lines that the process says in the place of one."""
        message = json.loads(line)
        state: Any = message.get("state", message) if "trace" not in message else None
        covered = [each.rows for each in self._taken if each.state == state]
        if not covered:
            return [line + b"\n"]
        if self._oddity is Oddity.SILENT:
            return []
        if self._oddity in COUNTING:
            state["destinationStats"] = self._counts(covered[0])
        if not self._is_short:
            self._content.proved.update(self._rows[: covered[0]])
        echo = json.dumps(message).encode() + b"\n"
        match self._oddity:
            case Oddity.TWICE:
                return [echo, echo]
            case Oddity.BACKWARDS:
                self._kept_back.append(echo)
                return []
            case Oddity.STRANGER:
                return [*_strangers(message), echo]
        return [echo]

    def _counts(self, rows: int) -> Mapping[str, float]:
        """The counts of the rows since the echo before."""
        new, self._counted = self._rows[self._counted : rows], rows
        rejected = sum(self._oddity is Oddity.REJECTS and row.version % _REJECTED_EACH == 0 for row in new)
        missing = int(self._oddity is Oddity.DROPS and bool(new) and new[0] is self._rows[0])
        self._is_short |= bool(missing)
        return {"recordCount": float(len(new) - rejected - missing), "rejectedRecordCount": float(rejected)}

    # As it is.

    def request_stop(self) -> None:
        self.stop()

    def stop(self) -> None:
        self._is_gone = True
        if self._inner:
            self._inner.stop()

    def rewritten_file(self) -> bytes | None:
        return None

    @property
    def _running(self) -> RunningDestination:
        if self._inner is None:
            raise ConnectorError("talking to the scripted destination", "it has got no line")
        return self._inner


def _strangers(message: Mapping[str, Any]) -> list[bytes]:
    """States in the form of an echo that were never sent: a later row of the same plan, another plan, and one for all
    streams."""
    text = json.dumps(message)
    later = text.replace('"rows": ', '"rows": 9')
    other = text.replace('"plan": "', '"plan": "not ')
    shared = {"type": "STATE", "state": {"type": "GLOBAL", "global": {"shared_state": {"rows": 99}}}}
    return [each.encode() + b"\n" for each in (later, other, json.dumps(shared))]
