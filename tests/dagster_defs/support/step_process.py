"""Dagster's runs in processes of their own, to be killed or terminated; see support/fork_server.py."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster._utils.interrupts import setup_interrupt_handlers

from tests.dagster_defs.support.folder_shop import Options, resources, shop_assets
from tests.support.fork_server import ForkServer, Kill, arm, serve
from tests.sync.shop import Shop

# What an instance and a run import only when they are there.
LATE_MODULES = (
    "dagster._core.definitions.repository_definition.repository_data_builder",
    "dagster._core.execution.execute_in_process",
    "dagster._core.execution.plan.active",
    "dagster._core.executor.in_process",
    "dagster._core.instance.factory",
    "dagster._core.instance.runs",
    "dagster._core.secrets.env_file",
    "dagster._core.storage.event_log.sqlite",
    "dagster._core.storage.local_compute_log_manager",
    "dagster._core.storage.root",
    "dagster._core.storage.runs.sqlite",
    "dagster._core.storage.schedules.sqlite",
    "dagster._core.storage.sqlite_storage",
    "upath",
)


class StepProcess(ForkServer):
    """Runs the shop's assets as a run worker does, one run at a time."""

    def __init__(self) -> None:
        super().__init__(__name__)

    def start(self, place: Shop, instance: Path, *, crash: Kill | None = None, retries: int = 0) -> tuple[int, str]:
        """The process of a run that has begun, and the run's id. `end` it before the next one."""
        run_id = str(uuid4())
        order = {
            "home": str(place.home),
            "connection": str(place.connection_file),
            "instance": str(instance),
            "run": run_id,
            "crash": crash,
            "retries": retries,
        }
        return self.fork(order), run_id


def opened(folder: Path) -> dg.DagsterInstance:
    """The instance that keeps everything in the folder, for any process."""
    folder.mkdir(exist_ok=True)
    return dg.DagsterInstance.local_temp(str(folder), overrides={"telemetry": {"enabled": False}})


def _carry_out(order: dict[str, Any]) -> int:
    crash = order["crash"]
    arm(tuple(crash) if crash else None)
    setup_interrupt_handlers()
    retries = dg.RetryPolicy(max_retries=order["retries"]) if order["retries"] else None
    options = Options(retry_policy=retries)
    assets = shop_assets(Path(order["connection"]), options)
    job = dg.Definitions(
        assets=[assets],
        jobs=[dg.define_asset_job("all", [assets])],
        resources=resources(Path(order["home"]), options),
        executor=dg.in_process_executor,
    ).resolve_job_def("all")
    with opened(Path(order["instance"])) as instance:
        result = job.execute_in_process(instance=instance, run_id=order["run"], raise_on_error=False)
    return 0 if result.success else 1


if __name__ == "__main__":
    serve(_carry_out, *LATE_MODULES)
