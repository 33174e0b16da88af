"""A running component, as everything outside of this room sees it: a connector with an output."""

import threading

from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.launchers.process import ExitReport, RunningConnector
from dagster_airbyte_proto.launchers.wasm.exit_reasons import with_reason
from dagster_airbyte_proto.launchers.wasm.session import ComponentSession, Steps


class RunningComponent:
    """A component in its child program. Reading it is what drives it: see session.py.

    A chunk may be larger than a megabyte: a batch comes as one, without a copy.
    """

    def __init__(self, program: RunningConnector, session: ComponentSession, steps: Steps) -> None:
        self._program, self._session, self._steps = program, session, steps
        self._lock = threading.Lock()
        self._is_stopped = False

    def read(self, timeout_seconds: float) -> bytes | None:
        with self._lock:
            if self._is_stopped:
                return b""
            self._session.wait_seconds = timeout_seconds
            return next(self._steps, b"")

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:  # noqa: ARG002
        raise InternalError("writing to a component", "it takes no input")

    def close_input(self) -> None:
        """It has none."""

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
