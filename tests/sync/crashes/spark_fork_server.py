"""Syncs and pushes in processes that are killed, with a Spark session that is not: it belongs to the tests.

The JVM still does what a killed process requested. No process waits for a JVM to start.
"""

import os
from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tests.support.fork_server import ForkServer, serve
from tests.sync.crashes import sync_fork_server
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.push import push_fork_server
from tests.sync.push.push_fork_server import PushForkServer

_LATE_MODULES = ("dagster_airbyte_proto.tables.iceberg.tables", "dagster_airbyte_proto.tables.delta.tables")


class _SparkForkServer(ForkServer):
    """Gives each process its own session in the JVM of `session`, and its own Py4J gateway. Closing the gateway
    releases the JVM objects of a dead process, which would otherwise stay for ever."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__(module=__name__)
        self._session = session
        self._gateway: Any = None

    def fork(self, order: Mapping[str, Any]) -> int:
        jvm = self._session.sparkContext._jvm
        assert jvm is not None
        self._gateway = jvm.org.apache.spark.api.python.Py4JServer(jvm.SparkConf())
        self._gateway.start()
        return super().fork({**order, "gateway": [self._gateway.getListeningPort(), self._gateway.secret()]})

    def end(self) -> int:
        try:
            return super().end()
        finally:
            self._gateway.shutdown()


class SparkSyncForkServer(_SparkForkServer, SyncForkServer):
    """Runs syncs."""


class SparkPushForkServer(_SparkForkServer, PushForkServer):
    """Runs pushes."""


def _carry_out(order: dict[str, Any]) -> int:
    port, secret = order["gateway"]
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # pyspark does not annotate it
    context = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    ours = SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    SparkSession(ours, gateway.jvm.SparkSession.getDefaultSession().get().newSession())
    is_sync = "request" in order
    return sync_fork_server.carry_out(order) if is_sync else push_fork_server.carry_out(order)


if __name__ == "__main__":
    serve(_carry_out, *_LATE_MODULES)
