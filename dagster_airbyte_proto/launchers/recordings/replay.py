"""The launcher of recordings: it replays the bytes of a real run, without a program."""

import hashlib
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.process import ExitReport, refuse_input
from dagster_airbyte_proto.launchers.recordings.recording import RecordedRun, verb_of
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
            stdout = _stdout_of(path)
            about = stdout.stat()
            large = about.st_size > _MAX_DIGESTED_BYTES  # a long read: its size and time must do
            for part in (path.name.encode(), path.read_bytes(), str(about.st_size).encode()):
                digest.update(part + b"\0")
            digest.update(str(about.st_mtime_ns).encode() if large else stdout.read_bytes())
        return f"{self._folder.name}-{digest.hexdigest()[:16]}"

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> "ReplayedConnector":  # noqa: ARG002 - no program runs that would read it
        refuse_input(invocation, "a recording")
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
        return ReplayedConnector(_stdout_of(path).open("rb"), run)

    def _run_files(self) -> list[Path]:
        metas = sorted(path for path in self._folder.glob("*-*.json") if _stdout_of(path).is_file())
        if not metas:
            raise ConfigError(
                "opening a recording",
                f"there is none in {self._folder}",
                remedy="`airbyte-proto record CONNECTION FOLDER` makes one.",
            )
        return metas


def _stdout_of(meta: Path) -> Path:
    return meta.with_name(f"{meta.stem}.stdout.jsonl")


def _number(meta: Path) -> int:
    number = meta.stem.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _read_run(path: Path) -> RecordedRun:
    try:
        return _RUN_DECODER.decode(path.read_bytes())
    except (msgspec.MsgspecError, OSError) as error:
        raise ConfigError(
            "opening a recording", f"{path} is not readable: {error}", remedy="Record it again."
        ) from error


class ReplayedConnector:
    """A replayed run. Like a real connector, it ends after its output has been read, or when it is stopped."""

    def __init__(self, stdout: BinaryIO, run: RecordedRun) -> None:
        self._stdout = stdout
        self._run = run
        self._lock = threading.Lock()
        self._ended = False
        self._stopped = False

    def read(self, timeout_seconds: float) -> bytes | None:  # noqa: ARG002 - a file is never late
        with self._lock:
            chunk = b"" if self._ended else self._stdout.read(_CHUNK_BYTES)
            if not chunk:
                self._end()
            return chunk

    def stop(self) -> None:
        with self._lock:
            self._stopped = self._stopped or not self._ended
            self._end()

    def wait(self, timeout_seconds: float) -> ExitReport | None:  # noqa: ARG002 - it ends by being read, not by time
        with self._lock:
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
        self._stdout.close()
