"""Runs tasks as processes of this machine, in the place of a cluster's executors."""

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

from dagster_airbyte_proto.tables.tasks import DriverPlace, Task

_LOOPBACK = "127.0.0.1"


class ProcessTasks:
    """A TaskRunner with a process for each attempt of a task. `max_attempts` is as Spark's default."""

    def __init__(self, max_attempts: int = 4) -> None:
        self._max_attempts = max_attempts
        self._interrupted: set[str] = set()
        self._processes: dict[str, list[multiprocessing.process.BaseProcess]] = {}
        self._lock = threading.Lock()

    @property
    def place(self) -> DriverPlace:
        return DriverPlace(_LOOPBACK, _LOOPBACK)

    @property
    def last_attempt(self) -> int | None:
        return self._max_attempts - 1 or None

    def processes(self, tag: str) -> list[int]:
        """The pids of the processes that were run with this tag."""
        with self._lock:
            return [process.pid for process in self._processes.get(tag, ()) if process.pid is not None]

    def run(self, task: Task, count: int, tag: str) -> str:
        with ThreadPoolExecutor(count) as pool:
            failures = list(pool.map(lambda number: self._run_one(task, number, tag), range(count)))
        return next(filter(None, failures), "")

    def interrupt(self, tag: str) -> None:
        with self._lock:
            self._interrupted.add(tag)
            for process in self._processes.get(tag, ()):
                process.kill()

    def _run_one(self, task: Task, number: int, tag: str) -> str:
        failure = ""
        for attempt in range(self._max_attempts):
            process = multiprocessing.get_context("spawn").Process(target=task, args=(number, attempt))
            with self._lock:
                if tag in self._interrupted:
                    return "the tasks were interrupted"
                process.start()
                self._processes.setdefault(tag, []).append(process)
            process.join()
            if process.exitcode == 0:
                return ""
            failure = f"task {number} ended with exit code {process.exitcode}"
        return failure
