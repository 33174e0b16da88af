"""A year of a connection: some two hundred syncs, the same in each test run. The soak draws other years."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings

from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.crashes.year import Day, Year
from tests.sync.crashes.year_strategy import year_strategy

_DAYS = 150


@pytest.fixture(scope="module")
def runner() -> Iterator[SyncForkServer]:
    server = SyncForkServer()
    yield server
    server.close()


@pytest.mark.nightly
@pytest.mark.timeout(900)
@settings(
    max_examples=2,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(days=year_strategy(_DAYS))
def test_after_each_sync_of_a_year_every_table_is_what_an_obviously_right_model_says(
    runner: SyncForkServer, days: list[Day | None]
) -> None:
    fast = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with TemporaryDirectory(dir=fast, prefix="airbyte-proto-") as folder:
        year = Year(runner, FakeConnection(Path(folder), max_bytes=1000))
        for day in days:
            if day is not None:
                year.live(day)
        event(f"{year.syncs} syncs, {year.deaths} of them killed")
