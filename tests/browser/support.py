"""A code location of one connection whose connector hangs: it stands beside the example in the tests' copy of it."""

import os
from pathlib import Path

import dagster as dg

from dagster_airbyte_proto import (
    Connection,
    ConnectorResource,
    SparkSessionResource,
    SparkTableIOManager,
    build_connector_assets,
)

HERE = Path(__file__).parent
HOME = Path(os.environ["AIRBYTE_PROTO_HOME"])

defs = dg.Definitions(
    assets=[build_connector_assets(Connection.from_file(HERE / "support.yaml"), catalog=HERE / "support.json")],
    resources={
        "connector": ConnectorResource(home=str(HOME)),
        "io_manager": SparkTableIOManager(
            spark=SparkSessionResource(warehouse=str(HOME / "warehouse"), short_lived=True)
        ),
    },
)
