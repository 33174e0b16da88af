"""Runs of a connection into Iceberg, in processes that each start a Spark of their own; see support/fork_server.py."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import dagster as dg
import yaml
from dagster._utils.interrupts import setup_interrupt_handlers

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.assets import build_connector_assets
from dagster_airbyte_proto.dagster_defs.resources import ConnectorResource
from dagster_airbyte_proto.dagster_defs.tables.io_manager import SparkTableIOManager
from dagster_airbyte_proto.dagster_defs.tables.spark_resource import SparkSessionResource
from dagster_airbyte_proto.testing.fake_source import catalog_stream
from tests.dagster_defs.support.step_process import LATE_MODULES, opened
from tests.support.fork_server import ForkServer, Kill, arm, serve
from tests.sync.crashes.fake_connection import FakeConnection

_SPARK_MODULES = (
    "dagster_airbyte_proto.tables.spark.frames",
    "dagster_airbyte_proto.tables.iceberg.tables",
    "dagster_airbyte_proto.tables.spark.session",
)


class SparkSteps(ForkServer):
    """Materializes all streams of a connection as a run worker does, one run at a time: a Runner for lives. `spark` are
    Spark's settings beside the home's own."""

    def __init__(self, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(__name__, environment)
        self.run_id = ""

    def start(
        self, connection: FakeConnection, crash: Kill | None = None, spark: Mapping[str, str] = MappingProxyType({})
    ) -> int:
        """The process id of a run that has begun; its id in Dagster is `run_id`. `end` it before the next one."""
        connection.points_file.unlink(missing_ok=True)
        _save_catalog(connection)
        self.run_id = str(uuid4())
        order = {
            "folder": str(connection.home.parent),
            "run": self.run_id,
            "crash": crash,
            "points": str(connection.points_file),
            "report": str(connection.report_file),
            "spark": {**yaml.safe_load((connection.home / "settings.yaml").read_text())["spark"], **spark},
        }
        return self.fork(order)

    def sync(self, connection: FakeConnection, crash: Kill | None = None) -> int:
        self.start(connection, crash)
        return self.end()


def instance_of(connection: FakeConnection) -> dg.DagsterInstance:
    """The instance that knows the home's runs."""
    return opened(connection.home.parent / "dagster")


def _save_catalog(connection: FakeConnection) -> None:
    scenario = json.loads(
        Path(yaml.safe_load(connection.connection_file.read_text())["config"]["scenario"]).read_text()
    )
    streams = [catalog_stream(name, written) for name, written in scenario["streams"].items()]
    _catalog(connection.home.parent).write_text(json.dumps({"streams": streams}))


def _catalog(folder: Path) -> Path:
    return folder / "catalog.json"


def _carry_out(order: dict[str, Any]) -> int:
    folder = Path(order["folder"])
    report = Path(order["report"])
    os.dup2(os.open(report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    arm(tuple(order["crash"]) if order["crash"] else None, log=Path(order["points"]))
    setup_interrupt_handlers()
    with opened(folder / "dagster") as instance:
        job = _job(folder, order["spark"])
        result = job.execute_in_process(instance=instance, run_id=order["run"], raise_on_error=False)
    return 0 if result.success else 1


def _job(folder: Path, spark: Mapping[str, str]) -> dg.JobDefinition:
    home = folder / "home"
    assets = build_connector_assets(Connection.from_file(folder / "shop.yaml"), catalog=_catalog(folder))
    session = SparkSessionResource(
        warehouse=str(home / "warehouse"), spark_config=dict(spark), jvm_log=str(folder / "jvm.log"), short_lived=True
    )
    return dg.Definitions(
        assets=[assets],
        jobs=[dg.define_asset_job("all", [assets])],
        resources={
            "connector": ConnectorResource(home=str(home), lease_seconds=5.0),
            "io_manager": SparkTableIOManager(spark=session),
        },
        executor=dg.in_process_executor,
    ).resolve_job_def("all")


if __name__ == "__main__":
    serve(_carry_out, *LATE_MODULES, *_SPARK_MODULES)
