"""Spark jobs that another thread ends: plans of pushes, tasks on executors, commits; and no others."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.plan_query import PlanQuery
from dagster_airbyte_proto.tables.changes.push_plan import SparkPlanner
from dagster_airbyte_proto.tables.spark.jvm.job_tags import inherited_tag, tagged_jobs
from dagster_airbyte_proto.tables.spark.tasks import SparkTasks

pytestmark = pytest.mark.spark

_FOR_EVER = "SELECT id FROM range(0, 1000000000000000, 1, 2) WHERE id % 7 = 9"
_MOST_SECONDS = 60.0


@contextmanager
def _interrupting(spark: SparkSession, interrupt: Callable[[], None]) -> Iterator[None]:
    """Calls `interrupt` from another thread once a job runs, until this has ended."""
    ended = threading.Event()

    def watch() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(0.1):
            if tracker.getActiveJobsIds():
                interrupt()

    thread = threading.Thread(target=watch)
    thread.start()
    began_at = time.monotonic()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert time.monotonic() - began_at < _MOST_SECONDS


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_plan_without_an_end_is_ended(
    spark: SparkSession, tmp_path: Path, keys: tuple[str, ...], eventually: Callable[[Callable[[], bool]], None]
) -> None:
    planner, tracker = SparkPlanner(spark), spark.sparkContext.statusTracker()
    others = set(tracker.getActiveJobsIds())  # Of tests before: Spark notes late that a job has ended.
    query = PlanQuery(stream="people", table=None, sql=_FOR_EVER, fields=(), keys=keys, fingerprint="f")
    with (
        pytest.raises((ConfigError, TableError), match="cancelled"),
        _interrupting(spark, lambda: planner.interrupt("mine")),
        planner.tagged("mine"),
    ):
        planner.write(query, str(tmp_path / "plan"))
    eventually(lambda: set(tracker.getActiveJobsIds()) <= others)
    assert planner.write(query._replace(sql="SELECT 1 AS id"), str(tmp_path / "next")).rows == 1


def test_tasks_are_ended_by_the_thread_that_waits_for_them(spark: SparkSession) -> None:
    def wait_for_ever(_number: int, _attempt: int) -> None:
        threading.Event().wait(600)

    tasks = SparkTasks(spark)
    with _interrupting(spark, lambda: tasks.interrupt("tasks")):
        assert "cancelled" in tasks.run(wait_for_ever, 1, "tasks")


@pytest.mark.parametrize(
    ("master", "settings", "last"),
    [
        ("spark://driver:7077", {}, 3),
        ("local-cluster[2, 1, 1024]", {"spark.task.maxFailures": "2"}, 1),
        ("yarn", {"spark.task.maxFailures": "1"}, None),
        ("yarn", {"spark.speculation": "true"}, None),
        ("local[2]", {}, None),
    ],
)
def test_the_last_attempt_of_a_task_is_known_where_one_follows_the_other(
    master: str, settings: dict[str, str], last: int | None
) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master, getConf=lambda: settings))
    assert SparkTasks(session).last_attempt == last


def test_a_thread_takes_over_the_tag_of_the_one_that_it_works_for(spark: SparkSession) -> None:
    found: dict[str, set[str]] = {}

    def look(name: str) -> None:
        with inherited_tag(spark):
            found[name] = set(spark.sparkContext.getJobTags())

    with tagged_jobs(spark, "ours"):
        look("itself")
        worker = threading.Thread(target=copy_context().run, args=(look, "worker"))
        other = threading.Thread(target=look, args=("other",))
        for thread in (worker, other):
            thread.start()
            thread.join()
        assert set(spark.sparkContext.getJobTags()) == {"ours"}
    assert found == {"itself": {"ours"}, "worker": {"ours"}, "other": set()}
    assert not set(spark.sparkContext.getJobTags())


def test_jobs_with_another_tag_go_on(spark: SparkSession, tmp_path: Path) -> None:
    planners = {name: SparkPlanner(spark) for name in ("mine", "other")}
    query = PlanQuery(stream="people", table=None, sql=_FOR_EVER, fields=(), keys=(), fingerprint="f")

    def plan(name: str) -> None:
        with suppress(ConfigError, TableError), planners[name].tagged(name):
            planners[name].write(query, str(tmp_path / name))

    threads = {name: threading.Thread(target=plan, args=(name,)) for name in planners}
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        assert thread.is_alive()
        with _interrupting(spark, partial(planners[name].interrupt, name)):
            thread.join(_MOST_SECONDS)
        assert not thread.is_alive()
