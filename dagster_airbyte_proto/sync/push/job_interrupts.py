"""Ends the Spark jobs of a push that is cancelled: a plan of many rows takes minutes, and nothing else would stop it.

- A plan is ended at once. Nothing of it is sealed yet.
- What is brought into the delivered table gets a few seconds first: whatever it does not bring in then, the next push
  does. The store has what is acknowledged.
- One of Spark's jobs that fails is not tried again here, but the next one of the same work would begin: so jobs are
  ended again and again until the work has ended.
"""

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, nullcontext

from dagster_airbyte_proto.errors import Cancelled, ConfigError, StagingError, TableError
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.tables.planner import PushPlanner, SupportsInterrupts

_POLL_SECONDS = 0.2
_AGAIN_SECONDS = 0.5


class JobInterrupts:
    """The work of a push for which Spark's jobs run. It belongs to the thread of the push."""

    def __init__(self, engine: Engine, cancel: threading.Event) -> None:
        self._engine, self._cancel = engine, cancel
        self._planner: PushPlanner | None = None
        self._is_over = threading.Event()

    @contextmanager
    def within(self, doing: str, stream: str, grace_seconds: float = 0.0) -> Iterator[None]:
        """Ends this work so many seconds after the push was cancelled. Then it raises Cancelled."""
        planner, tag = self._opened(doing, stream), f"airbyte-proto-{secrets.token_hex(8)}"
        self._is_over = is_over = threading.Event()
        ended = threading.Event()

        def watch() -> None:
            while not self._cancel.wait(_POLL_SECONDS):
                if ended.is_set():
                    return
            if ended.wait(grace_seconds):
                return
            is_over.set()
            while not ended.is_set():
                if isinstance(planner, SupportsInterrupts):
                    planner.interrupt(tag)
                ended.wait(_AGAIN_SECONDS)

        threading.Thread(target=watch, name="interrupts", daemon=True).start()
        try:
            with planner.tagged(tag) if isinstance(planner, SupportsInterrupts) else nullcontext():
                yield
        except (ConfigError, StagingError, TableError) as error:
            # Spark calls the end of a job its failure.
            if not is_over.is_set() or isinstance(error, Cancelled):
                raise
            raise Cancelled(doing, "it was cancelled", stream=stream) from error
        finally:
            ended.set()

    def check(self, doing: str, stream: str) -> None:
        """Raises Cancelled where the work within which this is called is to end."""
        if self._is_over.is_set():
            raise Cancelled(doing, "it was cancelled", stream=stream)

    def _opened(self, doing: str, stream: str) -> PushPlanner:
        """The planner of the engine's tables. Spark takes seconds to start, and that cannot be interrupted: it goes on
        in a thread that keeps no process from ending."""
        if self._planner is None:
            opening: Future[PushPlanner] = Future()
            threading.Thread(target=self._open_into, args=(opening,), name="planner", daemon=True).start()
            while not wait([opening], _POLL_SECONDS).done:
                if self._cancel.is_set():
                    raise Cancelled(doing, "it was cancelled before Spark had started", stream=stream)
            self._planner = opening.result()
        return self._planner

    def _open_into(self, opening: "Future[PushPlanner]") -> None:
        try:
            opening.set_result(self._engine.planner)
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: raised again where it is waited for
            opening.set_exception(error)
