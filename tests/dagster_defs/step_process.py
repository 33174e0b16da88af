"""Dagster's runs in processes of their own, to be killed or terminated, at the price of a fork.

It reads one JSON order a line from stdin, forks, runs the shop's assets in the child as a run worker does, and answers
with two lines: at once the child's process id, and later how the child ended. An order is {"home", "connection",
"instance": folder, "run": the id of its run, "crash": [point, n] | null, "retries": number}.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster._utils.interrupts import setup_interrupt_handlers

from dagster_airbyte_proto import points
from tests.dagster_defs.folder_shop import Options, resources, shop_assets
from tests.sync.house import Kill
from tests.sync.shop import Shop


class StepProcess:
    """One process that has imported everything, and forks for each run. One run at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, place: Shop, instance: Path, *, crash: Kill | None = None, retries: int = 0) -> tuple[int, str]:
        """The process of a run that has begun, and the run's id. `end` it before the next one."""
        assert self._process.stdin is not None
        run_id = str(uuid4())
        order = {
            "home": str(place.home),
            "connection": str(place.connection_file),
            "instance": str(instance),
            "run": run_id,
            "crash": list(crash) if crash else None,
            "retries": retries,
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer(), run_id

    def end(self) -> int:
        """Waits for the run; its exit code, or minus the signal."""
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def opened(folder: Path) -> dg.DagsterInstance:
    """The instance that keeps everything in the folder, for any process."""
    folder.mkdir(exist_ok=True)
    return dg.DagsterInstance.local_temp(str(folder), overrides={"telemetry": {"enabled": False}})


def _arm(crash: Kill | None) -> None:
    lock, reached = threading.Lock(), dict.fromkeys(points.POINTS, 0)

    def hook(point: str) -> None:
        with lock:
            reached[point] += 1
            if crash is not None and list(crash) == [point, reached[point]]:
                os.kill(os.getpid(), signal.SIGKILL)

    points.arm(hook)


def _carry_out(order: dict[str, Any]) -> int:
    _arm(order["crash"])
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


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = _carry_out(json.loads(line))
            except BaseException:  # noqa: BLE001 - the edge of the process: nobody else would tell why it ended
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(child, flush=True)  # noqa: T201 - stdout is how it answers
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
