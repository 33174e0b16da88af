"""The step of a connection: its assets, what each carries, what it refuses."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value

from dagster_airbyte_proto import ConfigError, build_connector_assets, connector_assets
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
from dagster_airbyte_proto.dagster_defs.definitions.column_schema import SOURCE_ASSET
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import definition_of
from dagster_airbyte_proto.dagster_defs.definitions.translator import StreamTranslator, StreamTranslatorData
from dagster_airbyte_proto.model import StreamId
from tests.dagster_defs.support.saved import ORDERS, USERS, connection, connection_file, named, save

_RESOURCES = {"io_manager": dg.mem_io_manager, "connector": dg.ResourceDefinition.none_resource()}


def _landing(context: dg.AssetExecutionContext) -> Iterator[Any]:
    """A step that hands over a value for each stream that is selected."""
    for key in sorted(context.selected_asset_keys):
        yield dg.MaterializeResult(asset_key=key, value=key.to_user_string())


def _assets(home: Path, shop: Connection | None = None, **options: Any) -> dg.AssetsDefinition:
    return connector_assets(connection=shop or connection(), home=home, **options)(_landing)


def _keys(assets: dg.AssetsDefinition) -> list[str]:
    return sorted(key.to_user_string() for key in assets.keys)


def test_every_stream_of_the_catalog_is_an_asset(tmp_path: Path) -> None:
    save(tmp_path, USERS, ORDERS)

    assets = _assets(tmp_path)

    assert _keys(assets) == ["shop/sales/orders", "shop/users"]
    assert assets.can_subset
    assert assets.op.name == "_landing"
    assert assets.op.pool == "connector_shop"
    assert assets.backfill_policy is None
    assert all(spec.skippable for spec in assets.specs)


def test_paths_may_be_texts(tmp_path: Path) -> None:
    path = save(tmp_path, USERS)

    of_file = connector_assets(connection=connection(), catalog=str(path))(_landing)
    of_home = connector_assets(connection=connection(), home=str(tmp_path))(_landing)

    assert _keys(of_file) == _keys(of_home) == ["shop/users"]
    assert definition_of(of_file).catalog_file == definition_of(of_home).catalog_file == path


def test_the_options_of_a_step_reach_it(tmp_path: Path) -> None:
    save(tmp_path, USERS)
    daily = dg.DailyPartitionsDefinition("2026-01-01")

    assets = _assets(
        tmp_path,
        name="sync_shop",
        partitions_def=daily,
        pool="narrow",
        op_tags={"team": "data"},
        retry_policy=dg.RetryPolicy(max_retries=3),
        io_manager_key="tables",
    )

    assert (assets.op.name, assets.op.pool, assets.op.tags["team"]) == ("sync_shop", "narrow", "data")
    assert assets.op.retry_policy == dg.RetryPolicy(max_retries=3)
    assert assets.partitions_def == daily
    assert assets.backfill_policy == dg.BackfillPolicy.single_run()
    assert assets.get_io_manager_key_for_asset_key(dg.AssetKey(["shop", "users"])) == "tables"


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({"partitions_def": dg.StaticPartitionsDefinition(["eu", "us"])}, None),
        (
            {
                "partitions_def": dg.DailyPartitionsDefinition("2026-01-01"),
                "backfill_policy": dg.BackfillPolicy.multi_run(7),
            },
            dg.BackfillPolicy.multi_run(7),
        ),
    ],
)
def test_only_time_windows_are_backfilled_in_one_run_by_default(
    tmp_path: Path, options: dict[str, Any], policy: dg.BackfillPolicy | None
) -> None:
    save(tmp_path, USERS)

    assert _assets(tmp_path, **options).backfill_policy == policy


def test_a_stream_whose_name_is_odd_runs_alone(tmp_path: Path, dagster_instance: dg.DagsterInstance) -> None:
    save(tmp_path, USERS, *named("Sales Orders", "a.b", "a_b"))

    ran = dg.materialize(
        [_assets(tmp_path)],
        selection=[dg.AssetKey(["shop", "Sales_Orders"])],
        resources={"io_manager": dg.mem_io_manager},
        instance=dagster_instance,
    )

    assert ran.success
    events = ran.get_asset_materialization_events()
    assert [event.asset_key for event in events] == [dg.AssetKey(["shop", "Sales_Orders"])]


def test_a_stream_that_lands_nothing_does_not_fail_the_others(tmp_path: Path) -> None:
    save(tmp_path, USERS, ORDERS)

    @connector_assets(connection=connection(), home=tmp_path)
    def shop_assets(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield dg.MaterializeResult(asset_key=["shop", "users"], value=1)

    ran = dg.materialize([shop_assets], resources={"io_manager": dg.mem_io_manager})

    assert ran.success
    assert [event.asset_key for event in ran.get_asset_materialization_events()] == [dg.AssetKey(["shop", "users"])]


def test_a_step_finds_its_connection_and_its_streams_again(tmp_path: Path) -> None:
    save(tmp_path, USERS, *named("Sales Orders"))
    shop, checks = connection(), StreamChecks()

    definition = definition_of(_assets(tmp_path, shop, checks=checks, io_manager_key="tables"))

    assert definition.connection is shop
    assert definition.io_manager_key == "tables"
    assert definition.checks is checks
    assert definition.catalog is not None
    assert [stream.id.name for stream in definition.catalog.streams] == ["users", "Sales Orders"]
    assert definition.streams == {
        dg.AssetKey(["shop", "users"]): StreamId(None, "users"),
        dg.AssetKey(["shop", "Sales_Orders"]): StreamId(None, "Sales Orders"),
    }


def test_assets_of_something_else_have_no_connection() -> None:
    @dg.asset
    def other() -> None: ...

    with pytest.raises(ConfigError, match="the assets of 'other' were not made from a connection"):
        definition_of(other)


def test_nothing_of_the_config_is_shown_to_the_web_server(tmp_path: Path) -> None:
    save(tmp_path, USERS)
    shop = connection_file(tmp_path, config={"password": "hunter-22", "token": "${env:NOT_SET}"})

    repository = dg.Definitions([_assets(tmp_path, shop)], resources=_RESOURCES).get_repository_def()

    shown = serialize_value(RepositorySnap.from_def(repository))
    assert "lake.shop.users" in shown
    assert '"inst": "shop"}, "label": "airbyte_proto/connection"' in shown
    assert "unserializable" not in shown
    assert "ConnectionDefinition" not in shown
    assert "hunter-22" not in shown
    assert "NOT_SET" not in shown


def test_the_code_of_an_asset_is_its_function_and_its_connection_file(tmp_path: Path) -> None:
    save(tmp_path, USERS)
    shop = connection_file(tmp_path)

    [spec] = _assets(tmp_path, shop).specs

    result = spec.metadata["dagster/code_references"]
    assert isinstance(result, dg.CodeReferencesMetadataValue)
    assert [_place(reference) for reference in result.code_references] == [
        (str(Path(__file__).absolute()), _landing.__code__.co_firstlineno, "step"),
        (str(tmp_path / "shop.yaml"), 1, "connection"),
    ]


def _place(reference: object) -> tuple[str, int | None, str | None]:
    assert isinstance(reference, dg.LocalFileCodeReference)
    return reference.file_path, reference.line_number, reference.label


def test_without_a_function_the_code_is_the_connection_file_alone(tmp_path: Path) -> None:
    save(tmp_path, USERS)

    [spec] = build_connector_assets(connection_file(tmp_path), home=tmp_path).specs

    result = spec.metadata["dagster/code_references"]
    assert isinstance(result, dg.CodeReferencesMetadataValue)
    assert [_place(reference)[2] for reference in result.code_references] == ["connection"]


def test_assets_without_a_function_ask_for_their_resource(tmp_path: Path) -> None:
    save(tmp_path, USERS)

    assets = build_connector_assets(connection(), home=tmp_path, connector_key="runner")

    assert assets.op.name == "shop"
    assert assets.required_resource_keys == {"runner", "io_manager"}


def test_the_tables_of_partitions_have_a_column_more(tmp_path: Path) -> None:
    save(tmp_path, USERS)

    [plain] = _assets(tmp_path).specs
    [partitioned] = _assets(tmp_path, partitions_def=dg.StaticPartitionsDefinition(["eu", "us"])).specs
    schemas = [spec.metadata["dagster/column_schema"] for spec in (plain, partitioned)]

    names = [[column.name for column in schema.columns] for schema in schemas if isinstance(schema, dg.TableSchema)]
    assert names[1] == [*names[0], "_airbyte_partition"]


def test_the_asset_that_a_stream_reads_from_is_upstream_of_it(tmp_path: Path) -> None:
    save(tmp_path, USERS)
    crm = dg.AssetKey(["crm", "users"])

    class _Lineage(StreamTranslator):
        def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
            return super().get_asset_spec(data).merge_attributes(metadata={SOURCE_ASSET: crm})

    [spec] = _assets(tmp_path, translator=_Lineage()).specs

    assert [dep.asset_key for dep in spec.deps] == [crm]


def test_checks_come_with_each_stream(tmp_path: Path) -> None:
    save(tmp_path, USERS, ORDERS)

    assets = _assets(tmp_path, checks=StreamChecks(primary_key=True))

    found = {(key.asset_key.path[-1], key.name) for key in assets.check_keys}
    assert {("users", "counts"), ("orders", "counts"), ("users", "primary_key")} <= found
    assert ("orders", "primary_key") not in found
    assert {key.name for key in _assets(tmp_path).check_keys} == {"nulled"}
    assert _assets(tmp_path, checks=None).check_keys == set()


def _keyed(key: Callable[[StreamTranslatorData], list[str]]) -> StreamTranslator:
    class _Translator(StreamTranslator):
        def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
            return super().get_asset_spec(data).replace_attributes(key=dg.AssetKey(key(data)))

    return _Translator()


def test_a_translator_that_makes_two_assets_one_is_refused(tmp_path: Path) -> None:
    save(tmp_path, USERS, ORDERS)
    shop = connection_file(tmp_path)

    with pytest.raises(ConfigError) as raised:
        _assets(tmp_path, shop, translator=_keyed(lambda _: ["raw"]))

    assert str(raised.value) == (
        f"making the assets of {tmp_path}/shop.yaml (stream sales.orders): "
        "its asset key raw is that of stream users, or too similar to it\n"
        "Give it another key in the translator's get_asset_spec, or in `translation`."
    )


def test_streams_with_partitions_of_their_own_are_refused(tmp_path: Path) -> None:
    class Ours(StreamTranslator):
        def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
            days = dg.DailyPartitionsDefinition("2026-01-01") if data.stream.id.name == "orders" else None
            return super().get_asset_spec(data).replace_attributes(partitions_def=days)

    save(tmp_path, USERS, ORDERS)
    with pytest.raises(ConfigError, match="asset shop/sales/orders has other partitions than shop/users"):
        _assets(tmp_path, translator=Ours())


def test_a_key_that_dagster_makes_no_name_of_is_refused(tmp_path: Path) -> None:
    save(tmp_path, USERS)

    with pytest.raises(ConfigError, match=r"\(stream users\): its asset key my users is not of letters"):
        _assets(tmp_path, translator=_keyed(lambda data: [f"my {data.stream.id.name}"]))

    with pytest.raises(ConfigError, match=r"\(stream users\): its asset key type is a word that Dagster or Python res"):
        _assets(tmp_path, translator=_keyed(lambda _: ["type"]))


@pytest.mark.parametrize("name", ["meta", "import"])
def test_a_connection_may_have_a_name_that_dagster_reserves(tmp_path: Path, name: str) -> None:
    named_so = Connection.model_validate({**connection(streams={"users": {}}).model_dump(), "name": name})

    definitions = dg.Definitions([build_connector_assets(named_so, home=tmp_path)], resources=_RESOURCES)

    assert definitions.resolve_asset_graph().get_all_asset_keys() == {dg.AssetKey([name, "users"])}


def test_metadata_that_no_step_reports_is_refused(tmp_path: Path) -> None:
    save(tmp_path, USERS)
    wanted: Any = ["insights", "row_count"]
    with pytest.raises(ConfigError, match="`include_metadata` has 'row_count'\nIt may have column_metadata and insigh"):
        build_connector_assets(connection(), home=tmp_path, include_metadata=wanted)


@pytest.mark.parametrize("rows", [-1, 101])
def test_a_sample_that_no_step_takes_is_refused_as_definitions_load(rows: int, tmp_path: Path) -> None:
    save(tmp_path, USERS)
    with pytest.raises(ConfigError, match=f"`sample_rows`: {rows} rows\nA sample has 1 to 100 rows"):
        build_connector_assets(connection(), home=tmp_path, sample_rows=rows)


def test_what_does_not_fit_the_catalog_names_file_stream_and_nearest_name(tmp_path: Path) -> None:
    save(tmp_path, USERS)
    misnamed = connection_file(tmp_path, streams={"usres": {}})

    with pytest.raises(ConfigError) as raised:
        _assets(tmp_path, misnamed)
    assert str(raised.value) == (
        f"making the assets of {tmp_path}/shop.yaml: choosing streams (streams): there is no stream 'usres'\n"
        "Did you mean 'users'?"
    )

    with pytest.raises(ConfigError) as raised:
        _assets(tmp_path, connection_file(tmp_path, streams={"users": {"primary_key": ["idd"]}}))
    assert str(raised.value) == (
        f"making the assets of {tmp_path}/shop.yaml: plan keys and cursor (stream users): "
        "the schema has no field idd\nThe nearest field is id."
    )


def test_a_thousand_streams_make_one_step(tmp_path: Path) -> None:
    save(tmp_path, *named(*(f"s{number}" for number in range(1000))))

    definitions = dg.Definitions([build_connector_assets(connection(), home=tmp_path)], resources=_RESOURCES)

    assert len(definitions.resolve_asset_graph().get_all_asset_keys()) == 1000
    assert [assets.op.name for assets in definitions.assets or () if isinstance(assets, dg.AssetsDefinition)] == [
        "shop"
    ]


def test_a_stream_whose_key_in_the_source_can_be_none_is_an_asset_without_columns(tmp_path: Path) -> None:
    save(tmp_path, {**USERS, "source_defined_primary_key": [["uid"]]}, ORDERS)

    assets = _assets(tmp_path, checks=StreamChecks(primary_key=True, freshness=timedelta(days=1)))

    users, orders = sorted(assets.specs, key=lambda spec: spec.key.to_user_string(), reverse=True)
    assert ("dagster/column_schema" in users.metadata, "dagster/column_schema" in orders.metadata) == (False, True)
    assert "Syncs refuse it: the schema has no field uid, which the source names as its key" in str(users.description)
    assert "Syncs refuse it" not in str(orders.description)


def test_a_stream_whose_schema_cannot_be_read_is_an_asset_without_columns(tmp_path: Path) -> None:
    save(tmp_path, {**USERS, "json_schema": "string"}, ORDERS)

    shop = connection(streams={"users": {"select": ["id"], "write": "append"}, "*": {}})
    assets = _assets(tmp_path, shop, checks=StreamChecks(primary_key=True, freshness=timedelta(days=1)))

    users, orders = sorted(assets.specs, key=lambda spec: spec.key.to_user_string(), reverse=True)
    assert ("dagster/column_schema" in users.metadata, "dagster/column_schema" in orders.metadata) == (False, True)
