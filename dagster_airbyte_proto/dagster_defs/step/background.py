"""A sync in a thread of its own, so that the step's main thread, where Terminate strikes at any moment, only waits.

Two threads: the sync's, which calls `deliver`, and the step's, which calls all else. The last load waits at a gate
between its rows and its states until the step has recorded what was delivered.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dagster_airbyte_proto.errors import CommitUnknown
from dagster_airbyte_proto.sync.delivery import Delivered, Delivery
from dagster_airbyte_proto.sync.report import SyncReport

Sync = Callable[[threading.Event, Delivery], SyncReport]
"""A sync that an event cancels, and that hands over what it landed."""


class Ready(NamedTuple):
    """The streams whose rows are in. Their states move once it is accepted."""

    streams: Sequence[Delivered]


class Ended(NamedTuple):
    report: SyncReport | None
    error: BaseException | None


class Background:
    """Starts with `start`; `stop` is safe at any time and more than once."""

    def __init__(self, sync: Sync) -> None:
        self._sync = sync
        self._cancel = threading.Event()
        self._messages: queue.Queue[Ready | Ended] = queue.Queue()
        self._gate = threading.Event()
        self._is_accepted = False
        self._is_given_up = False
        self._thread = threading.Thread(target=self._work, name="sync", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def message(self, timeout_seconds: float) -> Ready | Ended | None:
        """What comes next; None when nothing came in time."""
        try:
            return self._messages.get(timeout=max(0.0, timeout_seconds))
        except queue.Empty:
            return None

    def accept(self) -> None:
        """What was delivered is recorded."""
        self._is_accepted = True
        self._gate.set()

    def cancel(self) -> None:
        """Ends it early. What is covered is committed and delivered still."""
        self._cancel.set()

    def stop(self, timeout_seconds: float) -> bool:
        """Ends it early and takes no delivery any more; whether it has ended in time. Once it has not, it is not waited
        for again."""
        self._cancel.set()
        self._gate.set()
        if self._thread.ident is not None:
            self._thread.join(0 if self._is_given_up else timeout_seconds)
        self._is_given_up = self._thread.is_alive()
        return not self._is_given_up

    def deliver(self, streams: Sequence[Delivered]) -> None:
        self._messages.put(Ready(streams))
        self._gate.wait()
        if not self._is_accepted:
            raise CommitUnknown(
                "handing over what was landed",
                "the step ended before it had recorded it",
                remedy="The rows are in their tables. The next run of the connection ends the load.",
            )

    def _work(self) -> None:
        try:
            ended = Ended(self._sync(self._cancel, self), None)
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: raised again in the step's
            ended = Ended(None, error)
        self._messages.put(ended)
