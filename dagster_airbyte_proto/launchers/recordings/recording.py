"""Records the output of a real connector, to be replayed without a connector.

A recording is a folder that a person can read. For the first `read`:

    read-1.stdout.jsonl   the bytes of stdout, secrets masked
    read-1.files/         the files it was given (config, catalog, state), secrets masked
    read-1.json           its arguments, how it ended, the last lines of stderr; written last: if it exists, the rest
                          is complete
"""

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.launchers.process import ExitReport, Launcher, RunningConnector, refuse_input
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation

Mask = Callable[[bytes], bytes]

_LONG_LINE_BYTES = 16 * 1024 * 1024
_LONGEST_SECRET_BYTES = 64 * 1024
_CHUNK_BYTES = 1024 * 1024


class RecordedRun(msgspec.Struct, frozen=True):
    """The content of `VERB-N.json`. A file argument is written as `{"file": name}`."""

    verb: str
    arguments: tuple[str | dict[str, str], ...]
    code: int | None
    signal: int | None
    stopped: bool
    seconds: float
    stderr_tail: tuple[str, ...]


def verb_of(invocation: Invocation) -> str:
    """The request of an invocation: its first word (`read`), or all its options (`config-discover`) if there is none.

    Recordings have it in their file names, where the two requests for a spec must differ.
    """
    words = [argument for argument in invocation.arguments if isinstance(argument, str)]
    options = [word.lstrip("-") for word in words if word.startswith("-")]
    verb = words[0] if words and not words[0].startswith("-") else "-".join(options) or "run"
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in verb)


class RecordingLauncher:
    """Launches as `inner` does and records each run under `folder`. `mask` must replace every secret in its argument.

    A run is complete on disk after its output was read to the end (or it was stopped) and `wait` returned its report.
    """

    def __init__(self, inner: Launcher, folder: Path, mask: Mask) -> None:
        self._inner = inner
        self._folder = folder
        self._mask = mask
        self._stems: list[Path] = []

    def identity(self) -> str:
        return self._inner.identity()

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> RunningConnector:
        refuse_input(invocation, "a connector that is recorded")
        try:
            recorder = _RunRecorder(self._folder, invocation, self._mask)
        except OSError as error:
            raise _recording_error(self._folder, error) from error
        self._stems.append(recorder.stem)
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
        for stem in self._stems:
            own_files = stem.parent.glob(f"{stem.name}.*")
            for path in [file for own in own_files for file in (own.iterdir() if own.is_dir() else (own,))]:
                try:
                    self._mask_file(path)
                except OSError as error:
                    raise _recording_error(path, error) from error

    def _mask_file(self, path: Path) -> None:
        masked = path.with_name(f"{path.name}.masked")
        with path.open("rb") as file:
            output = MaskedOutput(os.fdopen(_create(masked), "wb"), self._mask)
            while chunk := file.read(_CHUNK_BYTES):
                output.write(chunk)
            output.close()
        masked.replace(path)


class MaskedOutput:
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


class _RunRecorder:
    """Writes the files of one run."""

    def __init__(self, folder: Path, invocation: Invocation, mask: Mask) -> None:
        self._invocation = invocation
        self._mask = mask
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.stem, self._stdout = _next_free(folder, verb_of(invocation))
        self._output = MaskedOutput(os.fdopen(_create(self._stdout), "wb"), mask)
        self._files = self.stem.with_name(f"{self.stem.name}.files")
        for name, content in invocation.files.items():
            self._files.mkdir(mode=0o700, exist_ok=True)
            _write(self._files / name, mask(content))

    def write(self, chunk: bytes) -> None:
        try:
            self._output.write(chunk)
        except OSError as error:
            raise _recording_error(self._stdout, error) from error

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
        )
        try:
            self._output.close()
            unfinished = self.stem.with_name(f"{self.stem.name}.json.part")
            _write(unfinished, msgspec.json.format(msgspec.json.encode(run)) + b"\n")
            unfinished.replace(unfinished.with_suffix(""))
        except OSError as error:
            raise _recording_error(self._stdout, error) from error

    def discard(self) -> None:
        with suppress(OSError):
            self._output.close()
            for name in self._invocation.files:
                (self._files / name).unlink()
            if self._files.exists():
                self._files.rmdir()
            self._stdout.unlink()


def _next_free(folder: Path, verb: str) -> tuple[Path, Path]:
    number = 1
    while (stdout := folder / f"{verb}-{number}.stdout.jsonl").exists():
        number += 1
    return folder / f"{verb}-{number}", stdout


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(_create(path), "wb") as file:
        file.write(content)


def _recording_error(path: Path, error: OSError) -> StagingError:
    return StagingError(f"recording the connector to {path}", error.strerror or str(error), remedy="Make room there.")


class _RecordedConnector:
    def __init__(self, inner: RunningConnector, recorder: _RunRecorder) -> None:
        self._inner = inner
        self._recorder: _RunRecorder | None = recorder
        self._report: ExitReport | None = None
        self._read_whole = False
        self._lock = threading.Lock()

    def read(self, timeout_seconds: float) -> bytes | None:
        chunk = self._inner.read(timeout_seconds)
        with self._lock:
            if chunk and self._recorder is not None:
                self._recorder.write(chunk)
            self._read_whole = self._read_whole or chunk == b""
            self._finish()
        return chunk

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
