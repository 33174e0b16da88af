"""The interface behind `run_on: executors`: who runs functions as tasks elsewhere."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

Task = Callable[[int, int], None]
"""Is called with the number of the task, and of the attempt, both from 0."""


class DriverPlace(NamedTuple):
    """Where tasks reach this process: its host for them, the address to listen at, and the port (0: any)."""

    host: str
    bind: str
    port: int = 0


class TaskRunner(Protocol):
    """Runs tasks. Spark does it for every real table (`tables/spark/tasks.py`)."""

    @property
    def place(self) -> DriverPlace: ...

    @property
    def last_attempt(self) -> int | None:
        """The number of the attempt that takes all other tasks along if it fails, too.

        None if it may be the first one, or if attempts of one task may work side by side.
        """
        ...

    def run(self, task: Task, count: int, tag: str) -> str:
        """Calls the task with each number below `count`, and waits for all. One whose process dies is tried again.

        Returns why it gave up, or "".
        """
        ...

    def interrupt(self, tag: str) -> None:
        """Kills the tasks that were run with this tag, if there are any."""
        ...


@runtime_checkable
class SupportsTasks(Protocol):
    """A writer whose tasks need no Spark."""

    def tasks(self) -> TaskRunner: ...
