"""Launches as another launcher does, and keeps of each run what rules want to know: its output, its time and memory."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from dagster_airbyte_proto.certification.watching.memory_meter import MemoryMeter, PeakMemory
from dagster_airbyte_proto.launchers.process import ExitReport, HostPlace, Launcher, RunningConnector
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb

# A connector that answers a short request writes a few kilobytes, or a catalog of some megabytes.
_MAX_KEPT_BYTES = 64 << 20
_EXIT_SECONDS = 60.0


class ConnectorRun(NamedTuple):
    """One run of the connector. `output` is kept until it was looked through, and of a short request that failed.

    `report` is None if it did not end. `seconds` are those from its start to its end, `silent_seconds` those until its
    first output. `peak_memory_bytes` is None where it could not be measured.
    """

    verb: Verb
    output: bytes
    size_bytes: int
    seconds: float
    silent_seconds: float
    report: ExitReport | None
    peak_memory_bytes: int | None

    @property
    def without_output(self) -> "ConnectorRun":
        """The run without what the connector wrote, which may hold secrets."""
        report = self.report._replace(stderr_tail=()) if self.report else None
        return self._replace(output=b"", report=report)

    @property
    def without_stdout(self) -> "ConnectorRun":
        """The run without its stdout, which may be long."""
        return self._replace(output=b"")

    @property
    def was_stopped(self) -> bool:
        """True if it did not end by itself."""
        return self.report is None or self.report.stopped

    @property
    def how_it_ended(self) -> str:
        return "did not end" if self.report is None else self.report.how_it_ended


class WatchedLauncher:
    """Launches as `inner` does. `taken_runs` has each run once, the newest last: their output is kept no longer."""

    def __init__(self, inner: Launcher, meter: MemoryMeter) -> None:
        self.inner = inner
        self._meter = meter
        self._connectors: list[WatchedConnector] = []

    def taken_runs(self) -> tuple[ConnectorRun, ...]:
        """Returns the runs that were started since the last call. They have ended."""
        connectors, self._connectors = self._connectors, []
        return tuple(connector.run for connector in connectors)

    def identity(self) -> str:
        return self.inner.identity()

    def host_place(self) -> HostPlace | None:
        return self.inner.host_place()

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> "WatchedConnector":
        memory = PeakMemory(self._meter)
        try:
            connector = self.inner.launch(invocation, environment=environment)
        except BaseException:
            memory.stop()
            raise
        watched = WatchedConnector(connector, invocation.verb, memory)
        self._connectors.append(watched)
        return watched


class WatchedConnector:
    """A running connector, watched."""

    def __init__(self, inner: RunningConnector, verb: Verb, memory: PeakMemory) -> None:
        self._inner, self._verb, self._memory = inner, verb, memory
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self._started_at = time.monotonic()
        self._first_output_at: float | None = None
        self._ended_at: float | None = None
        self._report: ExitReport | None = None

    @property
    def peak_memory_bytes(self) -> int | None:
        return self._memory.peak_bytes

    @property
    def run(self) -> ConnectorRun:
        """The run as far as it has come. This joins its output."""
        now = time.monotonic()
        return ConnectorRun(
            self._verb,
            b"".join(self._pieces),
            self._size_bytes,
            (self._ended_at or now) - self._started_at,
            (self._first_output_at or self._ended_at or now) - self._started_at,
            self._report,
            self._memory.peak_bytes,
        )

    def read(self, timeout_seconds: float) -> bytes | None:
        chunk = self._inner.read(timeout_seconds)
        if chunk:
            self._first_output_at = self._first_output_at or time.monotonic()
            self._size_bytes += len(chunk)
            if self._verb is not Verb.READ and self._size_bytes <= _MAX_KEPT_BYTES:
                self._pieces.append(chunk)
        return chunk

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:
        return self._inner.write(data, timeout_seconds)

    def close_input(self) -> None:
        self._inner.close_input()

    def request_stop(self) -> None:
        self._inner.request_stop()

    def stop(self) -> None:
        self._inner.stop()
        self.wait(_EXIT_SECONDS)
        self._memory.stop()

    def wait(self, timeout_seconds: float) -> ExitReport | None:
        report = self._inner.wait(timeout_seconds)
        if report is not None and self._report is None:
            self._report, self._ended_at = report, time.monotonic()
        return report

    def rewritten_file(self) -> bytes | None:
        return self._inner.rewritten_file()
