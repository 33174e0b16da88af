"""Measures reading a connector in a container beside reading it in a process: `python -m bench.transport`.

The same program sends the same file, and its output is discarded: once from an image with a shell, whose output does
not pass the daemon, and once from an image without. CPU seconds for a gigabyte: of this process, which reads, and of
the daemon with what it runs beside a container. Rounds alternate; medians.
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
from bench.report import put_into, table
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.docker.daemon import open_daemon
from dagster_airbyte_proto.launchers.docker.launcher import Confinement, DockerLauncher
from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.process import Launcher
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation
from tests.support.containers.images import python_image

_ROOT = Path(__file__).parent.parent
_DATA = _ROOT / ".bench" / "data"
_PROGRAM = Path(replay_source.__file__)
_MARK = "transport"
_TIMES = 4


class Read(NamedTuple):
    """One reading of a connector's whole output."""

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


def _read(launcher: Launcher, recording: str, catalog: str) -> Read:
    streams = [{"stream": {"name": "users"}}]
    files = {
        "config.json": json.dumps({"recording": recording, "catalog": catalog, "repeat": _TIMES}).encode(),
        "catalog.json": json.dumps({"streams": streams}).encode(),
    }
    arguments = ("read", "--config", FileArgument("config.json"), "--catalog", FileArgument("catalog.json"))
    connector = launcher.launch(Invocation(arguments, files), environment={})
    began, ours, theirs, size = time.monotonic(), time.process_time(), _daemons_seconds(), 0
    while chunk := connector.read(60):
        size += len(chunk)
    wall, ours = time.monotonic() - began, time.process_time() - ours
    theirs_since = sum(seconds - theirs.get(pid, 0.0) for pid, seconds in _daemons_seconds().items())
    read = Read(size, wall, ours, theirs_since)
    report = connector.wait(60)
    if report is None or not report.ended_cleanly:
        raise RuntimeError(f"the connector {report.how_it_ended if report else 'does not end'}")
    return read


@contextmanager
def _contenders(recording: Path, catalog: Path) -> Iterator[dict[str, Callable[[], Read]]]:
    volumes = (f"{recording}:/recording:ro", f"{catalog}:/catalog:ro")
    program = ["-S", "/replay_source.py"]
    with (
        python_image({"/replay_source.py": _PROGRAM}, program) as image,
        python_image({"/replay_source.py": _PROGRAM}, program, has_shell=False) as bare,
    ):
        process = LocalLauncher((sys.executable, "-S", str(_PROGRAM)))
        confinement = Confinement(network="none", volumes=volumes)
        contained = {
            "docker": DockerLauncher(image.launched(), confinement),
            "docker, by its daemon": DockerLauncher(bare.launched(), confinement),
        }
        yield {"local": lambda: _read(process, str(recording), str(catalog))} | {
            name: partial(_read, launcher, "/recording", "/catalog") for name, launcher in contained.items()
        }


def _row(name: str, reads: list[Read]) -> tuple[str, ...]:
    gigabytes = reads[0].size_bytes / GIGABYTE
    seconds = (statistics.median(getattr(each, field) for each in reads) for field in Read._fields[1:])
    wall, ours, daemons = seconds
    told = f"{daemons / gigabytes:.2f}" if name != "local" else ""
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
    reads: dict[str, list[Read]] = {}
    with _contenders(made.path, made.catalog_path) as contenders:
        for _ in range(chosen.rounds):
            for name, read in contenders.items():
                reads.setdefault(name, []).append(read())
    heads = ["launch", "GB", "MB/s", "our CPU s per GB", "the daemon's"]
    text = table(heads, [_row(name, each) for name, each in reads.items()])
    print(text)
    if chosen.write:
        put_into(chosen.write, text, mark=_MARK)


if __name__ == "__main__":
    main()
