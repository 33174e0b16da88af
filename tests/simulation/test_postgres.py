"""A PostgreSQL store whose answer to a COMMIT is lost, and one that fails over to a standby that lags."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dagster_airbyte_proto.sync.report import SyncStatus
from tests.simulation.cut_connection import CutConnections
from tests.simulation.schedule import Action, Schedule, Step
from tests.simulation.simulation import run_schedule
from tests.simulation.world import Place, World
from tests.support.postgres import PostgresServer, running_standby
from tests.sync.shop import until

pytestmark = pytest.mark.postgres

_COMMITS = 30


@pytest.fixture
def cut(postgres_server: PostgresServer) -> Iterator[CutConnections]:
    connections = CutConnections(postgres_server.port)
    yield connections
    connections.close()


@pytest.mark.parametrize("state", ["stream", pytest.param("global", marks=pytest.mark.nightly)])
def test_an_answer_to_a_commit_that_is_lost_loses_and_doubles_nothing(
    state: str, postgres_server: PostgresServer, cut: CutConnections, quick_folder: Path
) -> None:
    schedule = Schedule(("append", "append_dedup"), state, (Step(Action.SYNC, records=(3, 2)),))

    def broken_by_cut_at(commit: int) -> str:
        schema = postgres_server.new_schema()
        by_cut = postgres_server.url_of(schema, port=cut.port)
        place = Place(quick_folder / str(commit), by_cut, postgres_server.url_of(schema))
        cut.cut_at(commit)
        violation = run_schedule(schedule, place).violation
        assert cut.has_cut
        place.close()
        return violation

    # The first ones make the tables of the store, the last of these are of the second sync.
    broken = {commit: violation for commit in range(1, _COMMITS + 1) if (violation := broken_by_cut_at(commit))}
    assert broken == {}


def test_a_standby_that_lags_takes_over_and_no_row_is_doubled(
    postgres_server: PostgresServer, quick_folder: Path
) -> None:
    with running_standby(postgres_server) as standby:
        schema = postgres_server.new_schema()
        place = Place(quick_folder, postgres_server.url_of(schema))
        world = World(place, ("append", "append_dedup"), "stream")
        world.content.records = {"users": 2, "orders": 2}
        assert world.sync().report is not None
        until(lambda: standby.has_replayed(postgres_server), "the standby has what the first has")
        standby.stop_following()
        world.content.records = {"users": 5, "orders": 5}
        report = world.sync().report
        assert report is not None and report.status is SyncStatus.COMPLETE

        standby.promote()
        place.move_store(standby.url_of(schema))
        world.content.records = {"users": 6, "orders": 6}
        report = world.sync().report
        assert report is not None and report.status is SyncStatus.FAILED
        assert "which the state store does not know" in (report.streams["users"].error or "")
        assert world.rows("users") == sorted((version % 3, version) for version in range(5))
        report = world.sync(refresh=world.streams).report
        assert report is not None and report.status is SyncStatus.COMPLETE
        assert world.rows("users") == world.expected("users")
        assert world.rows("orders") == world.expected("orders")
        place.close()
