"""Records both directions of a real connector, to be replayed without a connector. See run_files.py for the files."""

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from dagster_airbyte_proto.atomic_files import has_no_room
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, StagingError
from dagster_airbyte_proto.launchers.process import ExitReport, HostPlace, Launcher, RunningConnector
from dagster_airbyte_proto.launchers.recordings.run_files import RecordedRun, RunFiles, Turn, verb_of
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation

Mask = Callable[[bytes], bytes]

_LONG_LINE_BYTES = 16 * 1024 * 1024
_LONGEST_SECRET_BYTES = 64 * 1024
_CHUNK_BYTES = 1024 * 1024


class RecordingLauncher:
    """Launches as `inner` does and records each run under `folder`. `mask` must replace every secret in its argument.

    A run is complete on disk after its output was read to the end (or it was stopped) and `wait` returned its report.
    """

    def __init__(self, inner: Launcher, folder: Path, mask: Mask) -> None:
        self._inner = inner
        self._folder = folder
        self._mask = mask
        self._runs: list[RunFiles] = []

    def identity(self) -> str:
        return self._inner.identity()

    def host_place(self) -> HostPlace | None:
        return self._inner.host_place()

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> RunningConnector:
        try:
            recorder = _RunRecorder(self._folder, invocation, self._mask)
        except OSError as error:
            raise _recording_error(self._folder, error) from error
        self._runs.append(recorder.files)
        try:
            return _RecordedConnector(self._inner.launch(invocation, environment=environment), recorder)
        except BaseException:
            recorder.discard()
            raise

    def mask_again(self) -> None:
        """Masks everything that was recorded once more, with the secrets that are known by now.

        Called at the end, and after an error too: a connector may get a new token while it runs, and log it before the
        message that tells us.
        """
        for run in self._runs:
            for path in run.masked():
                try:
                    self._mask_file(path)
                except OSError as error:
                    raise _recording_error(path, error) from error

    def _mask_file(self, path: Path) -> None:
        masked = path.with_name(f"{path.name}.masked")
        with path.open("rb") as file:
            output = MaskedFile(_create(masked), self._mask)
            while chunk := file.read(_CHUNK_BYTES):
                output.write(chunk)
            output.close()
        masked.replace(path)


class MaskedFile:
    """Writes a stream of chunks with its secrets masked, also those that span two chunks.

    Whole lines are masked at once. A line over 16 MiB is masked in pieces, and the last 64 KiB of a piece wait for the
    next one: a secret that was cut there is then whole.
    """

    def __init__(self, file: BinaryIO, mask: Mask) -> None:
        self._file = file
        self._mask = mask
        self._pending = b""

    def write(self, chunk: bytes) -> None:
        lines, newline, rest = chunk.rpartition(b"\n")
        if newline:
            self._file.write(self._mask(self._pending + lines + newline))
            self._pending = rest
        else:
            self._pending += chunk
        if len(self._pending) > _LONG_LINE_BYTES:
            masked = self._mask(self._pending)
            self._file.write(masked[:-_LONGEST_SECRET_BYTES])
            self._pending = masked[-_LONGEST_SECRET_BYTES:]

    def close(self) -> None:
        self._file.write(self._mask(self._pending))
        self._pending = b""
        self._file.close()


class _InputRecorder:
    """Writes what the connector's stdin took, and the order of that and its output."""

    def __init__(self, files: RunFiles, mask: Mask) -> None:
        self._stdin = MaskedFile(_create(files.stdin), mask)
        self._turns = _create(files.turns)
        self._turn = Turn(0, 0)
        self._written_lines = 0
        self.was_closed = False

    def write(self, data: bytes) -> None:
        self._stdin.write(data)
        self._written_lines += data.count(b"\n")

    def note_output(self, chunk: bytes) -> None:
        if self.was_closed:
            return  # The end of the input is the last turn, and has no lines.
        if self._written_lines > self._turn.stdin_lines:
            self._write_turn()
        self._turn = Turn(self._written_lines, self._turn.stdout_lines + chunk.count(b"\n"))

    def close(self) -> None:
        self._stdin.close()
        self._write_turn()
        self._turns.close()

    def _write_turn(self) -> None:
        if self._turn.stdout_lines:
            self._turns.write(msgspec.json.encode(self._turn) + b"\n")


