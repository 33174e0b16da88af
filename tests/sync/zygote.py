"""Real processes for tests that kill them, at the price of a fork: this one has imported everything and nothing else.

It reads one JSON order a line from stdin, forks, carries it out in the child and answers with two lines: at once the
child's process id, for whoever will stop or kill it from outside, and later how the child ended.
An order is {"home", "connection", "crash": [point, n] | null, "until": file | null, "points": file | null,
"report": file}. With `until` it does not die at the point: it waits there until that file is.
"""

import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from dagster_airbyte_proto import points
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run import sync_connection


def _arm(order: dict[str, Any]) -> None:
    lock, reached, pause = threading.Lock(), dict.fromkeys(points.POINTS, 0), threading.Event()

    def hook(point: str) -> None:
        with lock:
            reached[point] = reached.get(point, 0) + 1
            if order["points"]:
                with Path(order["points"]).open("a") as log:
                    log.write(f"{point}\n")
            if order["crash"] == [point, reached[point]]:
                if not order["until"]:
                    os.kill(os.getpid(), signal.SIGKILL)
                while not Path(order["until"]).exists():
                    pause.wait(0.01)

    points.arm(hook)


def _carry_out(order: dict[str, Any]) -> int:
    _arm(order)
    home = Path(order["home"])
    try:
        with Engine(Settings.load(home, home / "settings.yaml")) as engine:
            report = sync_connection(engine, Connection.from_file(order["connection"]))
    except ProtoError as error:
        Path(order["report"]).write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 2
    told = {**report.as_json(), "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    Path(order["report"]).write_text(json.dumps(told))
    return 0 if report.status == "complete" else 1


def main() -> None:
    faulthandler.enable()
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
        _answer(child)
        _, status = os.waitpid(child, 0)
        _answer(os.waitstatus_to_exitcode(status))


def _answer(number: int) -> None:
    print(number, flush=True)  # noqa: T201 - stdout is how it answers


if __name__ == "__main__":
    main()
