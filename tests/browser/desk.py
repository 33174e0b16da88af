"""A code location of one connection and its jobs, on tables that can be rolled back."""

import os
from pathlib import Path

import dagster as dg

from dagster_airbyte_proto import (
    Connection,
    ConnectorResource,
    SparkSessionResource,
    SparkTableIOManager,
    build_connection_jobs,
    build_connector_assets,
)

HERE = Path(__file__).parent
HOME = Path(os.environ["AIRBYTE_PROTO_HOME"])

desk = Connection.from_file(HERE / "desk.yaml")
assets = build_connector_assets(desk, catalog=HERE / "catalog.json")

defs = dg.Definitions(
    assets=[assets],
    jobs=build_connection_jobs(desk, assets=assets),
    resources={
        "connector": ConnectorResource(home=str(HOME)),
        "io_manager": SparkTableIOManager(spark=SparkSessionResource(warehouse=str(HOME / "warehouse"))),
    },
)
