"""Executors that die at named points."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dagster_airbyte_proto import points
from dagster_airbyte_proto.tables.tasks import Task
from dagster_airbyte_proto.testing.crash_points import crash_hook
from dagster_airbyte_proto.testing.folder.process_tasks import ProcessTasks


class ArmedTasks(ProcessTasks):
    """Tasks whose first attempts die, each at its point. The points that all of them reach are lines of the log."""

    def __init__(self, deaths: Sequence[str], log: Path) -> None:
        super().__init__()
        self._deaths, self._log = tuple(deaths), log

    def run(self, task: Task, count: int, tag: str) -> str:
        return super().run(partial(_armed, task, self._deaths, self._log), count, tag)


def _armed(task: Task, deaths: Sequence[str], log: Path, number: int, attempt: int) -> None:
    points.arm(crash_hook(deaths[attempt] if attempt < len(deaths) else "", log))
    task(number, attempt)
    os._exit(0)  # The interpreter's own end takes as long as a small sync.
