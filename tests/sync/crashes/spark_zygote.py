"""Syncs in processes that are killed, with a session that is not: it belongs to the tests, and whatever a dead process
asked it for it still does. What takes a JVM seconds to begin is there already."""

import os
from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tests.support.fork_server import serve
from tests.sync.crashes.zygote import Zygote, carry_out

_LATE_MODULES = ("dagster_airbyte_proto.tables.iceberg.tables", "dagster_airbyte_proto.tables.delta.tables")


class SparkZygote(Zygote):
    """Each sync has a session of its own in the JVM of the one that is given, and a door of its own to it: what a dead
    process held there is let go of when its door is shut, and would be kept for good otherwise."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__(module=__name__)
        self._session = session
        self._door: Any = None

    def fork(self, order: Mapping[str, Any]) -> int:
        jvm = self._session.sparkContext._jvm
        assert jvm is not None
        self._door = jvm.org.apache.spark.api.python.Py4JServer(jvm.SparkConf())
        self._door.start()
        return super().fork({**order, "door": [self._door.getListeningPort(), self._door.secret()]})

    def end(self) -> int:
        try:
            return super().end()
        finally:
            self._door.shutdown()


def _carry_out(order: dict[str, Any]) -> int:
    port, secret = order["door"]
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # pyspark does not annotate it
    context = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    ours = SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    SparkSession(ours, gateway.jvm.SparkSession.getDefaultSession().get().newSession())
    return carry_out(order)


if __name__ == "__main__":
    serve(_carry_out, *_LATE_MODULES)
