"""The shop's job, for runs or steps in containers, made anew in each process that runs it."""

import json
import os
import sys
from pathlib import Path

import dagster as dg
from dagster_docker import docker_executor

from tests.dagster_defs.support.folder_shop import Options, resources, shop_assets
from tests.dagster_defs.support.step_process import opened

ORDER = "SHOP_IN_CONTAINERS"
"""The variable that says what to run, as JSON: the `connection`'s file, its `home`, and as `executor` the config of
a `docker_executor`, or null."""


def shop_job() -> dg.JobDefinition:
    order, options = json.loads(os.environ[ORDER]), Options()
    assets = shop_assets(Path(order["connection"]), options)
    config = order["executor"]
    executor = docker_executor.configured(config) if config else dg.in_process_executor
    return dg.Definitions(
        assets=[assets],
        jobs=[dg.define_asset_job("all", [assets], executor_def=executor)],
        resources=resources(Path(order["home"]), options),
    ).resolve_job_def("all")


def main(instance_folder: str) -> int:
    """The work of a run worker."""
    with opened(Path(instance_folder)) as instance:
        result = dg.execute_job(dg.reconstructable(shop_job), instance=instance, raise_on_error=False)
        sys.stdout.write(result.run_id)
    return 0 if result.success else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
