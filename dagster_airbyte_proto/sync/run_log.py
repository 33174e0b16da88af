"""What a connector said in one run, kept under the home folder: masked, bounded, old ones removed."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.staging.files.area import on_disk

_KEPT_RUNS = 20
_NOTHING_SECRET = Mask(())


def to_nobody(level: str, text: str) -> None:
    """Where nobody listens to the lines of a log."""


def new_run_id() -> str:
    """Sorts by time, so that logs and folders do."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid4().hex[:10]}"


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another run removed it
        return 0.0


class RunLog:
    """One file a run. Past `max_bytes` only errors are written, and the file says how many lines are missing.

    A disk that takes no more ends the log and not the run: `trouble` says what it said.
    May be written from several threads. `on_line` sees each line (level, text) too, masked.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        *,
        mask: Mask = _NOTHING_SECRET,
        max_bytes: int = 32 << 20,
        on_line: Callable[[str, str], None] = to_nobody,
    ) -> None:
        self.run_id = run_id
        self.path = folder / f"{run_id}.log"
        with on_disk("open the run's log", str(self.path)):
            folder.mkdir(parents=True, exist_ok=True)
            for old in sorted(folder.glob("*.log"), key=_changed_at)[: -_KEPT_RUNS + 1]:
                old.unlink(missing_ok=True)
            # A retry has the run id of the attempt before it, whose words are kept.
            self._file = self.path.open("a", encoding="utf-8", errors="replace")
            self.path.chmod(0o600)
        self._mask = mask
        self._room = max_bytes
        self._missing = 0
        self.trouble = ""
        self._on_line = on_line
        self._lock = threading.Lock()

    def mask_also(self, mask: Mask) -> None:
        """For secrets that turn up in the middle of a run."""
        self._mask = mask

    def write(self, level: str, text: str) -> None:
        text = self._mask.text(text)
        self._on_line(level, text)
        with self._lock:
            if self.trouble or (self._room <= 0 and level not in ("ERROR", "FATAL")):
                self._missing += 1
                return
            line = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f} {level:5} {text}\n"
            self._room -= len(line)
            self._put(line)

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            if self._missing:
                self._put(f"({self._missing} more lines did not fit)\n")
            with suppress(OSError):  # A full disk loses what waits here, and the file is closed all the same.
                self._file.close()

    def _put(self, text: str) -> None:
        try:
            self._file.write(text)
        except OSError as error:
            self.trouble = error.strerror or str(error)
