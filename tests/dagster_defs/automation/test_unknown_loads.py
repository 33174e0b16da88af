"""A step whose commit nobody answers, and its ways out, as a user of Dagster meets them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.dagster_defs.automation.test_operations import launch
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.folder_shop import FolderIOManager, Options
from tests.dagster_defs.support.shop_runs import Runs
from tests.sync.commit.test_unknown_outcomes import drop_table
from tests.sync.test_sync import two


class UnansweringIOManager(FolderIOManager):
    """Each commit to its tables lands, and nobody says so."""

    def tables(self, labels: Mapping[str, str]) -> FolderTables:
        return with_faults(super().tables(labels), CallFaults({("commit", "*"): CallFault.AFTER}))


def unanswered(shop: Runs, **options: Any) -> str:
    """One run whose load nobody tells of. Returns the load's id."""
    shop.place.offer(two(10, 10))
    tables = UnansweringIOManager(warehouse=str(Path(shop.place.home) / "warehouse"))
    run = shop.run(Options(**options), io_manager=tables)
    assert not run.succeeded and run.materialized == []
    [load] = shop.place.store.announced_loads("shop")
    assert len(run.descriptions) == 1
    for words in (f"Load {load.load_id} stays announced", "`airbyte-proto recover shop`", "in table shop.users"):
        assert words in run.descriptions[0], words
    assert shop.place.positions() == {}
    return load.load_id


def test_the_next_run_finds_out(runs: OpenRuns) -> None:
    shop = runs(max_bytes=1 << 30)
    unanswered(shop)
    run = shop.run()
    assert run.succeeded, run.failures
    assert shop.place.positions() == {"users": 10, "orders": 10}
    assert sorted(shop.place.column("users")) == [*range(10)]


def test_a_retry_of_the_step_finds_out(runs: OpenRuns) -> None:
    """The second attempt recovers the load, though commits of its own would stay without an answer too."""
    shop = runs(max_bytes=1 << 30)
    shop.place.offer(two(10, 10))
    tables = UnansweringIOManager(warehouse=str(Path(shop.place.home) / "warehouse"))
    run = shop.run(Options(retry_policy=dg.RetryPolicy(max_retries=1)), io_manager=tables)
    assert (run.succeeded, run.attempts) == (True, 2), run.failures
    assert sorted(shop.place.column("users")) == [*range(10)]


@pytest.mark.everyday("landed")
@pytest.mark.parametrize("outcome", ["landed", "lost"])
def test_a_load_of_a_table_that_was_dropped_is_ended_by_the_job_that_the_failure_names(
    runs: OpenRuns, outcome: str
) -> None:
    shop = runs(max_bytes=1 << 30)
    load = unanswered(shop)
    drop_table(shop.place, "users")
    refused = shop.run()
    assert not refused.succeeded and refused.materialized == []
    for words in (load, "table shop.users", f"loads resolve {load} --as landed", "the job resolve_load_shop"):
        assert words in refused.descriptions[0], words

    job = launch(shop, "resolve_load", {"load": load, "outcome": outcome})
    assert job.succeeded, job.failures
    assert any(f"load {load}: done, " in message for message in job.messages)
    run = shop.run()
    assert run.succeeded, run.failures
    assert sorted(shop.place.column("orders")) == [*range(10)]
    committed = run.metadata("users")["airbyte_proto/committed"]
    assert committed == (0 if outcome == "landed" else 10)
