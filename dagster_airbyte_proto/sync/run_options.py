"""The options of one run, and what follows its progress."""

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.commit_listener import CommitListener, NoCommitListener
from dagster_airbyte_proto.sync.lease import seconds_awake_or_asleep
from dagster_airbyte_proto.sync.stream_run import StreamRun


class Timeouts(NamedTuple):
    """The times after which a connector counts as hung.

    `startup_seconds` is for its first line, `heartbeat_seconds` for the next record or a state that differs from the
    one before, `states_seconds` for the next record if only states come, `exit_seconds` for the end of the process once
    its output is closed, `result_seconds` for the next row that is taken, or the result of all, where a destination
    proves its rows by that alone. Waiting for a source's rate limit to reset counts towards none of them.
    """

    startup_seconds: float = 600.0
    heartbeat_seconds: float = 3 * 3600.0
    exit_seconds: float = 60.0
    states_seconds: float = 24 * 3600.0
    result_seconds: float = 900.0


class ProgressListener(Protocol):
    """Follows the progress of a sync. The reading thread calls it often, so it must be quick."""

    def run_started(self, run_id: str, runs: Mapping[StreamId, StreamRun]) -> None:
        """The connector is about to be read; of a push, which has no such runs, its first stream is about to begin."""
        ...

    def progressed(self) -> None: ...

    def connector_logged(self, level: str, text: str) -> None:
        """Receives a line of the run's log, with secrets masked. May be called from another thread."""
        ...


class NoProgressListener:
    """A ProgressListener that does nothing."""

    def run_started(self, run_id: str, runs: Mapping[StreamId, StreamRun]) -> None: ...

    def progressed(self) -> None: ...

    def connector_logged(self, level: str, text: str) -> None: ...


class RunOptions(NamedTuple):
    """The options of one run, beside what it reads (`SyncRequest`).

    Setting `cancel` ends the sync early: rows that a state covers are committed. `run_id` may be that of an earlier
    attempt; `attempt` counts these from 1. If another run holds the connection, this one waits up to
    `lease_wait_seconds` for it. `clock` says in seconds how long it has held its lease.
    """

    cancel: threading.Event
    progress_listener: ProgressListener = NoProgressListener()
    timeouts: Timeouts = Timeouts()
    commit_listener: CommitListener = NoCommitListener()
    run_id: str | None = None
    lease_wait_seconds: float = 0.0
    attempt: int = 1
    clock: Callable[[], float] = seconds_awake_or_asleep
