"""The last run that was refused before it had its connection, by the logs of this machine: the state store has no such
run.

A run has its log before it has the connection (`sync/run_log.py`), and the log ends with its errors and its status. So
a refused one is known by a log that is newer than the last run of the store, ends with a failure, and has the id of no
run there.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.store import StateStore

# The longest line of a log has 64 Ki characters.
_END_BYTES = 512 << 10
_FAILED = re.compile(
    r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}) INFO  the run ended: failed\n(?:\(\d+ more lines did not fit\)\n)?\Z",
    re.MULTILINE,
)
_LAST_ERROR = re.compile(r"^\S+ ERROR (.*\n(?:    .*\n)*)\Z", re.MULTILINE)


class RefusedRun(NamedTuple):
    """A run that was refused: when, why, and its log."""

    at: datetime
    error: str
    log: Path


def refused_run(store: StateStore, connection: str, logs: Path) -> RefusedRun | None:
    """The run of a connection that was refused last; None if one has begun since. `logs` is the folder of all logs."""
    newest = next(iter(store.runs(connection, limit=1)), None)
    begun_at = 0.0 if newest is None else newest.started_at.timestamp()
    for log in _newest_first(logs / connection, begun_at):
        found = _failed_run(log)
        if found is not None and not store.run_holders(connection, log.stem):
            return found
    return None


def _newest_first(folder: Path, since: float) -> Sequence[Path]:
    changed_at: dict[Path, float] = {}
    for log in folder.glob("*.log"):
        with suppress(OSError):  # Another run has removed it.
            changed_at[log] = log.stat().st_mtime
    found = [log for log, at in changed_at.items() if at >= since]
    return sorted(found, key=changed_at.__getitem__, reverse=True)


def _failed_run(log: Path) -> RefusedRun | None:
    """The run of a log that ends with its failure; None for any other, and where the log is not to be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _END_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    end = _FAILED.search(text)
    if end is None:
        return None
    error = _LAST_ERROR.search(text[: end.start()])
    words = error[1].rstrip("\n").replace("\n    ", "\n") if error else "its log says why"
    return RefusedRun(datetime.fromisoformat(end[1]).replace(tzinfo=UTC), words, log)
