"""The resources as users give them: from the environment, from nothing, and wrong."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import BaseModel

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.assets import build_connector_assets, connector_assets
from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
from dagster_airbyte_proto.dagster_defs.engines import engine_settings
from dagster_airbyte_proto.dagster_defs.resources import ConnectorResource, SqlStateStore
from dagster_airbyte_proto.dagster_defs.tables.io_manager import SparkTableIOManager
from dagster_airbyte_proto.dagster_defs.tables.spark_resource import SparkSessionResource
from dagster_airbyte_proto.errors import ConfigError
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.folder_shop import Options, resources, shop_assets
from tests.dagster_defs.support.shop_runs import Run, Runs
from tests.sync.test_sync import expect, two

_DOCS = Path(__file__).parents[3] / "docs" / "dagster"


def run_with(shop: Runs, **given: object) -> Run:
    whole = {**resources(shop.place.home, Options()), **given}
    assets = [shop_assets(shop.place.connection_file, Options())]
    result = dg.materialize(assets, resources=whole, instance=shop.instance, raise_on_error=False)
    return Run(shop.instance, result.run_id)


def test_the_state_store_is_named_by_the_environment_and_its_url_is_reported_nobody(
    runs: OpenRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = runs()
    other = shop.place.folder / "hidden-word.db"
    monkeypatch.setenv("SHOP_STATE", f"sqlite:///{other}")
    shop.place.offer(two(5, 5))
    store = SqlStateStore(url=dg.EnvVar("SHOP_STATE"))
    run = run_with(shop, connector=ConnectorResource(state=store, home=str(shop.place.home)))
    assert run.succeeded, run.failures
    assert other.exists()
    assert not (shop.place.home / "state.db").exists()
    assert "hidden-word" not in run.everything
    recorded = shop.instance.get_run_by_id(run.run_id)
    assert recorded is not None
    assert "hidden-word" not in str(recorded.run_config)


def test_without_a_state_store_it_lies_in_the_home_that_the_environment_names(
    runs: OpenRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = runs()
    monkeypatch.setenv("AIRBYTE_PROTO_HOME", str(shop.place.home))
    shop.place.offer(two(5, 5))
    assert run_with(shop, connector=ConnectorResource()).succeeded
    assert shop.place.positions() == {"users": 5, "orders": 5}
    expect(shop.place, 5, 5)


def test_another_kind_of_io_manager_is_refused_by_its_name(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(5, 5))
    run = run_with(shop, io_manager=dg.FilesystemIOManager(base_dir=str(shop.place.folder)))
    assert any("'io_manager'" in words and "SparkTableIOManager" in words for words in run.descriptions)


def test_a_word_that_is_no_choice_is_refused(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(5, 5))
    run = run_with(shop, connector=ConnectorResource(home=str(shop.place.home), shared_state="halve"))
    assert any("'halve'" in words and "refuse or whole" in words for words in run.descriptions)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("lease_seconds", 0.0, "lease_seconds"),
        ("compact_after_small_files", -5, "compact_after.small_files"),
        ("keep_history_days", 3.0, "keep_history_days"),
    ],
)
def test_a_number_that_no_settings_file_may_have_is_refused(field: str, value: Any, named: str, tmp_path: Path) -> None:
    connector = ConnectorResource(home=str(tmp_path), **{field: value})
    with pytest.raises(ConfigError, match="config of ConnectorResource") as refused:
        engine_settings(connector)
    assert named in str(refused.value)


def test_history_may_be_kept_for_ever(tmp_path: Path) -> None:
    assert engine_settings(ConnectorResource(home=str(tmp_path))).keep_history_days == 365
    assert engine_settings(ConnectorResource(home=str(tmp_path), keep_history_days=0)).keep_history_days == 0


@pytest.mark.parametrize(
    ("resource", "page"),
    [
        (ConnectorResource, "assets.md"),
        (SparkSessionResource, "tables.md"),
        (SparkTableIOManager, "tables.md"),
    ],
)
def test_every_field_of_a_resource_is_documented(resource: type[BaseModel], page: str) -> None:
    text = (_DOCS / page).read_text()
    rows = "".join(line for line in text.splitlines() if line.startswith("| `"))
    assert [name for name in resource.model_fields if f"`{name}`" not in rows] == []


def test_assets_that_dagster_renamed_are_synced(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(5, 5))
    assets = shop_assets(shop.place.connection_file, Options(checks=StreamChecks()))
    renamed = assets.with_attributes(asset_key_replacements={key: key.with_prefix("raw") for key in assets.keys})
    made = resources(shop.place.home, Options())
    result = dg.materialize([renamed], resources=made, instance=shop.instance, raise_on_error=False)
    assert result.success, Run(shop.instance, result.run_id).failures
    found = [event.asset_key.to_user_string() for event in result.get_asset_materialization_events() if event.asset_key]
    assert found == ["raw/shop/users", "raw/shop/orders"]
    assert all(check.passed for check in result.get_asset_check_evaluations())
    expect(shop.place, 5, 5)


def test_checks_alone_fail_a_sync_that_would_not_evaluate_them(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(5, 5))
    result = dg.materialize(
        [shop_assets(shop.place.connection_file, Options(checks=StreamChecks()))],
        selection=dg.AssetSelection.all_asset_checks(),
        resources=resources(shop.place.home, Options()),
        instance=shop.instance,
        raise_on_error=False,
    )
    [description] = Run(shop.instance, result.run_id).descriptions
    assert "only checks are selected" in description
    expect(shop.place, 0, 0)


def test_assets_that_are_no_connections_are_refused(runs: OpenRuns) -> None:
    shop = runs()

    @dg.multi_asset(specs=[dg.AssetSpec("lonely", skippable=True)])
    def lonely(context: dg.AssetExecutionContext, connector: ConnectorResource) -> Iterator[Any]:
        yield from connector.sync(context)

    made = resources(shop.place.home, Options())
    result = dg.materialize([lonely], resources=made, instance=shop.instance, raise_on_error=False)
    assert any("@connector_assets" in words for words in Run(shop.instance, result.run_id).descriptions)


def test_a_step_that_yields_no_events_of_its_sync_is_told_so(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.modes = {"users": {}}
    shop.place.offer({"streams": {"users": {"records": 5}}})

    @connector_assets(connection=Connection.from_file(shop.place.connection_file), home=shop.place.home)
    def shop_assets(  # type: ignore[no-untyped-def]  # as a user may write it
        context: dg.AssetExecutionContext,
        connector: ConnectorResource,
    ):
        connector.sync(context)

    def warnings(assets: dg.AssetsDefinition) -> list[str]:
        made = resources(shop.place.home, Options())
        result = dg.materialize([assets], resources=made, instance=shop.instance, raise_on_error=False)
        return [text for text in Run(shop.instance, result.run_id).messages if "yield from" in text]

    assert len(warnings(shop_assets)) == 1
    assert shop.place.positions() == {}
    synced = build_connector_assets(Connection.from_file(shop.place.connection_file), home=shop.place.home)
    assert warnings(synced) == []
