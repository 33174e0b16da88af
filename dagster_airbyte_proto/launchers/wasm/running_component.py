"""A running component, as everything outside of this room sees it: a connector with an output."""

import threading
from collections import deque

from dagster_airbyte_proto.errors import ConnectorError, InternalError
from dagster_airbyte_proto.launchers.process import ExitReport, RunningConnector
from dagster_airbyte_proto.launchers.wasm.exit_reasons import with_reason
from dagster_airbyte_proto.launchers.wasm.host.inbox import Inbox
from dagster_airbyte_proto.launchers.wasm.session import ComponentSession, Steps


class RunningComponent:
    """A component in its child program. Reading it is what drives it, and writing when its `inbox` is full: see
    session.py. A source has no inbox.

    A chunk may be larger than a megabyte: a batch comes as one, without a copy.
    """

    def __init__(
        self, program: RunningConnector, session: ComponentSession, steps: Steps, inbox: Inbox | None = None
    ) -> None:
        self._program, self._session, self._steps = program, session, steps
        self._inbox = inbox
        self._output: deque[bytes] = deque()  # It came while we wrote.
        self._lock = threading.Lock()
        self._is_stopped = self._has_ended = False

    def read(self, timeout_seconds: float) -> bytes | None:
        with self._lock:
            if self._is_stopped:
                return b""
            return self._output.popleft() if self._output else self._step(timeout_seconds)

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:
        """Raises ConnectorError once it takes no more."""
        with self._lock:
            if self._inbox is None:
                raise InternalError("writing to a component", "it takes no input")
            if not self._inbox.has_room and not self._is_stopped:
                self._session.is_driven_by_writer = True
                try:
                    chunk = self._step(timeout_seconds)
                finally:
                    self._session.is_driven_by_writer = False
                if chunk:
                    self._output.append(chunk)
            if self._is_stopped or self._has_ended:
                raise ConnectorError("writing to the component", "it takes no more rows")
            return self._inbox.feed(data) if self._inbox.has_room else 0

    def _step(self, timeout_seconds: float) -> bytes | None:
        self._session.begin_step(timeout_seconds)
        chunk = next(self._steps, b"")
        self._has_ended = self._has_ended or chunk == b""
        return chunk

    def close_input(self) -> None:
        if self._inbox is not None:
            self._inbox.is_closed = True

    def request_stop(self) -> None:
        self._is_stopped = True
        self._program.request_stop()

    def stop(self) -> None:
        self._is_stopped = True
        self._program.stop()
        with self._lock:
            self._steps.close()

    def wait(self, timeout_seconds: float) -> ExitReport | None:
        report = self._program.wait(timeout_seconds)
        if report is not None and report.ended_cleanly and self._session.has_failed:
            return report._replace(code=1, reason="the component reported an error")
        return None if report is None else with_reason(report)

    def rewritten_file(self) -> bytes | None:
        return None


class PreparedAnswer:
    """The answer to a request for which no component needs to run."""

    def __init__(self, output: bytes) -> None:
        self._output = output

    def read(self, timeout_seconds: float) -> bytes | None:  # noqa: ARG002
        output, self._output = self._output, b""
        return output

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:  # noqa: ARG002
        raise InternalError("writing to a component", "it takes no input")

    def close_input(self) -> None: ...

    def request_stop(self) -> None: ...

    def stop(self) -> None: ...

    def wait(self, timeout_seconds: float) -> ExitReport | None:  # noqa: ARG002
        return ExitReport(code=0, signal=None, stopped=False, seconds=0.0)

    def rewritten_file(self) -> bytes | None:
        return None
