"""A run that is terminated, or killed: what is complete stays, nothing else is left, and the next run heals."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.dagster_defs.resources import ConnectorResource, SqlStateStore
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.folder_shop import Options, resources, shop_assets
from tests.dagster_defs.support.shop_runs import Run, terminate
from tests.dagster_defs.support.step_process import StepProcess, opened
from tests.support.fork_server import Kill
from tests.sync.shop import Shop, processes_of, until
from tests.sync.test_sync import expect, two

KILLED = -9
MOST_SECONDS = 10.0
OpenShop = Callable[..., Shop]


@pytest.fixture(scope="module")
def steps() -> Iterator[StepProcess]:
    process = StepProcess()
    yield process
    process.close()


@pytest.fixture
def shop(quick_folder: Path) -> Iterator[OpenShop]:
    yield lambda **written: Shop(quick_folder, **written)
    until(lambda: processes_of(quick_folder) == [], "the end of what Dagster and the connector started")


def run_of(place: Shop, run_id: str) -> Run:
    with opened(place.folder / "dagster") as instance:
        return Run(instance, run_id)


def terminated(place: Shop, steps: StepProcess, is_time: Callable[[], bool]) -> tuple[Run, float]:
    """A run with retries that is terminated as the web server does it; and how long it then lived."""
    process, run_id = steps.start(place, place.folder / "dagster", retries=2)
    until(is_time, "the moment to terminate")
    with opened(place.folder / "dagster") as instance:
        seconds = terminate(instance, run_id, process, steps.end)
    return run_of(place, run_id), seconds


class TerminatedStore(SqlStateStore):
    """A state store that does not answer before the run is terminated."""

    def open(self) -> SqlStore:
        raise dg.DagsterExecutionInterruptedError


@pytest.mark.parametrize("does", ["sync", "push"])
def test_a_run_that_waits_for_its_state_store_is_not_tried_again(does: str, runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(5, 5))
    specs = list(shop_assets(shop.place.connection_file, Options()).specs)

    @dg.multi_asset(specs=specs, retry_policy=dg.RetryPolicy(max_retries=2), can_subset=True)
    def step(context: dg.AssetExecutionContext, connector: ConnectorResource) -> Iterator[Any]:
        yield from getattr(connector, does)(context)

    result = dg.materialize(
        [step],
        resources={
            **resources(shop.place.home, Options()),
            "connector": ConnectorResource(home=str(shop.place.home), state=TerminatedStore(url="")),
        },
        instance=shop.instance,
        raise_on_error=False,
    )
    run = Run(shop.instance, result.run_id)
    assert (run.succeeded, run.attempts) == (False, 1)
    assert f"The {does} of step was cancelled" in run.descriptions[0]
    assert run.stack_traces == run.descriptions[0]


@pytest.mark.everyday("hang")
@pytest.mark.parametrize("kind", ["hang", "ignore_sigterm"])
def test_what_is_complete_materializes_and_nothing_is_tried_again(
    kind: str, steps: StepProcess, shop: OpenShop
) -> None:
    place = shop()
    place.offer({**two(10, 20), "interleave": False, "failure": {"kind": kind, "after": 22}})
    run, seconds = terminated(
        place, steps, lambda: place.positions().get("users") == 10 and len(place.landed("orders")) > 0
    )
    assert run.status is dg.DagsterRunStatus.CANCELED
    assert seconds < MOST_SECONDS
    assert processes_of(place.folder) == []
    assert run.attempts == 1
    assert run.materialized == ["users"]
    assert "cancelled" in (run.observation("orders").description or "")
    assert run.observation("orders").metadata["airbyte_proto/status"].value == "cancelled"
    assert run.stack_traces == run.descriptions[0]  # a message, and no frame of a stack
    assert place.positions() == {"users": 10, "orders": 10}
    place.offer(two(10, 20))
    steps.start(place, place.folder / "dagster")
    assert steps.end() == 0
    expect(place, 10, 20)


def _is_reading(place: Shop) -> bool:
    """True once the connector reads. Dagster's own processes are there before a run takes notice of a signal."""
    return any("--catalog" in words for words in processes_of(place.folder))


def test_a_run_that_waits_for_its_first_record_is_cancelled_too(steps: StepProcess, shop: OpenShop) -> None:
    place = shop()
    place.offer(two(10, 20, failure={"kind": "hang", "after": 0}))
    run, seconds = terminated(place, steps, lambda: _is_reading(place))
    assert run.status is dg.DagsterRunStatus.CANCELED
    assert (run.attempts, run.materialized) == (1, [])
    assert seconds < MOST_SECONDS
    assert processes_of(place.folder) == []


@pytest.mark.everyday("kill1", "kill5")
@pytest.mark.parametrize(
    "kill",
    [
        ("run.begun", 1),
        ("stage.file_closed", 2),
        ("load.announced", 1),
        ("table.committed", 2),
        ("load.committed", 3),
        ("run.delivered", 1),
        ("load.promoted", 3),
    ],
)
def test_a_run_that_is_killed_anywhere_is_healed_by_the_next(kill: Kill, steps: StepProcess, shop: OpenShop) -> None:
    place = shop()
    place.offer(two(23, 12))
    steps.start(place, place.folder / "dagster", crash=kill)
    assert steps.end() == KILLED
    until(lambda: processes_of(place.folder) == [], "the end of its connector")
    _, run_id = steps.start(place, place.folder / "dagster")
    assert steps.end() == 0
    assert sorted(run_of(place, run_id).materialized) == ["orders", "users"]
    expect(place, 23, 12)
    assert place.positions() == {"users": 23, "orders": 12}
    for stream in ("users", "orders"):
        assert len(place.landed(stream)) == len(set(place.landed(stream)))


def test_a_kill_during_the_delivery_leaves_rows_and_no_state(steps: StepProcess, shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.offer(two(23, 12))
    steps.start(place, place.folder / "dagster", crash=("run.delivered", 1))
    assert steps.end() == KILLED
    assert place.positions() == {}
    assert len(place.store.announced_loads("shop")) == 1
    assert place.column("users") == list(range(23))
    steps.start(place, place.folder / "dagster")
    assert steps.end() == 0
    expect(place, 23, 12)
