"""Measures the transport to and from a connector in a container beside one in a process: `python -m bench.transport`.

The same program sends the same file, and its output is discarded: once from an image with a shell, whose output does
not pass the daemon, and once from an image without. Another program discards the same file, written to its stdin. CPU
seconds for a gigabyte: of this process, and of the daemon with what it runs beside a container. Rounds alternate;
medians.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from bench import replay_source
from bench.generate import Recipe, generate
from bench.process_tree import GIGABYTE
from bench.report import publish, table
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.docker.daemon import open_daemon
from dagster_airbyte_proto.launchers.docker.launcher import Confinement, DockerLauncher
from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.process import Launcher, RunningConnector
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation
from tests.support.containers.images import python_image

_ROOT = Path(__file__).parent.parent
_DATA = _ROOT / ".bench" / "data"
_PROGRAM = Path(replay_source.__file__)
_MARK = "transport"
_TIMES = 4
_BLOCK_BYTES = 1 << 20
_DISCARD = "import collections, os; collections.deque(iter(lambda: os.read(0, 1 << 20), bytes()), 0)"


class Transfer(NamedTuple):
    """One reading of a connector's whole output, or one writing of its input."""

    size_bytes: int
    wall_seconds: float
    our_seconds: float
    daemon_seconds: float


def _daemons_seconds() -> dict[int, float]:
    """Of each process that is Docker's daemon or its; one for a container goes as that ends."""
    found = {}
    for process in psutil.process_iter(["name"]):
        if process.info["name"] in ("dockerd", "containerd", "containerd-shim"):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
    return found


def _measure(connector: RunningConnector, transfer: Callable[[RunningConnector], int]) -> Transfer:
    """Measures what a transfer takes. It returns its size, and reads the output to its end."""
    began, ours, theirs = time.monotonic(), time.process_time(), _daemons_seconds()
    size = transfer(connector)
    wall, ours = time.monotonic() - began, time.process_time() - ours
    theirs_since = sum(seconds - theirs.get(pid, 0.0) for pid, seconds in _daemons_seconds().items())
    report = connector.wait(60)
    if report is None or not report.ended_cleanly:
        raise RuntimeError(f"the connector {report.how_it_ended if report else 'does not end'}")
    return Transfer(size, wall, ours, theirs_since)


def _read(launcher: Launcher, recording: str, catalog: str) -> Transfer:
    streams = [{"stream": {"name": "users"}}]
    files = {
        "config.json": json.dumps({"recording": recording, "catalog": catalog, "repeat": _TIMES}).encode(),
        "catalog.json": json.dumps({"streams": streams}).encode(),
    }
    arguments = ("read", "--config", FileArgument("config.json"), "--catalog", FileArgument("catalog.json"))
    return _measure(launcher.launch(Invocation(arguments, files), environment={}), _read_all)


def _read_all(connector: RunningConnector) -> int:
    size = 0
    while chunk := connector.read(60):
        size += len(chunk)
    return size


def _write(launcher: Launcher, data: bytes) -> Transfer:
    def write_all(connector: RunningConnector) -> int:
        rest = memoryview(data)
        while rest:
            rest = rest[connector.write(rest[:_BLOCK_BYTES], 60) :]
        connector.close_input()
        return len(data) + _read_all(connector)

    return _measure(launcher.launch(Invocation((), takes_input=True), environment={}), write_all)


@contextmanager
def _contenders(recording: Path, catalog: Path) -> Iterator[dict[str, Callable[[], Transfer]]]:
    volumes = (f"{recording}:/recording:ro", f"{catalog}:/catalog:ro")
    program = ["-S", "/replay_source.py"]
    with (
        python_image({"/replay_source.py": _PROGRAM}, program) as image,
        python_image({"/replay_source.py": _PROGRAM}, program, has_shell=False) as bare,
        python_image({}, ["-S", "-c", _DISCARD]) as destination,
    ):
        process = LocalLauncher((sys.executable, "-S", str(_PROGRAM)))
        confinement = Confinement(network="none", volumes=volumes)
        contained = {
            "docker": DockerLauncher(image.launched(), confinement),
            "docker, by its daemon": DockerLauncher(bare.launched(), confinement),
        }
        transfers: dict[str, Callable[[], Transfer]] = {"local": partial(_read, process, str(recording), str(catalog))}
        transfers |= {name: partial(_read, launcher, "/recording", "/catalog") for name, launcher in contained.items()}
        written: dict[str, Launcher] = {
            "local, written": LocalLauncher((sys.executable, "-S", "-c", _DISCARD)),
            "docker, written": DockerLauncher(destination.launched(), Confinement(network="none")),
        }
        data = recording.read_bytes()
        yield transfers | {name: partial(_write, launcher, data) for name, launcher in written.items()}


def _row(name: str, transfers: list[Transfer]) -> tuple[str, ...]:
    gigabytes = transfers[0].size_bytes / GIGABYTE
    seconds = (statistics.median(getattr(each, field) for each in transfers) for field in Transfer._fields[1:])
    wall, ours, daemons = seconds
    told = f"{daemons / gigabytes:.2f}" if not name.startswith("local") else ""
    return name, f"{gigabytes:.2f}", f"{1000 * gigabytes / wall:.0f}", f"{ours / gigabytes:.2f}", told


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.transport", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=Path, help="put the table into this document, between its marks")
    chosen = parser.parse_args()
    try:
        open_daemon()
    except ConfigError as error:
        print(f"not measured: {error}")
        return
    _DATA.mkdir(parents=True, exist_ok=True)
    recipe = Recipe()
    made = generate(recipe, _DATA / f"{recipe.name}.jsonl")
    transfers: dict[str, list[Transfer]] = {}
    with _contenders(made.path, made.catalog_path) as contenders:
        for _ in range(chosen.rounds):
            for name, transfer in contenders.items():
                transfers.setdefault(name, []).append(transfer())
    heads = ["launch", "GB", "MB/s", "our CPU s per GB", "the daemon's"]
    publish(table(heads, [_row(name, each) for name, each in transfers.items()]), chosen.write, _MARK)


if __name__ == "__main__":
    main()
