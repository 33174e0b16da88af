"""Syncs in processes that are killed, with a session that is not: it belongs to the tests, and whatever a dead process
asked it for it still does. What takes a JVM seconds to begin is there already."""

from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tests.fork_server import serve
from tests.sync.zygote import Zygote, carry_out

_LATE_MODULES = ("dagster_airbyte_proto.tables.iceberg", "dagster_airbyte_proto.tables.delta")


class SparkZygote(Zygote):
    """Each sync has a session of its own in the JVM of the one that is given."""

    def __init__(self, session: SparkSession) -> None:
        gateway = session.sparkContext._gateway
        assert gateway is not None
        door = gateway.gateway_parameters
        environment = {"PYSPARK_GATEWAY_PORT": str(door.port), "PYSPARK_GATEWAY_SECRET": door.auth_token}
        super().__init__(environment, __name__)


def _carry_out(order: dict[str, Any]) -> int:
    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # pyspark does not annotate it
    context = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    ours = SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    SparkSession(ours, gateway.jvm.SparkSession.getDefaultSession().get().newSession())
    return carry_out(order)


if __name__ == "__main__":
    serve(_carry_out, *_LATE_MODULES)
