"""The spec of a stream's asset, and translators that change it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.asset_streams import TablesOfAssets, plan_asset_streams
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import saved_catalog
from dagster_airbyte_proto.dagster_defs.definitions.translator import StreamTranslator, StreamTranslatorData
from tests.dagster_defs.support.saved import ORDERS, USERS, connection, named, save


def _specs(home: Path, *streams: dict[str, Any], **written: Any) -> list[dg.AssetSpec]:
    save(home, *streams)
    return _translated(connection(**written), home=home)


def _translated(
    shop: Connection, translator: StreamTranslator | None = None, *, home: Path, **tables: Any
) -> list[dg.AssetSpec]:
    streams = plan_asset_streams(shop, saved_catalog(shop, home=home), TablesOfAssets(**tables))
    return [(translator or StreamTranslator()).get_asset_spec(data) for data in streams]


def test_a_stream_tells_where_it_comes_from_and_where_it_lands(tmp_path: Path) -> None:
    users, orders = _specs(tmp_path, USERS, ORDERS)

    assert users.key == dg.AssetKey(["shop", "users"])
    assert orders.key == dg.AssetKey(["shop", "sales", "orders"])
    assert users.group_name == "shop"
    assert users.kinds == {"airbyte", "spark", "iceberg"}
    assert users.metadata["dagster/table_name"] == "lake.shop.users"
    assert users.description == (
        "Who buys.\n\nStream `users` of the connection `shop`, "
        "read as incremental by updated_at, written as append_dedup with the key id."
    )
    assert orders.description == (
        "Stream `sales.orders` of the connection `shop`, read as full_refresh, written as overwrite."
    )


def test_the_table_is_the_one_that_the_connection_chose(tmp_path: Path) -> None:
    destination = {"namespace": "raw_${source_namespace}", "table_prefix": "t_"}
    streams = {"users": {"rename": "people"}, "*": {}}

    users, orders = _specs(tmp_path, USERS, ORDERS, destination=destination, streams=streams)

    assert users.metadata["dagster/table_name"] == "lake.raw_shop.t_people"
    assert orders.metadata["dagster/table_name"] == "lake.raw_sales.t_orders"


def test_columns_come_with_their_types_and_keys(tmp_path: Path) -> None:
    [users] = _specs(tmp_path, USERS)

    schema = users.metadata["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchema)
    assert [(column.name, column.type) for column in schema.columns[:3]] == [
        ("id", "bigint"),
        ("name", "string"),
        ("updated_at", "timestamp"),
    ]
    assert schema.columns[0].constraints.unique


def test_a_stream_has_the_columns_behind_its_transforms(tmp_path: Path) -> None:
    geo = {"protocol": "syncmaven", "launch": {"kind": "local", "command": ["geo"]}}
    rule = {"validate": [{"assert_not_null": "id"}], "streams": ["users"]}

    users, orders = _specs(
        tmp_path, USERS, ORDERS, transforms=[rule, {"connector": geo, "columns": {"city": "string"}}]
    )
    plain, _ = _specs(tmp_path, USERS, ORDERS)

    assert users.metadata["airbyte_proto/transforms"] == [
        "assert_not_null id (on_error: reject)",
        "fill city by an enrichment",
    ]
    assert orders.metadata["airbyte_proto/transforms"] == ["fill city by an enrichment"]
    schema = users.metadata["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchema)
    assert ("city", "string") in [(column.name, column.type) for column in schema.columns]
    assert users.code_version != plain.code_version


def test_a_partitioned_table_has_a_column_for_the_partition_and_its_key_is_unique_within_one(tmp_path: Path) -> None:
    save(tmp_path, USERS)

    [users] = _translated(connection(), home=tmp_path, is_partitioned=True)

    schema = users.metadata["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchema)
    last = schema.columns[-1]
    assert (last.name, last.type, last.description) == (
        "_airbyte_partition",
        "string",
        "Partition of the row",
    )
    assert (schema.columns[0].constraints.other, schema.columns[0].constraints.unique) == (["primary key"], False)


def test_streams_whose_names_dagster_would_confuse_get_keys_of_their_own(tmp_path: Path) -> None:
    streams = named("a.b", "a_b", "Sales Orders (2026)", "A_B")

    keys = [spec.key.path[1] for spec in _specs(tmp_path, *streams)]

    assert (keys[0], keys[2]) == ("a.b", "Sales_Orders_2026_")
    assert keys[1].startswith("a_b_")
    assert keys[3].startswith("A_B_")
    assert len({key.replace(".", "_").lower() for key in keys}) == 4


def test_of_streams_with_like_names_the_first_has_the_plain_key(tmp_path: Path) -> None:
    def keys(*names: str) -> dict[str, str]:
        found = _specs(tmp_path, *named(*names))
        return {name: spec.key.path[1] for name, spec in zip(names, found, strict=True)}

    before = keys("клиенты", "a b", "a?b", "", "Users")
    after = keys("клиенты", "a b", "a?b", "", "Users", "a_b", "USERS", "заказы")
    assert before.items() <= after.items()
    assert (after["a b"], after["Users"]) == ("a_b", "Users")
    assert len({key.lower() for key in after.values()}) == 8


def test_a_stream_that_was_never_discovered_says_how_to(tmp_path: Path) -> None:
    shop = connection(streams={"users": {"write": "append_dedup"}, "sales.orders": {"cursor": "at"}})

    users, orders = _translated(shop, home=tmp_path)

    assert users.key == dg.AssetKey(["shop", "users"])
    assert orders.key == dg.AssetKey(["shop", "sales", "orders"])
    assert users.metadata == {"dagster/table_name": "lake.shop.users"}
    assert users.code_version is None
    assert users.description == (
        "Stream `users` of the connection `shop`.\n\n"
        "Its columns are not known yet. Run `airbyte-proto discover shop --save`; of a component"
        " `dg utils refresh-defs-state`."
    )


_HOUR = timedelta(hours=1)


class _Ours(StreamTranslator):
    def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
        spec = super().get_asset_spec(data)
        return spec.replace_attributes(
            key=dg.AssetKey(["raw", data.table.name]),
            owners=["team:data"],
            deps=[dg.AssetKey(["crm", data.stream.id.name])],
            automation_condition=dg.AutomationCondition.eager(),
            freshness_policy=dg.FreshnessPolicy.cron("0 9 * * *", lower_bound_delta=_HOUR),
        ).merge_attributes(tags={"tier": "gold" if data.planned.primary_key else "silver"})


def test_one_method_changes_anything(tmp_path: Path) -> None:
    save(tmp_path, USERS, ORDERS)

    users, orders = _translated(connection(), _Ours(), home=tmp_path, spark_catalog="prod")

    assert users.key == dg.AssetKey(["raw", "users"])
    assert users.owners == ["team:data"]
    assert [dep.asset_key for dep in users.deps] == [dg.AssetKey(["crm", "users"])]
    assert users.automation_condition == dg.AutomationCondition.eager()
    assert users.freshness_policy == dg.FreshnessPolicy.cron("0 9 * * *", lower_bound_delta=_HOUR)
    assert (users.tags["tier"], orders.tags["tier"]) == ("gold", "silver")
    assert users.metadata["dagster/table_name"] == "prod.shop.users"


def test_the_tables_format_is_a_kind_and_brings_its_catalog(tmp_path: Path) -> None:
    save(tmp_path, USERS)
    [users] = _translated(connection(), StreamTranslator(), home=tmp_path, format="delta")
    assert users.kinds == {"airbyte", "spark", "delta"}
    assert users.metadata["dagster/table_name"] == "spark_catalog.shop.users"
    [users] = _specs(tmp_path, USERS, destination={"namespace": "online-shop"})
    assert users.metadata["dagster/table_name"] == "lake.`online-shop`.users"
