"""Copies of a Spark session, with its views and settings of their own: others may use the session meanwhile."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.remote_sessions import is_remote

_COPY = "_airbyte_proto_copy"
_one_at_a_time = threading.Lock()


@contextmanager
def copy_with(session: SparkSession, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yields a copy of the session that has these settings too."""
    if is_remote(session):
        with _remote_copy_with(session, settings) as copy:
            yield copy
        return
    copy = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    for key, value in settings.items():
        copy.conf.set(key, value)
    yield copy


def kept_copy(session: SparkSession) -> Any:
    """The copy that a session of Spark Connect has, or None."""
    return vars(session).get(_COPY)


@contextmanager
def _remote_copy_with(session: SparkSession, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yields the copy of a session of Spark Connect, for the one thread that may have it.

    There is one copy for each session, and it lives as long: pyspark closes a session that is no longer used when
    Python happens to collect it, in whatever thread, and waits there for requests of all sessions. That was seen to
    wait for itself.
    """
    with _one_at_a_time:
        kept: dict[str, Any] = vars(session)
        copy = kept.get(_COPY) or kept.setdefault(_COPY, cast(Any, session).cloneSession())
        # One limit for both: where one found the server gone, the other one need not wait for it again.
        copy.client.set_retry_policies(cast(Any, session).client.get_retry_policies())
        tags = tuple(cast(Any, session).getTags())
        try:
            for key, value in settings.items():
                copy.conf.set(key, value)
            for tag in tags:
                copy.addTag(tag)
            yield copy
        finally:
            for tag in tags:
                copy.removeTag(tag)
            for key in settings:
                copy.conf.unset(key)
