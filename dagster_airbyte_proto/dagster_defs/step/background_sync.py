"""Runs a sync in a thread of its own, so that the step's main thread only waits: Terminate strikes it at any moment.

1. The sync's thread calls `committed` once rows are in their tables. The step's thread calls every other method.
2. `committed` blocks at a gate, after the rows and before the states of the load, until the step has recorded the
   streams (`accept`) or has ended (`stop`).
3. If the step ended first, `committed` raises CommitUnknown: the states do not move, and the next run completes the
   load.
4. On executors `committed` is called again where an attempt died after its call. Each call waits at the gate for
   itself, and hands over only streams that no call before it has: Dagster takes one event for each.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from dagster_airbyte_proto.errors import CommitUnknown
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.commit_listener import CommitListener, CommittedStream

Report = TypeVar("Report")
SyncFunction = Callable[[threading.Event, CommitListener], Report]
"""Runs a sync, or a push. The event cancels it; the listener hears of the streams whose rows are committed."""


class StreamsCommitted(NamedTuple):
    """The streams whose rows are committed, by the number of the call. Their states move once the step accepts them."""

    streams: Sequence[CommittedStream]
    call: int


class SyncEnded(NamedTuple, Generic[Report]):
    """The last message of a sync: its report, or the error that ended it."""

    report: Report | None
    error: BaseException | None


class BackgroundSync(Generic[Report]):
    """A sync and the thread that runs it. `stop` can be called at any time, and more than once."""

    def __init__(self, sync: SyncFunction[Report]) -> None:
        self._sync = sync
        self._cancel = threading.Event()
        self._messages: queue.Queue[StreamsCommitted | SyncEnded[Report]] = queue.Queue()
        self._gate = threading.Condition()
        self._handed_over: set[StreamId] = set()
        self._calls = self._taken = self._accepted = 0
        self._is_stopped = False
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._run, name="sync", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def next_message(self, timeout_seconds: float) -> StreamsCommitted | SyncEnded[Report] | None:
        """Returns the next message, or None if none came in time."""
        try:
            message = self._messages.get(timeout=max(0.0, timeout_seconds))
        except queue.Empty:
            return None
        if isinstance(message, StreamsCommitted):
            self._taken = message.call
        return message

    def accept(self) -> None:
        """Lets the states of all streams move that `next_message` has returned: the step has recorded them."""
        with self._gate:
            self._accepted = self._taken
            self._gate.notify_all()

    def cancel(self) -> None:
        """Ends the sync early. Rows that a state covers are still committed and handed to the step."""
        self._cancel.set()

    def stop(self, timeout_seconds: float) -> bool:
        """Ends the sync early and accepts nothing more. Returns whether it ended in time; after a False, later calls do
        not wait again."""
        self._cancel.set()
        with self._gate:
            self._is_stopped = True
            self._gate.notify_all()
        if self._thread.ident is not None:
            self._thread.join(0 if self._is_abandoned else timeout_seconds)
        self._is_abandoned = self._thread.is_alive()
        return not self._is_abandoned

    def committed(self, streams: Sequence[CommittedStream]) -> None:
        with self._gate:
            new = [each for each in streams if each.stream not in self._handed_over]
            self._handed_over.update(each.stream for each in new)
            self._calls = call = self._calls + 1
            self._messages.put(StreamsCommitted(new, call))
            self._gate.wait_for(lambda: self._accepted >= call or self._is_stopped)
            is_accepted = self._accepted >= call
        if not is_accepted:
            raise CommitUnknown(
                "handing the committed streams to the step",
                "the step ended before it had recorded them",
                remedy="The rows are in their tables. The next run of the connection completes the load.",
            )

    def _run(self) -> None:
        try:
            ended: SyncEnded[Report] = SyncEnded(self._sync(self._cancel, self), None)
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: the step's thread raises it again
            ended = SyncEnded(None, error)
        self._messages.put(ended)
