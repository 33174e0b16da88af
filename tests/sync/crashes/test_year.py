"""A year of a connection, some two hundred syncs, the same in each run of the tests. The soak draws others."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings

from tests.sync.crashes.days import years
from tests.sync.crashes.house import House
from tests.sync.crashes.year import Day, Year
from tests.sync.crashes.zygote import Zygote

_DAYS = 150


@pytest.fixture(scope="module")
def runner() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.mark.timeout(900)
@settings(
    max_examples=2,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(days=years(_DAYS))
def test_after_each_sync_of_a_year_every_table_is_what_an_obviously_right_model_says(
    runner: Zygote, days: list[Day | None]
) -> None:
    fast = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with TemporaryDirectory(dir=fast, prefix="airbyte-proto-") as folder:
        year = Year(runner, House(Path(folder), max_bytes=1000))
        for day in days:
            if day is not None:
                year.live(day)
        event(f"{year.syncs} syncs, {year.deaths} of them killed")
