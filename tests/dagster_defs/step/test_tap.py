"""A tap's streams as assets: its one state has a part for each."""

from tests.dagster_defs.conftest import OpenRuns
from tests.sync.test_sync import two


def test_streams_of_a_tap_are_materialised_each_with_its_bookmark(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.protocol = "singer"
    shop.place.offer(two(23, 12))
    run = shop.run()
    assert run.succeeded, run.failures
    assert run.materialized == ["users", "orders"]
    assert shop.place.positions() == {"users": 23, "orders": 12}
    shop.place.offer(two(30, 14))
    run = shop.run(only=["orders"])
    assert (run.succeeded, run.materialized) == (True, ["orders"])
    assert shop.place.positions() == {"users": 23, "orders": 14}
    assert run.metadata("orders")["airbyte_proto/state_after"] == {"next": 14}
