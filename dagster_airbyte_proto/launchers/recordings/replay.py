"""The launcher of recordings: it replays the bytes of a real run and compares its input, without a program."""

import hashlib
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from dagster_airbyte_proto.errors import ConfigError, ConnectorError, InternalError
from dagster_airbyte_proto.launchers.process import ExitReport
from dagster_airbyte_proto.launchers.recordings.recorded_input import RecordedInput
from dagster_airbyte_proto.launchers.recordings.run_files import RecordedRun, RunFiles, verb_of
from dagster_airbyte_proto.protocols.conversation import Invocation

_CHUNK_BYTES = 1024 * 1024
_MAX_DIGESTED_BYTES = 16 * 1024 * 1024
_RUN_DECODER = msgspec.json.Decoder(RecordedRun)


class ReplayLauncher:
    """Answers each verb with its latest recording in `folder`, whatever the config, catalog or state."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def identity(self) -> str:
        digest = hashlib.sha256()
        for path in self._run_files():
            files = _files_of(path)
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
            for stream in (files.stdout, files.stdin, files.turns):
                if stream.exists():
                    _add_to_digest(digest, stream)
        return f"{self._folder.name}-{digest.hexdigest()[:16]}"

    def host_place(self) -> None:
        """A recording reaches nobody."""
        return

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> "ReplayedConnector":  # noqa: ARG002 - no program runs that would read it
        verb = verb_of(invocation)
        runs = [(path, _read_run(path)) for path in self._run_files()]
        of_verb = [(path, run) for path, run in runs if run.verb == verb]
        if not of_verb:
            recorded = ", ".join(sorted({run.verb for _, run in runs}))
            raise ConfigError(
                f"replaying {verb!r} from {self._folder}",
                f"it holds {recorded} only",
                remedy=f"Record {verb!r} from the real connector, into the same folder.",
            )
        path, run = max(of_verb, key=lambda found: _number(found[0]))
        recorded_input = _open_input(path, run) if invocation.takes_input else None
        return ReplayedConnector(_files_of(path).stdout.open("rb"), run, recorded_input)

    def _run_files(self) -> list[Path]:
        metas = sorted(path for path in self._folder.glob("*-*.json") if _files_of(path).stdout.is_file())
        if not metas:
            raise ConfigError(
                "opening a recording",
                f"there is none in {self._folder}",
                remedy="`airbyte-proto record CONNECTION FOLDER` makes one.",
            )
        return metas


def _files_of(meta: Path) -> RunFiles:
    return RunFiles(meta.parent, meta.stem)


def _add_to_digest(digest: "hashlib._Hash", stream: Path) -> None:
    about = stream.stat()
    digest.update(str(about.st_size).encode() + b"\0")
    large = about.st_size > _MAX_DIGESTED_BYTES  # a long read: its size and time must do
    digest.update(str(about.st_mtime_ns).encode() if large else stream.read_bytes())


def _open_input(meta: Path, run: RecordedRun) -> RecordedInput:
    doing = f"replaying {run.verb!r} from {meta.parent}"
    if run.input_closed is None:
        raise ConfigError(doing, f"{meta.name} was recorded without input", remedy="Record it again, with input.")
    files = _files_of(meta)
    stdin, turns = files.stdin.open("rb"), files.turns.open("rb")
    return RecordedInput(stdin, turns, doing=doing, is_cut=not run.input_closed)


def _number(meta: Path) -> int:
    number = meta.stem.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _read_run(path: Path) -> RecordedRun:
    try:
        return _RUN_DECODER.decode(path.read_bytes())
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(
            "opening a recording", f"{path} is not readable: {error}", remedy="Record it again."
        ) from error


class _PacedOutput:
    """The recorded output, given out in chunks and not beyond a line."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._held = b""
        self._lines = 0

    def read(self, up_to_lines: int | None) -> bytes:
        """Returns the next chunk; b"" at the end, or if the first `up_to_lines` lines were given. None is no limit."""
        left = None if up_to_lines is None else up_to_lines - self._lines
        if left == 0:
            return b""
        chunk = self._held or self._file.read(_CHUNK_BYTES)
        # Fewer line ends than allowed: what follows the last one is the beginning of a line that may come.
        beyond = chunk.split(b"\n", left)[left:] if left is not None else []
        self._held = beyond[0] if beyond else b""
        given = chunk[: len(chunk) - len(self._held)]
        self._lines += given.count(b"\n")
        return given

    def close(self) -> None:
        self._file.close()


class ReplayedConnector:
    """A replayed run. Like a real connector, it ends after its output has been read, or when it is stopped."""

    def __init__(self, stdout: BinaryIO, run: RecordedRun, recorded_input: RecordedInput | None = None) -> None:
        self._output = _PacedOutput(stdout)
        self._run = run
        self._input = recorded_input
        self._input_closed = False
        self._difference: ConfigError | None = None
        self._changed = threading.Condition()
        self._ended = False
        self._stopped = False

    def read(self, timeout_seconds: float) -> bytes | None:
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while not self._ended:
                limit = None if self._input is None else self._input.released_lines()
                if chunk := self._output.read(limit):
                    return chunk
                if limit is None:
                    self._end()
                elif not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return None
            return b""

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:  # noqa: ARG002 - a file is never full
        with self._changed:
            if self._input is None or self._input_closed:
                found = "its invocation takes no input" if self._input is None else "its input was closed"
                raise InternalError("writing to the connector", found)
            if self._ended or self._input.is_complete:
                raise ConnectorError("writing to the connector", "it has ended")
            with self._remembered_difference():
                self._input.write(bytes(data))
            self._changed.notify_all()
            return len(data)

    def close_input(self) -> None:
        with self._changed:
            if self._input is None or self._input_closed or self._ended or self._difference is not None:
                return
            self._input_closed = True
            with self._remembered_difference():
                self._input.close()
            self._changed.notify_all()

    @contextmanager
    def _remembered_difference(self) -> Iterator[None]:
        """Only the first difference tells something: it is raised again by what follows."""
        if self._difference is not None:
            raise self._difference
        try:
            yield
        except ConfigError as error:
            self._difference = error
            raise

    def request_stop(self) -> None:
        """Does nothing: it ends with its recording, or by `stop`."""

    def stop(self) -> None:
        with self._changed:
            self._stopped = self._stopped or not self._ended
            self._end()
            self._changed.notify_all()

    def wait(self, timeout_seconds: float) -> ExitReport | None:  # noqa: ARG002 - it ends by being read, not by time
        with self._changed:
            if not self._ended:
                return None
            if self._stopped:
                return ExitReport(None, signal.SIGTERM, True, self._run.seconds, self._run.stderr_tail)
            run = self._run
            return ExitReport(run.code, run.signal, run.stopped, run.seconds, run.stderr_tail)

    def rewritten_file(self) -> bytes | None:
        return None

    def _end(self) -> None:
        self._ended = True
        self._output.close()
        if self._input is not None:
            self._input.release()
