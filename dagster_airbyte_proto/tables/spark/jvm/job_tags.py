"""Marks the Spark jobs of a thread with a tag, by which another thread ends them.

- In a session with a JVM the tag is one of Spark's context: the jobs that a thread starts carry it, whichever copy of
  the session has them. A session's own tags do not do: since Spark 4 they belong to a thread, and `interruptTag` finds
  only those of the thread that calls it.
- In a session of Spark Connect a tag belongs to a thread of its client. The copy of a session is a client of its own,
  which takes over the tags while it is used (`session_copies.py`).
- Only a running job can be ended. Whoever wants the next one to end too calls `interrupt_jobs` again and again.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.remote_sessions import is_remote
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS
from dagster_airbyte_proto.tables.spark.session_copies import kept_copy

_TAG: ContextVar[str] = ContextVar("the tag of Spark's jobs", default="")


@contextmanager
def tagged_jobs(session: SparkSession, tag: str) -> Iterator[None]:
    """Has the jobs that this thread starts meanwhile carry a tag."""
    before = _TAG.set(tag)
    try:
        with _marked(session, tag):
            yield
    finally:
        _TAG.reset(before)


@contextmanager
def inherited_tag(session: SparkSession) -> Iterator[None]:
    """Has the jobs that this thread starts meanwhile carry the tag of the thread whose context it runs in, if any."""
    with _marked(session, _TAG.get()):
        yield


def interrupt_jobs(session: SparkSession, tag: str) -> None:
    """Ends the running jobs with this tag: they fail. A server or a JVM that does not answer is left alone."""
    with suppress(PySparkException, *CALL_ERRORS):
        if not is_remote(session):
            session.sparkContext.cancelJobsWithTag(tag)
            return
        for each in (session, kept_copy(session)):
            if each is not None:
                each.interruptTag(tag)


@contextmanager
def _marked(session: SparkSession, tag: str) -> Iterator[None]:
    tags: Any = (_SessionTags(session) if is_remote(session) else session.sparkContext) if tag else None
    if tags is None or tag in tags.getJobTags():
        yield
        return
    tags.addJobTag(tag)
    try:
        yield
    finally:
        with suppress(PySparkException, *CALL_ERRORS):  # A JVM that is gone has no tags either.
            tags.removeJobTag(tag)


class _SessionTags:
    """The tags of a client of Spark Connect, under the names that those of a context have."""

    def __init__(self, session: SparkSession) -> None:
        self.getJobTags, self.addJobTag, self.removeJobTag = session.getTags, session.addTag, session.removeTag


class TaggedJobs:
    """The jobs of a Spark session, which another thread may end."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        return tagged_jobs(self._session, tag)

    def interrupt(self, tag: str) -> None:
        interrupt_jobs(self._session, tag)
