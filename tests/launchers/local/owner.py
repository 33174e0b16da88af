"""A process of ours that runs the fake connector, to be killed. Prints what the connector printed, then sleeps.

`python owner.py RUNS_FOLDER BEHAVIOUR [copy | slow_death]`. With `copy` it forks itself: the copy holds all it holds.
With `slow_death` it closes its files and dies half a second later, as the kernel does it on a busy machine.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.process import LaunchOptions, RunningConnector
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation

FAKE_CONNECTOR = Path(__file__).parents[1] / "fake_connector.py"


def main(runs_folder: str, behaviour: str, *options: str) -> None:
    launcher = LocalLauncher(
        [sys.executable, "-S", str(FAKE_CONNECTOR)], options=LaunchOptions(runs_folder=Path(runs_folder))
    )
    invocation = Invocation((behaviour, FileArgument("config.json")), {"config.json": b"secret"})
    launched: list[RunningConnector] = []
    # In a thread that ends at once: what is bound to the thread that forked must not end the connector.
    thread = threading.Thread(target=lambda: launched.append(launcher.launch(invocation, environment={})))
    thread.start()
    thread.join()
    said = launched[0].read(30) or b""
    copy = b""
    if "copy" in options:
        child = os.fork()
        if child == 0:
            time.sleep(600)
        copy = b" %d" % child
    os.write(1, said.rstrip(b"\n") + copy + b"\n")
    if "slow_death" in options:
        os.closerange(3, 1024)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