class _RunRecorder:
    """Writes the files of one run."""

    def __init__(self, folder: Path, invocation: Invocation, mask: Mask) -> None:
        self._invocation = invocation
        self._mask = mask
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.files = _next_free(folder, verb_of(invocation))
        self._output = MaskedFile(_create(self.files.stdout), mask)
        self._input = _InputRecorder(self.files, mask) if invocation.takes_input else None
        for name, content in invocation.files.items():
            self.files.given.mkdir(mode=0o700, exist_ok=True)
            _write(self.files.given / name, mask(content))

    def read(self, chunk: bytes) -> None:
        """Records a chunk of output."""
        try:
            self._output.write(chunk)
            if self._input is not None:
                self._input.note_output(chunk)
        except OSError as error:
            raise _recording_error(self.files.stdout, error) from error

    def write(self, data: bytes) -> None:
        """Records input that was taken."""
        if self._input is not None:
            try:
                self._input.write(data)
            except OSError as error:
                raise _recording_error(self.files.stdin, error) from error

    def close_input(self) -> None:
        if self._input is not None:
            self._input.was_closed = True

    def finish(self, report: ExitReport) -> None:
        run = RecordedRun(
            verb=verb_of(self._invocation),
            arguments=tuple(
                {"file": word.name} if isinstance(word, FileArgument) else self._mask(word.encode()).decode()
                for word in self._invocation.arguments
            ),
            code=report.code,
            signal=report.signal,
            stopped=report.stopped,
            seconds=report.seconds,
            stderr_tail=tuple(self._mask(line.encode()).decode(errors="replace") for line in report.stderr_tail),
            input_closed=None if self._input is None else self._input.was_closed,
        )
        try:
            self._close_streams()
            _write(self.files.unfinished, msgspec.json.format(msgspec.json.encode(run)) + b"\n")
            self.files.unfinished.replace(self.files.about)
        except OSError as error:
            raise _recording_error(self.files.stdout, error) from error

    def _close_streams(self) -> None:
        self._output.close()
        if self._input is not None:
            self._input.close()

    def discard(self) -> None:
        with suppress(OSError):
            self._close_streams()
            shutil.rmtree(self.files.given, ignore_errors=True)
            for path in (self.files.stdin, self.files.turns, self.files.stdout):
                path.unlink(missing_ok=True)


def _next_free(folder: Path, verb: str) -> RunFiles:
    number = 1
    while (files := RunFiles(folder, f"{verb}-{number}")).stdout.exists():
        number += 1
    return files


def _create(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _write(path: Path, content: bytes) -> None:
    with _create(path) as file:
        file.write(content)


def _recording_error(path: Path, error: OSError) -> StagingError | ConfigError:
    doing, found = f"recording the connector to {path}", error.strerror or str(error)
    if has_no_room(error):
        return StagingError(doing, found, remedy="Make room there.")
    return ConfigError(doing, found, remedy="Name another folder, in which this user may make files.")


class _RecordedConnector:
    def __init__(self, inner: RunningConnector, recorder: _RunRecorder) -> None:
        self._inner = inner
        self._recorder: _RunRecorder | None = recorder
        self._report: ExitReport | None = None
        self._read_whole = False
        self._takes_no_more = False
        self._lock = threading.Lock()

    def read(self, timeout_seconds: float) -> bytes | None:
        chunk = self._inner.read(timeout_seconds)
        with self._lock:
            if chunk and self._recorder is not None:
                self._recorder.read(chunk)
            self._read_whole = self._read_whole or chunk == b""
            self._finish()
        return chunk

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:
        try:
            taken = self._inner.write(data, timeout_seconds)
        except ConnectorError:
            self._takes_no_more = True
            raise
        with self._lock:
            if taken and self._recorder is not None:
                self._recorder.write(bytes(data[:taken]))
        return taken

    def close_input(self) -> None:
        with self._lock:
            has_ended = self._takes_no_more or self._read_whole or self._report is not None
            if self._recorder is not None and not has_ended:
                self._recorder.close_input()
        self._inner.close_input()

    def request_stop(self) -> None:
        self._inner.request_stop()

    def stop(self) -> None:
        self._inner.stop()
        with self._lock:
            self._read_whole = True
            self._finish()

    def wait(self, timeout_seconds: float) -> ExitReport | None:
        report = self._inner.wait(timeout_seconds)
        with self._lock:
            self._report = report
            self._finish()
        return report

    def rewritten_file(self) -> bytes | None:
        return self._inner.rewritten_file()

    def _finish(self) -> None:
        if self._recorder is not None and self._read_whole and self._report is not None:
            self._recorder.finish(self._report)
            self._recorder = None
