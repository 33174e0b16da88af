"""The driver's side of one sync on an executor: what its task may call, and how it goes."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.slot import WHOLE, Slot
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtoError, StateConflict
from dagster_airbyte_proto.loads.vended import CredentialSource
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.plurals import counted
from dagster_airbyte_proto.sync.cluster.channel import RemoteObject
from dagster_airbyte_proto.sync.cluster.connector_files import FilesOfDriver
from dagster_airbyte_proto.sync.cluster.credentials import ServedCredentials
from dagster_airbyte_proto.sync.cluster.sync_order import LogLine, StreamCounts, SyncDriver, SyncOrder, SyncOutcome
from dagster_airbyte_proto.sync.cluster.values import RemoteMethods, as_remote, from_remote
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.connector.answer_cache import AnswerCache
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.leased_sync import SyncOptions
from dagster_airbyte_proto.sync.process_identity import is_dead
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.tables.writer import SupportsBranches, SupportsKeyLookup, TableWriter

_STORE = RemoteMethods(DeliveryStore)
_TABLES = RemoteMethods(TableWriter, SupportsKeyLookup, SupportsBranches)
_DRIVER = RemoteMethods(SyncDriver)
_ANSWERS = RemoteMethods(AnswerCache)
_CREDENTIALS = RemoteMethods(CredentialSource)
_FILES = RemoteMethods(FilesOfDriver)
_REPORT = msgspec.json.Decoder(SyncReport)
_SILENT_SECONDS = 60.0
"""An attempt says twice a second how it goes: one that is silent for so long is dead, or its machine is."""


class ExecutorSync:
    """One sync whose connector runs on an executor. Implements `SyncDriver`.

    `outcome` is None until a task has reported it. `raised` is what the commit listener raised here: an error of the
    caller's, such as Dagster's interrupt, which the wire would not carry. The `last_attempt` of its task, if that has
    one, ends the sync in the place of running it.
    """

    def __init__(
        self, engine: Engine, name: str, order: SyncOrder, files: FilesOfDriver, sync_options: SyncOptions
    ) -> None:
        self.name = name
        self.outcome: SyncOutcome | None = None
        self.raised: BaseException | None = None
        self.last_attempt: int | None = None
        self.log = sync_options.log
        self._order = order
        self._options = sync_options.options
        self._runs: dict[StreamId, StreamRun] = {}
        self._holders: dict[str, int] = {}
        self._newest_attempt = 0
        self._last_call_at = -math.inf
        self._lock = threading.Lock()
        self._store = engine.store
        # Those of earlier attempts of the step, which has the run id too.
        self._reports_before = len(self._store.reports(name, order.run_id))
        self.served: Mapping[str, RemoteObject] = {
            "driver": RemoteObject(_DRIVER, lambda _: self),
            "store": RemoteObject(_STORE, lambda attempt: SyncStore(engine.store, name, attempt, self._holders)),
            "tables": RemoteObject(_TABLES, lambda _: engine.tables),
            "answers": RemoteObject(_ANSWERS, lambda _: engine.answer_cache),
            "credentials": RemoteObject(_CREDENTIALS, lambda _: ServedCredentials(engine.tables.storage)),
            "files": RemoteObject(_FILES, lambda _: files),
        }

    @property
    def seconds_silent(self) -> float:
        """The seconds since the last call of its task; infinite before the first one."""
        return time.monotonic() - self._last_call_at

    @property
    def was_cancelled_unbegun(self) -> bool:
        """True if it was cancelled before the first call of its task."""
        return self._options.cancel.is_set() and math.isinf(self._last_call_at)

    def order(self, attempt: int) -> SyncOrder | None:
        self._last_call_at = time.monotonic()
        complete: SyncReport | None = None
        if attempt:
            with suppress(ProtoError):  # Of the store. The attempt meets it too, if it is to run.
                complete = self._complete_report()
        with self._lock:
            self._newest_attempt = max(attempt, self._newest_attempt)
            if complete is not None and self.outcome is None:
                self.outcome = SyncOutcome(complete)
            is_last = self.last_attempt is not None and attempt >= self.last_attempt
            if is_last and self.outcome is None:
                self.outcome = SyncOutcome(error=as_remote(self._given_up(attempt)))
            return self._order if self.outcome is None else None

    def _complete_report(self) -> SyncReport | None:
        """The report of an attempt that has completed its run, and died, or was superseded, before it told of its end.
        Another sync would append a stream that is read whole once more. Its lease ends with it."""
        stored = self._store.reports(self.name, self._order.run_id)[self._reports_before :]
        report = next((each for each in map(_REPORT.decode, stored) if each.status is SyncStatus.COMPLETE), None)
        if report is not None:
            for lease in self._store.current_leases(self.name):
                if lease.holder in self._holders:
                    self._store.release(lease)
        return report

    def _given_up(self, attempts: int) -> ConnectorError:
        return ConnectorError(
            f"running connection {self.name} on an executor",
            f"{counted(attempts, 'attempt')} of its task died, and after one more Spark ends the syncs beside it",
            remedy="Nothing is lost: the next sync goes on from there. Has its worker too little memory for it?",
            retryable=True,
        )

    def sees(self, path: str) -> bool:
        return Path(path).exists()

    def started(self, run_id: str, streams: Sequence[PlannedStream]) -> None:
        self._runs = {planned.id: StreamRun(planned) for planned in streams}
        self._options.progress_listener.run_started(run_id, self._runs)

    def progressed(self, lines: Sequence[LogLine], counts: Sequence[StreamCounts]) -> bool:
        self._last_call_at = time.monotonic()
        with self._lock:  # The task before may still be sending.
            for line in lines:
                self.log.write(*line)
            for each in counts:
                if each.stream in self._runs:
                    _update(self._runs[each.stream], each)
            self._options.progress_listener.progressed()
        return self._options.cancel.is_set()

    def committed(self, attempt: int, streams: Sequence[CommittedStream]) -> None:
        if attempt < self._newest_attempt:
            raise StateConflict(
                f"committing streams of connection {self.name}",
                f"attempt {attempt + 1} of its task was superseded by attempt {self._newest_attempt + 1}",
            )
        try:
            self._options.commit_listener.committed(streams)
        except BaseException as error:
            self.raised = error
            raise

    def ended(self, attempt: int, outcome: SyncOutcome) -> None:
        with self._lock:
            if attempt >= self._newest_attempt:
                self.outcome = outcome

    def declined(self, attempt: int, outcome: SyncOutcome) -> bool:  # noqa: ARG002 - any attempt may be at work
        with self._lock:
            if self.outcome is None and math.isinf(self.seconds_silent):
                self.outcome = outcome
            if self.outcome is not None:
                return True
        self._check_at_work()
        return False

    def is_superseded(self, attempt: int) -> bool:
        if self.outcome is not None or attempt >= self._newest_attempt:
            return False
        self._check_at_work()
        return True

    def _check_at_work(self) -> None:
        if self.seconds_silent > _SILENT_SECONDS:
            raise ConnectorError(
                f"running connection {self.name} on an executor",
                f"attempt {self._newest_attempt + 1} of its task has not called for {_SILENT_SECONDS:.0f} s",
                retryable=True,
            )


class SyncStore:
    """The state store, as far as it is about one connection, for one attempt of its task."""

    def __init__(self, store: DeliveryStore, connection: str, attempt: int, holders: dict[str, int]) -> None:
        self._store = store
        self._connection = connection
        self._attempt = attempt
        self._holders = holders

    def acquire(self, connection: str, *, run_id: str, holder: str, seconds: float, slot: Slot = WHOLE) -> Lease:
        """Acquires a lease for this attempt, also from an earlier attempt of the same task: its fence turns it away,
        and only the driver knows that there is a later one."""
        self._check(connection)
        own = f"{holder}, attempt {self._attempt + 1}"
        self._holders[own] = self._attempt

        def is_superseded(other: str) -> bool:
            return self._holders.get(other, self._attempt) < self._attempt or is_dead(other)

        return self._store.acquire(
            connection, run_id=run_id, holder=own, seconds=seconds, is_dead=is_superseded, slot=slot
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)

        def call(**arguments: Any) -> Any:
            for value in arguments.values():
                self._check(getattr(value, "connection", self._connection))
            self._check(arguments.get("connection", self._connection))
            return method(**arguments)

        return call

    def _check(self, connection: str) -> None:
        if connection != self._connection:
            raise ConfigError("answering an executor", f"its sync is of {self._connection}, not of {connection}")


def _update(run: StreamRun, counts: StreamCounts) -> None:
    run.counts.emitted, run.counts.bytes, run.counts.states = counts.emitted, counts.bytes, counts.states
    run.outcome.committed = counts.committed
    run.outcome.rejections.clear()
    run.outcome.reject(counts.rejected, "")
    run.reported_status, run.is_complete = counts.reported_status, counts.is_complete
    run.error = from_remote(counts.error) if counts.error else None
