"""The status of all connections as an asset."""

from typing import Any

import dagster as dg

from dagster_airbyte_proto.dagster_defs.automation.status import build_status_asset
from dagster_airbyte_proto.dagster_defs.step.resources import ConnectorResource
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.shop_runs import Runs

TWO = {"streams": {"users": {"records": 12}, "orders": {"records": 4}}, "state_every": 5}


def materialized(shop: Runs) -> tuple[dict[str, Any], dg.AssetCheckEvaluation]:
    result = dg.materialize(
        [build_status_asset(group_name="operations")],
        instance=shop.instance,
        resources={"connector": ConnectorResource(home=str(shop.place.home))},
    )
    assert result.success
    [event] = result.asset_materializations_for_node("connection_status")
    [check] = result.get_asset_check_evaluations()
    return {name: value.value for name, value in event.metadata.items()}, check


def test_the_asset_has_the_status_of_each_connection_and_its_check_warns(runs: OpenRuns) -> None:
    shop = runs()
    assert materialized(shop)[0]["connections"] == "none"
    shop.place.sync_of(TWO)
    found, check = materialized(shop)
    assert (found["rows"], found["not_complete"], found["failing_streams"], check.passed) == (16, 0, 0, True)
    assert "| shop | complete |" in found["connections"] and 0 <= found["max_lag_seconds"] < 600
    shop.place.sync_of({**TWO, "failure": {"kind": "exit", "after": 0}})
    found, check = materialized(shop)
    assert (found["not_complete"], check.passed, check.severity) == (1, False, dg.AssetCheckSeverity.WARN)
    assert check.metadata["connections"].value == {"shop": "failed"}
