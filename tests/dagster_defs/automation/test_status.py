"""The status of all connections as an asset."""

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.reconstruct import ReconstructableRepository

from dagster_airbyte_proto.dagster_defs.automation.status import build_status_asset
from dagster_airbyte_proto.dagster_defs.resources import ConnectorResource, SqlStateStore
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.shop_runs import Run, Runs

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
    assert "| shop | complete |" in found["connections"]
    assert found["connections"].endswith("| - (known only in a run of a code location) |")
    assert 0 <= found["max_lag_seconds"] < 600
    shop.place.sync_of({**TWO, "failure": {"kind": "exit", "after": 0}})
    found, check = materialized(shop)
    assert (found["not_complete"], check.passed, check.severity) == (1, False, dg.AssetCheckSeverity.WARN)
    assert check.metadata["connections"].value == {"shop": "failed"}


def test_a_store_that_does_not_answer_is_reported_in_a_few_lines(runs: OpenRuns) -> None:
    shop = runs()
    result = dg.materialize(
        [build_status_asset()],
        instance=shop.instance,
        resources={"connector": ConnectorResource(state=SqlStateStore(url="postgresql://ann@127.0.0.1:1/shop"))},
        raise_on_error=False,
    )
    run = Run(shop.instance, result.run_id)
    [said] = run.descriptions
    assert said.startswith("using the state store: postgresql+psycopg://ann@127.0.0.1:1/shop: connection failed")
    assert "Check that the server runs and that state_url is right." in said
    assert "sqlalchemy" not in run.stack_traces


_CODE_LOCATION = """
import dagster as dg
from dagster_airbyte_proto import Connection, ConnectorResource, build_connector_assets, build_status_asset

assets = build_connector_assets(Connection.from_file({file!r}))
shop = assets.map_asset_specs(lambda spec: spec.replace_attributes(automation_condition={condition}))

@dg.sensor(target=shop, default_status=dg.DefaultSensorStatus.{sensor})
def orders_came(context): ...

@dg.schedule(target=shop, cron_schedule="30 4 * * *", execution_timezone="Europe/Berlin",
             default_status=dg.DefaultScheduleStatus.{schedule})
def nightly(context): ...

@dg.definitions
def location():
    return dg.Definitions(
        assets=[shop, build_status_asset()], schedules=[nightly], executor=dg.in_process_executor,
        sensors=[orders_came, dg.AutomationConditionSensorDefinition(
            "conditions", target=[shop], default_status=dg.DefaultSensorStatus.RUNNING)],
        resources={{"connector": ConnectorResource(home={home!r}), "io_manager": dg.mem_io_manager}},
    )
"""


@pytest.mark.parametrize(
    ("schedule", "sensor", "condition", "expected"),
    [
        pytest.param("RUNNING", "RUNNING", None, r"[\d-]{10} 0[23]:30\+00:00 \(schedule nightly\)", id="schedule"),
        pytest.param(
            "STOPPED", "STOPPED", 'dg.AutomationCondition.on_cron("15 5 * * *")',
            r"[\d-]{10} 05:15\+00:00 \(sensor conditions\)", id="condition",
        ),
        pytest.param("STOPPED", "RUNNING", None, r"- \(when sensor orders_came finds something\)", id="sensor"),
        pytest.param("STOPPED", "STOPPED", None, r"- \(schedule nightly is off\)", id="off"),
    ],
)  # fmt: skip
@pytest.mark.everyday("schedule")
def test_the_next_run_is_that_of_a_schedule_that_is_on(
    runs: OpenRuns, tmp_path: Path, schedule: str, sensor: str, condition: str | None, expected: str
) -> None:
    shop = runs()
    shop.place.sync_of(TWO)
    connection = yaml.safe_load(shop.place.connection_file.read_text()) | {"streams": {"users": {}}}
    file, home = tmp_path / "shop.yaml", shop.place.home
    file.write_text(yaml.safe_dump(connection))
    code = tmp_path / "location.py"
    code.write_text(
        _CODE_LOCATION.format(file=str(file), home=str(home), schedule=schedule, sensor=sensor, condition=condition)
    )
    job = ReconstructableRepository.for_file(str(code), "location").get_reconstructable_job("__ASSET_JOB")
    with dg.execute_job(job, shop.instance, asset_selection=[dg.AssetKey("connection_status")]) as result:
        assert result.success
        [event] = result.filter_events(lambda each: each.is_step_materialization)
    found = str(event.step_materialization_data.materialization.metadata["connections"].value)
    assert re.search(rf"\| {expected} \|$", found), found
