"""Kills the process at every named point between two durable steps, and again while the next one recovers.

After every kill no state is ahead of its rows and old rows are readable. At the end each row is there exactly once, and
no file is left over.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dagster_airbyte_proto.points import BRANCH_POINTS, PARQUET_POINTS, POINTS
from dagster_airbyte_proto.tables.parquet import ABILITIES
from tests.support.fork_server import Kill
from tests.sync.crashes.fake_connection import (
    FakeConnection,
    ParallelConnection,
    ParquetConnection,
    TapConnection,
    TransformedConnection,
)
from tests.sync.crashes.killed_connection import SCOPES, KilledConnection, Runner
from tests.sync.crashes.sweep import SWEPT_MODES, killed_connection_of, sweep
from tests.sync.crashes.sync_fork_server import SyncForkServer

_BRANCH_DEATHS = ("load.announced", "load.promoted")
_AROUND_COMMITS: tuple[Kill, ...] = (("recover.begun", 1), ("load.committed", 1))
_WHERE_PARQUET_RECOVERS_OTHERWISE = {"table.committed", *PARQUET_POINTS}


@pytest.fixture(scope="module")
def servers() -> Iterator[list[SyncForkServer]]:
    pair = [SyncForkServer(), SyncForkServer()]
    yield pair
    for server in pair:
        server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is /dev/shm: a killed process loses nothing in it, and fsync costs nothing."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(dir="/dev/shm", prefix="airbyte-proto-") as made:
        yield Path(made)


@pytest.mark.timeout(900)
def test_dying_at_any_point_loses_and_doubles_nothing(servers: list[SyncForkServer], folder: Path) -> None:
    """The tests below are those of a second death, in the recovery."""

    def die(killed: KilledConnection, kills: Iterable[Kill]) -> None:
        for kill in kills:
            killed.survive(kill)

    sweep(killed_connection_of("append_dedup", "stream", FakeConnection), servers, folder, die)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("mode", "scope", "connection"),
    [
        *((mode, scope, FakeConnection) for mode in SWEPT_MODES for scope in SCOPES),
        ("append", "global", TapConnection),
        ("append_dedup", "stream", TransformedConnection),
        *((mode, "stream", ParallelConnection) for mode in SWEPT_MODES),
    ],
)
def test_dying_at_any_point_and_again_in_recovery_loses_and_doubles_nothing(
    mode: str, scope: str, connection: type[FakeConnection], servers: list[SyncForkServer], folder: Path
) -> None:
    sweep(killed_connection_of(mode, scope, connection), servers, folder)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_dying_where_an_unfinished_generation_is_dropped_loses_and_doubles_nothing(
    servers: list[SyncForkServer], folder: Path
) -> None:
    killed = KilledConnection(
        servers[0], FakeConnection(folder), SWEPT_MODES["overwrite"], "stream", refreshes="dropped"
    )
    killed.survive()
    for first in _BRANCH_DEATHS:
        dropping = killed.survive((first, 1))
        for second in (*dropping, *BRANCH_POINTS):
            killed.survive((first, 1), (second, 1))
    assert killed.reached.keys() >= set(BRANCH_POINTS)


@pytest.mark.timeout(900)
def test_dying_where_a_generation_changes_the_columns_shows_old_ones_or_new_ones(
    servers: list[SyncForkServer], folder: Path
) -> None:
    modes = SWEPT_MODES["overwrite"]
    killed = KilledConnection(
        servers[0], FakeConnection(folder), modes, "stream", refreshes="resumed", changes_columns=True
    )
    killed.survive()
    # The last load publishes the generations.
    last = Counter(killed.connection.points)
    killed.survive(("table.committed", 1))
    killed.survive(("load.announced", last["load.announced"]), ("table.committed", 1))


@pytest.mark.timeout(900)
def test_dying_around_a_commit_of_transformed_rows_loses_and_doubles_nothing(
    servers: list[SyncForkServer], folder: Path
) -> None:
    connection = TransformedConnection(folder)
    killed = KilledConnection(servers[0], connection, SWEPT_MODES["append_dedup"], "stream")
    killed.survive()
    for point in ("load.staged", "load.announced", "load.committed"):
        killed.survive((point, 1), ("load.promoted", 1))
    assert connection.column("users", "next") == [number + 1 for number in connection.column("users")]


@pytest.mark.timeout(900)
def test_dying_while_two_groups_of_streams_are_read_loses_and_doubles_nothing(
    servers: list[SyncForkServer], folder: Path
) -> None:
    connection = ParallelConnection(folder)
    killed = KilledConnection(servers[0], connection, SWEPT_MODES["append_dedup"], "stream")
    killed.survive()
    killed.survive()
    assert connection.report["processes"] == 2
    last = Counter(connection.points)
    killed.survive(("run.delivered", 1))
    for kill in (("load.announced", 2), ("table.committed", last["table.committed"])):
        killed.survive(kill, ("recover.begun", 1))


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", sorted(mode.value for mode in ABILITIES.modes))
def test_dying_at_any_point_on_plain_parquet_loses_and_doubles_nothing(
    mode: str, servers: list[SyncForkServer], folder: Path
) -> None:
    """Recovery differs from that of folder tables only after a commit."""

    def open_connection(place: Path, runner: Runner) -> KilledConnection:
        return KilledConnection(runner, ParquetConnection(place), mode, "stream")

    def die(killed: KilledConnection, kills: Iterable[Kill]) -> None:
        for point, reaching in kills:
            killed.survive((point, reaching))
            for second in _AROUND_COMMITS if reaching == 1 and point in _WHERE_PARQUET_RECOVERS_OTHERWISE else ():
                killed.survive((point, reaching), second)

    sweep(open_connection, servers, folder, die, points=(*POINTS, *PARQUET_POINTS))


@pytest.mark.timeout(900)
def test_dying_around_a_commit_to_plain_parquet_loses_and_doubles_nothing(
    servers: list[SyncForkServer], folder: Path
) -> None:
    killed = KilledConnection(servers[0], ParquetConnection(folder), "append", "stream")
    killed.survive()
    for point in sorted(_WHERE_PARQUET_RECOVERS_OTHERWISE):
        killed.survive((point, 1))
    assert killed.reached.keys() >= _WHERE_PARQUET_RECOVERS_OTHERWISE
