"""Threads, arrays and collections of Java, as py4j has them."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyspark
from py4j.java_gateway import JavaMember
from pyspark.sql import SparkSession


def use_session(session: SparkSession) -> None:
    """Makes the session the active one of this thread.

    A new thread of the gateway has none, and Java code takes the active one: catalogs their config, Delta its logs.
    """
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


def java_array(gateway: Any, kind: Any, values: Sequence[Any]) -> Any:
    array = gateway.new_array(kind, len(values))
    for i, value in enumerate(values):
        array[i] = value
    return array


def java_items(iterable: Any) -> Iterator[Any]:
    """Yields the items of a Java iterable.

    It calls Java's `next` itself: py4j's iterator treats any error as the end, and would silently drop the rest.
    """
    iterator = iterable.iterator()
    next_item = JavaMember("next", iterator, iterator._target_id, iterator._gateway_client)
    while iterator.hasNext():
        yield next_item()
