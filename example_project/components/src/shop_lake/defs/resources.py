"""What every component runs by and writes to. State and tables lie in `.airbyte-proto`, where `dg` is called."""

import dagster as dg

from dagster_airbyte_proto import ConnectorResource, SparkSessionResource, SparkTableIOManager


@dg.definitions
def resources() -> dg.Definitions:
    tables = SparkTableIOManager(spark=SparkSessionResource())
    return dg.Definitions(resources={"connector": ConnectorResource(), "io_manager": tables})
