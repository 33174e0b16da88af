"""The log of one run, a file under the home folder: the connector's messages with secrets masked, bounded in size."""

import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from dagster_airbyte_proto.errors import Cancelled
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.staging.files.staging_folder import raising_staging_error

_KEPT_RUNS = 20
_MAX_LINE_CHARACTERS = 64 << 10
# Errors may go beyond the log's limit by this part of it.
_ERRORS_SHARE = 8
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
# All that a terminal obeys or that hides text: control characters, line separators of Unicode, writing directions.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_NO_MASK = Mask(())


def ignore_line(level: str, text: str) -> None:
    """An `on_line` that does nothing."""


def _printable(text: str) -> str:
    """The text without colours, with other control characters as escapes, and its further lines set in: no line of a
    connector's looks like one of ours."""
    plain = _COLOURS.sub("", text.replace("\r\n", "\n"))
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], plain).replace("\n", "\n    ")


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LINE_CHARACTERS else f"{text[:_MAX_LINE_CHARACTERS]} (cut)"


def new_run_id() -> str:
    """Returns a new run id. It begins with the time, so that logs and folders sort by age."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid4().hex[:10]}"


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # Another run removed it.
        return 0.0


class RunLog:
    """The log of one run, in a file of its own. Only the newest 20 logs of a folder are kept.

    Past `max_bytes` only errors are written, for an eighth of that more, and the end of the file says how many lines
    are missing. A line is cut at 64 Ki characters. A disk that takes no more ends the log, not the run: `write_error`
    has the reason. Several threads may write. `on_line` gets each line (level, masked text) too, from the thread that
    writes it.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        *,
        mask: Mask = _NO_MASK,
        max_bytes: int = 32 << 20,
        on_line: Callable[[str, str], None] = ignore_line,
    ) -> None:
        self.run_id = run_id
        self.path = folder / f"{run_id}.log"
        with raising_staging_error("open the run's log", str(self.path)):
            folder.mkdir(parents=True, exist_ok=True)
            for old in sorted(folder.glob("*.log"), key=_modified_at)[: -_KEPT_RUNS + 1]:
                old.unlink(missing_ok=True)
            # A retry has the run id of the attempt before it, whose lines stay.
            self._file = self.path.open("a", encoding="utf-8", errors="replace")
            self.path.chmod(0o600)
        self._masks = {0: mask}
        self._bytes_left = max_bytes
        self._bytes_for_errors = max_bytes // _ERRORS_SHARE
        self._skipped_lines = 0
        self.write_error = ""
        self._on_line = on_line
        self._lock = threading.Lock()

    def set_mask(self, mask: Mask, owner: object = None) -> None:
        """Masks by this one from now on, in the place of its owner's older one. Secrets may turn up during a run."""
        self._masks = {**self._masks, id(owner): mask}

    def masked(self, text: str) -> str:
        """The text without the secrets that the run knows of so far."""
        for mask in self._masks.values():
            text = mask.text(text)
        return text

    def _shown(self, text: str) -> str:
        # Cut before it is masked, for that takes time, and after it: a secret that the first cut divides is not shown.
        return _cut(_printable(self.masked(text[: 2 * _MAX_LINE_CHARACTERS])))

    def write(self, level: str, text: str) -> None:
        text = self._shown(text)
        self._on_line(level, text)
        with self._lock:
            least = -self._bytes_for_errors if level in ("ERROR", "FATAL") else 0
            if self.write_error or self._bytes_left <= least:
                self._skipped_lines += 1
                return
            self._append_line(level, text)

    def note_end(self, status: str, errors: Iterable[str] = ()) -> None:
        """Writes how the run ended, whatever the log's limit. It is not passed on: whoever waits for the run has it.
        `status` reads it of a run that was refused (`diagnosis/refused_run.py`)."""
        with self._lock:
            for error in errors:
                self._append_line("ERROR", self._shown(error))
            self._append_line("INFO", f"the run ended: {status}")

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            # For cron, whose mail nobody reads, it is the only trace of a run that was refused.
            is_failure = isinstance(error, Exception) and not isinstance(error, Cancelled)
            self.note_end("failed" if is_failure else "cancelled", [str(error)] if is_failure else ())
        with self._lock:
            if self._skipped_lines:
                self._append(f"({self._skipped_lines} more lines did not fit)\n")
            with suppress(OSError):  # On a full disk the last buffered lines are lost; the file is closed in any case.
                self._file.close()

    def _append_line(self, level: str, text: str) -> None:
        line = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f} {level:5} {text}\n"
        self._bytes_left -= len(line.encode(errors="replace"))
        self._append(line)

    def _append(self, text: str) -> None:
        try:
            self._file.write(text)
        except OSError as error:
            self.write_error = error.strerror or str(error)
