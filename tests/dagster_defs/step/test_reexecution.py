"""A failed run, re-executed by the mutations that the UI sends: which streams run again, and what is there then."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.assets import build_connector_assets
from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
from dagster_airbyte_proto.testing.fake_source import catalog_stream
from tests.dagster_defs.support.folder_shop import Options, resources
from tests.dagster_defs.support.shop_runs import key_of
from tests.dagster_defs.support.web import Web, opened_web
from tests.sync.shop import Shop, processes_of
from tests.sync.test_sync import expect, two

_STREAMS = (key_of("users"), key_of("orders"))
_DEFINITIONS = """from pathlib import Path
from tests.dagster_defs.step.test_reexecution import definitions
defs = definitions(Path(__file__).parent)
"""


def definitions(folder: Path) -> dg.Definitions:
    """The definitions of the code location in a folder: the shop's streams, each with checks."""
    connection = Connection.from_file(folder / "shop.yaml")
    return dg.Definitions(
        [build_connector_assets(connection, catalog=folder / "catalog.json", checks=StreamChecks())],
        resources=resources(folder / "home", Options()),
        executor=dg.in_process_executor,
    )


@pytest.fixture
def place(quick_folder: Path) -> Iterator[Shop]:
    made = Shop(quick_folder)
    made.offer(two(1, 1))
    message = {"type": "CATALOG", "catalog": {"streams": [catalog_stream(name, {}) for name in ("users", "orders")]}}
    (quick_folder / "catalog.json").write_text(json.dumps(message))
    yield made
    assert processes_of(quick_folder) == []


@pytest.fixture
def web(place: Shop) -> Iterator[Web]:
    with opened_web(place.folder, _DEFINITIONS) as opened:
        yield opened


def with_bad_orders(users: int, orders: int) -> dict[str, Any]:
    broken = two(users, orders)
    broken["streams"]["orders"]["incomplete_at"] = 7
    return broken


@pytest.mark.everyday("daemon")
@pytest.mark.parametrize("by", ["hand", "daemon"])
def test_from_asset_failure_runs_the_failed_stream_alone(by: str, place: Shop, web: Web) -> None:
    place.offer(with_bad_orders(23, 12))
    failed = web.materialized(*_STREAMS, tags={"dagster/retry_strategy": "FROM_ASSET_FAILURE"})
    assert (failed.succeeded, failed.materialized) == (False, ["users"])
    place.offer(two(30, 12))
    again = web.retried(failed) if by == "daemon" else web.reexecuted(failed, "FROM_ASSET_FAILURE")
    assert again.succeeded, again.failures
    assert web.selection(again) == ["orders"]
    assert again.materialized == ["orders"]
    assert set(again.checks) == {"orders"}
    expect(place, 23, 12)
    assert place.positions() == {"users": 23, "orders": 12}


def test_from_failure_runs_the_whole_step_which_goes_on_from_its_states(place: Shop, web: Web) -> None:
    place.offer(with_bad_orders(23, 12))
    failed = web.materialized(*_STREAMS)
    place.offer(two(30, 12))
    again = web.reexecuted(failed, "FROM_FAILURE")
    assert again.succeeded, again.failures
    assert again.materialized == ["users", "orders"]
    assert again.metadata("users")["airbyte_proto/emitted"] == 7
    expect(place, 30, 12)
