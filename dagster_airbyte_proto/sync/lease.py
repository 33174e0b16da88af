"""Holds a connection for one run: takes the lease, keeps it alive while the run works, gives it back."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.errors import ProtoError, StateConflict
from dagster_airbyte_proto.sync.lease_holder import is_dead, this_process

_RENEWALS_A_LEASE = 3
_ASKING_SECONDS = 0.5


class Waiting(NamedTuple):
    """How long to wait for a connection that another run holds; `tell` hears once whom it waits for."""

    seconds: float = 0.0
    cancel: threading.Event | None = None
    tell: Callable[[str], object] = str


_NO_WAITING = Waiting()


class LeaseKeeper:
    """Renews from a thread of its own. A store that does not answer is asked again: the fence guards the tables
    and the states in any case, so the worst is that another run takes over and this one is turned away."""

    def __init__(self, store: StateStore, lease: Lease, seconds: float) -> None:
        self._store = store
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._loss: StateConflict | None = None
        self.lease = lease

    def __enter__(self) -> "LeaseKeeper":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        try:
            self._store.release(self.lease)
        except ProtoError:
            if error is None:
                raise

    def check(self) -> None:
        """Raises StateConflict once the lease is another's."""
        if self._loss is not None:
            raise self._loss

    def _keep(self) -> None:
        while not self._over.wait(self._seconds / _RENEWALS_A_LEASE):
            try:
                self._store.renew(self.lease, self._seconds)
            except StateConflict as error:
                self._loss = error
                return
            except ProtoError:
                continue


def held_lease(
    store: StateStore, connection: str, run_id: str, seconds: float, waiting: Waiting = _NO_WAITING
) -> LeaseKeeper:
    """The connection for this run alone. Raises StateConflict that names who holds it, once waiting is over."""
    deadline = time.monotonic() + waiting.seconds
    cancel = waiting.cancel or threading.Event()
    has_told = False
    while True:
        try:
            lease = store.acquire(connection, run_id=run_id, holder=this_process(), seconds=seconds, is_dead=is_dead)
            return LeaseKeeper(store, lease, seconds)
        except StateConflict as conflict:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            if not has_told:
                waiting.tell(f"waits up to {waiting.seconds:.0f} s: {conflict.found}")
                has_told = True
            if cancel.wait(min(left, _ASKING_SECONDS)):
                raise
