"""Acquires the lease of a connection for one run, renews it while the run works, and releases it at the end.

A lost lease cannot do harm in the store: every change there names the lease's fence number, and an old one is refused.
So an error of a renewal does not end the run, and a run notices a lost lease at its next `check` or change.

A destination knows no fence. So before each piece that is written to it a run calls `check`, which renews a lease that
has run out by the machine's own clock: a run that slept past its lease learns of the one that took over before it
writes on.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.slot import WHOLE, Slot
from dagster_airbyte_proto.checkpoints.sql.leases import process_text
from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.errors import ConfigError, ProtoError, StateConflict
from dagster_airbyte_proto.sync.process_identity import is_alive, is_dead, this_process

_RENEWALS_PER_LEASE = 3
_RETRY_SECONDS = 0.5


def seconds_awake_or_asleep() -> float:
    """A clock that also counts the time in which the machine sleeps, where it has such a one."""
    kind = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if kind is None else time.clock_gettime(kind)


class LeaseWait(NamedTuple):
    """The wait for a connection that another run holds. `notify` gets what a person should read: once the holder.
    `clock` says in seconds how long a lease has been held."""

    seconds: float = 0.0
    cancel: threading.Event | None = None
    notify: Callable[[str], object] = str
    clock: Callable[[], float] = seconds_awake_or_asleep


NO_WAIT = LeaseWait()


class LeaseRenewal:
    """A context manager that renews a lease from a thread of its own, and releases it at the end.

    If the store does not answer, the renewal is tried again. At worst the lease runs out and another run takes over;
    then the fence keeps this run from announcing loads and from moving states. The lease was taken at `taken_at` by the
    `clock`, by default now.
    """

    def __init__(
        self,
        store: StateStore,
        lease: Lease,
        seconds: float,
        clock: Callable[[], float] = seconds_awake_or_asleep,
        taken_at: float | None = None,
    ) -> None:
        self._store = store
        self._seconds = seconds
        self._clock = clock
        self._held_until = (clock() if taken_at is None else taken_at) + seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_over, name="lease", daemon=True)
        self._conflict: StateConflict | None = None
        self._expires_at = lease.expires_at
        self.lease = lease

    def __enter__(self) -> "LeaseRenewal":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        try:
            self._store.release(self.lease)
        except ProtoError as failure:
            # The first error is the one to see. A full disk is the cause of both.
            shown = error if isinstance(error, ProtoError) else failure
            shown.remedy = " ".join(filter(None, (shown.remedy, self._still_held(failure))))
            if error is None:
                raise

    def check(self) -> None:
        """Raises StateConflict once another run has the lease. Any thread may call it."""
        if self._conflict is None and self._clock() >= self._held_until:
            # The thread that renews it has slept too, or the store has not answered it.
            self._held_until = self._clock() + self._seconds / _RENEWALS_PER_LEASE
            self._renew()
        if self._conflict is not None:
            raise self._conflict

    def _still_held(self, failure: ProtoError) -> str:
        return (
            f"Connection {self.lease.connection} stays held until this process ends, or until"
            f" {self._expires_at:%H:%M:%S} UTC: the end of its lease could not be stored ({failure.found})."
        )

    def _renew_until_over(self) -> None:
        while self._conflict is None and not self._over.wait(self._seconds / _RENEWALS_PER_LEASE):
            self._renew()

    def _renew(self) -> None:
        begun_at = self._clock()
        try:
            self._expires_at = self._store.renew(self.lease, self._seconds).expires_at
            self._held_until = begun_at + self._seconds
        except StateConflict as error:
            self._conflict = error
        except ProtoError:  # It is tried again.
            pass


def acquire_lease(
    store: StateStore,
    connection: str,
    run_id: str,
    seconds: float,
    wait: LeaseWait = NO_WAIT,
    *,
    slot: Slot = WHOLE,
) -> LeaseRenewal:
    """Acquires the slot of the connection for this run; enter the result to keep it. Raises StateConflict that names
    a holder if others still exclude it at the end of the wait."""
    deadline = time.monotonic() + wait.seconds
    cancel = wait.cancel or threading.Event()
    has_notified = False
    while True:
        taken_at = wait.clock()
        try:
            lease = store.acquire(
                connection, run_id=run_id, holder=this_process(), seconds=seconds, is_dead=is_dead, slot=slot
            )
            return LeaseRenewal(store, lease, seconds, wait.clock, taken_at)
        except StateConflict as conflict:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            if not has_notified:
                wait.notify(f"waits up to {wait.seconds:.0f} s: {conflict.found}")
                has_notified = True
            if cancel.wait(min(left, _RETRY_SECONDS)):
                raise


def _lease_text(lease: Lease) -> str:
    of_partition = f", partition {lease.partition}" if lease.partition else ""
    return f"{lease.run_id} ({process_text(lease.holder)}{of_partition})"


def end_leases(store: StateStore, connection: str, run_ids: Sequence[str]) -> Iterator[Lease]:
    """Ends the leases that dead runs have on a connection, before they expire, and yields each that has ended.

    A lease may last for years: it was taken while the clock was wrong, or `lease_seconds` is large. Only a person knows
    whether a process of another machine is dead. If it lives after all, it loses its lease as to a run that takes over:
    its next call with the old fence is refused.

    Raises ConfigError, and ends none, if one of the runs has none, or if its process is alive on this machine.
    """
    leases = store.current_leases(connection)
    for run_id in run_ids:
        doing = f"ending the lease of run {run_id} on connection {connection}"
        holders = [lease.holder for lease in leases if lease.run_id == run_id]
        if not holders:
            others = ", ".join(map(_lease_text, leases))
            remedy = f"Those that have one: {others or 'none'}. If it was ended before, leave it out."
            raise ConfigError(doing, "it has none", remedy=remedy)
        for holder in filter(is_alive, holders):
            found = f"{process_text(holder)} is alive"
            raise ConfigError(doing, found, remedy="Stop that process: then its lease ends by itself.")
    for lease in leases:
        if lease.run_id in run_ids:
            store.release(lease)
            yield lease
