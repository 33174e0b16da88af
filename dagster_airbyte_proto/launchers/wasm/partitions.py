"""The partitions of a full refresh, read side by side: several components that are one connector to whoever reads it.

- Each component is a process. It runs the same streams, each with a partition of its own. A stream that is not read in
  partitions runs in the first.
- A stream has started once a component starts it, and finished once all have. An error of one is an error of the
  stream, so nothing of it lands.
- A checkpoint of a partition is no state: it is in the log. Components share what they keep, so the last one to end
  has all of it.
- There is one thread, which looks at each component in turn: the others work on meanwhile.
"""

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence

import msgspec

from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.launchers.process import ExitReport
from dagster_airbyte_proto.launchers.wasm.running_component import RunningComponent
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb
from dagster_airbyte_proto.protocols.rapidbyte import messages
from dagster_airbyte_proto.protocols.rapidbyte.source import RUNS, RUNS_FILE
from dagster_airbyte_proto.protocols.raw_json import exact_json

_LOOK_SECONDS = 0.005
_BATCH_HEAD = b'{"type":"batch",'


class _Line(msgspec.Struct, frozen=True):
    type: str
    stream: str | None = None
    checkpoint: str = ""
    kept: Mapping[str, Mapping[str, str]] = {}


_LINE = msgspec.json.Decoder(_Line)


def partition_invocations(invocation: Invocation) -> Sequence[Invocation]:
    """Returns the invocation of each component; that itself where nothing is read in partitions."""
    if invocation.verb is not Verb.READ:
        return [invocation]
    runs = RUNS.decode(invocation.files[RUNS_FILE])
    found = []
    for index in range(max((run.partitions for run in runs), default=1)):
        own = [
            msgspec.structs.replace(run, context={**run.context, **_partition(index, run.partitions)})
            for run in runs
            if index < run.partitions
        ]
        found.append(invocation._replace(files={**invocation.files, RUNS_FILE: exact_json(own)}))
    return found


def _partition(index: int, count: int) -> Mapping[str, int]:
    if count == 1:
        return {}
    return {"partition_count": count, "partition_index": index, "effective_parallelism": count}


class RunningPartitions:
    """The running components of one read. `invocation` is that of all of them."""

    def __init__(self, components: Sequence[RunningComponent], invocation: Invocation) -> None:
        self._components = components
        self._open = deque(components)
        self._heads_batch: RunningComponent | None = None
        runs = RUNS.decode(invocation.files[RUNS_FILE])
        self._partitions = {run.stream: run.partitions for run in runs}
        self._started: set[str] = set()
        self._finished: Counter[str] = Counter()
        self._kept: dict[str, Mapping[str, str]] = {}
        self._reports: dict[int, ExitReport] = {}

    def read(self, timeout_seconds: float) -> bytes | None:
        if self._heads_batch is not None:
            component, self._heads_batch = self._heads_batch, None
            return component.read(timeout_seconds)  # The batch is there: its head and it come out together.
        until = time.monotonic() + timeout_seconds
        seconds = 0.0
        while self._open:
            for component in list(self._open):
                chunk = component.read(seconds)
                if chunk == b"":
                    self._open.remove(component)
                elif chunk is not None and (line := self._passed_on(component, chunk)) is not None:
                    self._open.rotate(-1)
                    return line
            if time.monotonic() >= until:
                return None
            seconds = _LOOK_SECONDS
        return self._last_line()

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:  # noqa: ARG002
        raise InternalError("writing to a component", "it takes no input")

    def close_input(self) -> None: ...

    def request_stop(self) -> None:
        for each in self._components:
            each.request_stop()

    def stop(self) -> None:
        for each in self._components:
            each.stop()

    def wait(self, timeout_seconds: float) -> ExitReport | None:
        until = time.monotonic() + timeout_seconds
        for number, each in enumerate(self._components):
            if number not in self._reports:
                report = each.wait(max(0.0, until - time.monotonic()))
                if report is None:
                    return None
                self._reports[number] = report
        reports = list(self._reports.values())
        worst = next((each for each in reports if not each.ended_cleanly), reports[0])
        return worst._replace(seconds=max(each.seconds for each in reports))

    def rewritten_file(self) -> bytes | None:
        return None

    def _passed_on(self, component: RunningComponent, line: bytes) -> bytes | None:
        if line.startswith(_BATCH_HEAD):
            self._heads_batch = component
            return line
        found = _LINE.decode(line)
        if found.type == "kept":
            self._kept |= found.kept
            return None
        stream = found.stream
        if stream is None or self._partitions.get(stream, 1) == 1:
            return line
        if found.type == "started":
            is_first = stream not in self._started
            self._started.add(stream)
            return line if is_first else None
        if found.type == "finished":
            self._finished[stream] += 1
            return line if self._finished[stream] == self._partitions[stream] else None
        if found.type == "checkpoint":
            return messages.line("log", level=3, message=f"checkpoint of a partition: {found.checkpoint}")
        return line

    def _last_line(self) -> bytes:
        if not any(self._kept.values()):
            return b""
        kept, self._kept = self._kept, {}
        return messages.line("kept", kept=kept)
