"""The resources of the project's components."""

import dagster as dg

from dagster_airbyte_proto import ConnectorResource, SparkSessionResource, SparkTableIOManager


@dg.definitions
def resources() -> dg.Definitions:
    tables = SparkTableIOManager(spark=SparkSessionResource())
    return dg.Definitions(resources={"connector": ConnectorResource(), "io_manager": tables})
