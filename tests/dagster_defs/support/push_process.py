"""Dagster's runs of a push in processes of their own, to be terminated; see support/fork_server.py."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster._utils.interrupts import setup_interrupt_handlers

from dagster_airbyte_proto import ConnectorResource, build_push_assets
from dagster_airbyte_proto.connection import Connection
from tests.dagster_defs.support.folder_shop import FolderIOManager
from tests.dagster_defs.support.step_process import LATE_MODULES, opened
from tests.support.fork_server import ForkServer, serve
from tests.sync.push.pushed_table import PushedTable


class PushProcess(ForkServer):
    """Runs the assets of a push as a run worker does, one run at a time."""

    def __init__(self) -> None:
        super().__init__(__name__)

    def start(self, table: PushedTable, connection_file: Path) -> tuple[int, str]:
        """The process of a run that has begun, and the run's id. `end` it before the next one."""
        run_id = str(uuid4())
        order = {
            "home": str(table.home),
            "connection": str(connection_file),
            "instance": str(table.folder / "dagster"),
            "run": run_id,
        }
        return self.fork(order), run_id


def _carry_out(order: dict[str, Any]) -> int:
    setup_interrupt_handlers()
    policy = dg.RetryPolicy(max_retries=2)
    job = dg.Definitions(
        assets=[build_push_assets(Connection.from_file(order["connection"]), retry_policy=policy)],
        jobs=[dg.define_asset_job("all")],
        resources={
            "connector": ConnectorResource(home=order["home"]),
            "io_manager": FolderIOManager(warehouse=str(Path(order["home"], "warehouse"))),
        },
        executor=dg.in_process_executor,
    ).resolve_job_def("all")
    with opened(Path(order["instance"])) as instance:
        result = job.execute_in_process(instance=instance, run_id=order["run"], raise_on_error=False)
    return 0 if result.success else 1


if __name__ == "__main__":
    serve(_carry_out, *LATE_MODULES)
