"""Keeps a run's lease alive while it works, and says so when it is lost."""

import threading
from collections.abc import Callable
from types import TracebackType

from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.errors import StateConflict, StateUnavailable

_RENEWALS_A_LEASE = 3


class LeaseKeeper:
    """Renews from a thread of its own. A store that does not answer is asked again: the fence guards the tables
    and the states in any case, so the worst is that another run takes over and this one is turned away."""

    def __init__(self, store: StateStore, lease: Lease, seconds: float, on_loss: Callable[[], None]) -> None:
        self._store = store
        self._lease = lease
        self._seconds = seconds
        self._on_loss = on_loss
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self.loss: StateConflict | None = None

    def __enter__(self) -> "LeaseKeeper":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Raises StateConflict once the lease is another's."""
        if self.loss is not None:
            raise self.loss

    def _keep(self) -> None:
        while not self._over.wait(self._seconds / _RENEWALS_A_LEASE):
            try:
                self._store.renew(self._lease, self._seconds)
            except StateConflict as error:
                self.loss = error
                self._on_loss()
                return
            except StateUnavailable:
                continue
