"""Kills real syncs at random moments, and checks that nothing is lost and nothing is there twice.

    python -m tests.soak --kills 2000 --tables folder     minutes: forked processes, no JVM
    python -m tests.soak --kills 100                      Iceberg: a command line and a JVM for each kill
    python -m tests.soak --kills 20 --through dagster     Iceberg: Dagster's run worker and a JVM for each kill
    python -m tests.soak --kills 20 --through connect     Iceberg on a Connect server, which goes on or is killed;
                                                          with `--tables delta` Delta
    python -m tests.soak --kills 500 --tables folder --through push
                                                          pushes to fake destinations and components; `--through
                                                          relay`: relays;
                                                          with `--by command` a command line for each kill
    python -m tests.soak --kills 100 --tables folder --through executors
                                                          connectors in tasks of another process, which are killed too
    python -m tests.soak --kills 20 --through executors   Iceberg: connectors on the executors of a standalone cluster,
                                                          whose Pythons and JVMs are killed too
    python -m tests.soak --kills 100 --tables folder --launch docker
                                                          connectors in containers of an engine that is killed too
    python -m tests.soak --kills 0 --matrix               every point, mode and scope, and again in the recovery, on
                                                          Iceberg; with `--tables delta` on Delta
    python -m tests.soak --kills 0 --year 150             a year of so many days, beside a model: an hour on Iceberg

Each connection has a mode and a scope, both drawn. Its source has more records each time. Some syncs in a row are
killed, then one runs to its end and every row is counted. Kills come at a moment drawn from the length or from the
steps of the syncs before. They hit Python alone, the connector, its guardian, the JVM, or all of them at once; through
Dagster the run worker; with containers the connector's container, and Docker's daemon too; through Spark Connect the
server; on a cluster executors and the Pythons of their tasks. The first fault ends the soak with exit code 1, and the
home folder in which it happened stays.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from tests.soak.cluster_kills import KilledCluster, killed_cluster
from tests.soak.connect_server_kills import KilledServer
from tests.soak.containers import docker_daemon
from tests.soak.delivery_commands import DeliveryCommands
from tests.soak.delivery_kills import DeliverySoak, KilledPush, KilledRelay
from tests.soak.environments import Environment, open_environment, reading_session
from tests.soak.long_years import run_years
from tests.soak.random_kills import Soak
from tests.soak.tally import Tally, tell
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.killed_connection import SCOPES
from tests.sync.crashes.spark_connections import DeltaConnection, IcebergConnection
from tests.sync.crashes.spark_fork_server import SparkSyncForkServer
from tests.sync.crashes.sweep import SWEPT_MODES, killed_connection_of, sweep
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.push.push_fork_server import PushForkServer

_DELIVERIES: Mapping[str, tuple[Any, Any]] = {
    "push": (PushForkServer, KilledPush),
    "relay": (SyncForkServer, KilledRelay),
    "push by command": (DeliveryCommands, KilledPush),
    "relay by command": (DeliveryCommands, KilledRelay),
}
_CONNECTIONS: Mapping[str, type[FakeConnection]] = {
    "iceberg": IcebergConnection,
    "delta": DeltaConnection,
    "folder": FakeConnection,
}


class _Options(NamedTuple):
    kills: int
    tables: str
    through: str
    by: str
    launch: str
    matrix: bool
    year: int
    seed: int
    at_once: int


def _soak(environments: list[Environment], kills: int, seed: int) -> Tally:
    tally = Tally(kills)
    soaks = [
        Soak(environment, tally, random.Random(f"{seed} {number}")) for number, environment in enumerate(environments)
    ]
    with ThreadPoolExecutor(len(soaks)) as pool:
        try:
            list(pool.map(Soak.run, soaks))
        finally:
            tally.stop()
    return tally


def _soak_deliveries(root: Path, options: _Options) -> Tally:
    """Kills pushes or relays, in a thread for each processor."""
    tally = Tally(options.kills)
    server_class, killed_class = _DELIVERIES[options.through + (" by command" if options.by == "command" else "")]
    servers = [server_class() for _ in range(options.at_once)]
    soaks = []
    for number, server in enumerate(servers):
        place = root / str(number)
        place.mkdir()
        make = partial(killed_class, server=server)
        soaks.append(DeliverySoak(place, make, tally, random.Random(f"{options.seed} {number}")))
    with ThreadPoolExecutor(len(soaks)) as pool:
        try:
            list(pool.map(DeliverySoak.run, soaks))
        finally:
            tally.stop()
    for server in servers:
        server.close()
    return tally


def _matrix(root: Path, tables: str, session: SparkSession | None, at_once: int) -> None:
    """Runs the crash sweep of the tests. Raises AssertionError at the first fault, and leaves its home folder."""
    connection_class = _CONNECTIONS[tables]

    def connection(place: Path, protocol: str) -> FakeConnection:
        found = (
            connection_class(place, session)
            if session and issubclass(connection_class, IcebergConnection)
            else FakeConnection(place)
        )
        found.protocol = protocol
        return found

    servers = [SparkSyncForkServer(session) if session else SyncForkServer() for _ in range(at_once)]
    of_airbyte = [(mode, scope, "airbyte") for mode in SWEPT_MODES for scope in SCOPES]
    for mode, scope, protocol in (*of_airbyte, ("append", "global", "singer")):
        folder = root / f"{mode}-{scope}-{protocol}"
        sweep(killed_connection_of(mode, scope, partial(connection, protocol=protocol)), servers, folder)
        shutil.rmtree(folder)
        where = f"{protocol}, {mode}, {scope} state"
        tell(f"matrix of {tables}: {where}: killed at every point, and again in its recovery")
    for server in servers:
        server.close()


def _options(words: list[str]) -> _Options:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="how many syncs to kill")
    parser.add_argument("--tables", choices=tuple(_CONNECTIONS), default="iceberg")
    parser.add_argument(
        "--through",
        choices=("engine", "executors", "dagster", "connect", "push", "relay"),
        default="engine",
        help="all but engine fix --tables",
    )
    parser.add_argument("--by", choices=("fork", "command"), default="fork", help="how a push or a relay is started")
    parser.add_argument("--launch", choices=("local", "docker"), default="local", help="docker takes folder tables")
    parser.add_argument("--matrix", action="store_true", help="and then every point, mode and scope")
    parser.add_argument("--year", type=int, default=0, metavar="DAYS", help="and then a year of a connection")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument(
        "--at-once", type=int, default=0, metavar="N", help="default: processors; 1 where each has a JVM"
    )
    arguments = parser.parse_args(words)
    if arguments.tables == "delta" and arguments.through == "executors":
        parser.error("--through executors takes --tables folder or iceberg")
    if (arguments.tables, arguments.through) == ("iceberg", "executors") and (
        arguments.matrix or arguments.year or arguments.at_once > 1 or not arguments.kills
    ):
        parser.error("--through executors on Iceberg takes kills, one at a time")
    if arguments.tables != "iceberg" and arguments.through == "dagster":
        parser.error("--through dagster takes --tables iceberg")
    if arguments.tables == "folder" and arguments.through == "connect":
        parser.error("--through connect takes --tables iceberg or delta")
    if arguments.through == "connect" and (arguments.matrix or arguments.year or arguments.at_once > 1):
        parser.error("--through connect takes kills, one at a time")
    if arguments.through in _DELIVERIES and (arguments.tables != "folder" or arguments.launch == "docker"):
        parser.error(f"--through {arguments.through} takes --tables folder")
    if arguments.by == "command" and arguments.through not in _DELIVERIES:
        parser.error("--by command takes --through push or relay")
    if arguments.tables == "delta" and arguments.through != "connect" and (arguments.kills or arguments.year):
        parser.error("--tables delta takes --kills 0 --matrix, or --through connect")
    if arguments.launch == "docker" and (
        arguments.tables != "folder" or arguments.matrix or arguments.year or arguments.at_once > 1
    ):
        parser.error("--launch docker takes --tables folder and kills, one at a time")
    if arguments.launch == "docker":
        arguments.at_once = 1
    has_jvms = arguments.tables != "folder" and (arguments.kills or arguments.year)
    at_once = arguments.at_once or (1 if has_jvms else os.cpu_count() or 1)
    return _Options(
        arguments.kills,
        arguments.tables,
        arguments.through,
        arguments.by,
        arguments.launch,
        arguments.matrix,
        arguments.year,
        arguments.seed,
        at_once,
    )


def main(words: list[str]) -> int:
    options = _options(words)
    tell(f"soak of {options.kills} kills on {options.tables} tables through {options.through}, --seed {options.seed}")
    # A killed process loses nothing of what is in memory, and syncing it to there costs nothing.
    fast = "/dev/shm" if options.tables == "folder" and Path("/dev/shm").is_dir() else None
    root = Path(tempfile.mkdtemp(prefix="airbyte-proto-soak-", dir=fast))
    if options.through in _DELIVERIES:
        tally = _soak_deliveries(root, options)
        tell(str(tally))
        if not tally.faults:
            shutil.rmtree(root)
        return 1 if tally.faults else 0
    with ExitStack() as open_things:
        is_remote = options.through == "connect"
        has_session = options.tables != "folder" and not is_remote
        session = open_things.enter_context(reading_session(root, options.tables)) if has_session else None
        daemon = open_things.enter_context(docker_daemon()) if options.launch == "docker" else None
        server: KilledServer | KilledCluster | None = None
        if is_remote:
            server = open_things.enter_context(KilledServer(root / "server"))
        if options.through == "executors" and has_session:
            server = open_things.enter_context(killed_cluster(root / "cluster"))
        environments = [
            open_things.enter_context(
                open_environment(root / str(number), session, options.through, daemon, server, options.tables)
            )
            for number in range(options.at_once)
        ]
        tally = _soak(environments, options.kills, options.seed)
        if options.matrix and not tally.faults:
            _matrix(root / "matrix", options.tables, session, options.at_once)
        if options.year and not tally.faults:
            run_years(root / "years", session, options.year, options.seed)
    if options.kills:
        tell(str(tally))
    if tally.faults:
        return 1
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
