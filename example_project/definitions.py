"""The example in Python: connections as assets, what is made of their tables and pushed, what keeps them fresh."""

import base64
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from dagster_airbyte_proto import (
    Connection,
    ConnectorResource,
    SparkSessionResource,
    SparkTableIOManager,
    SqlStateStore,
    StreamChecks,
    build_connection_jobs,
    build_connector_assets,
    build_push_assets,
    build_sync_sensor,
    connector_assets,
    files_changed,
)

HERE = Path(__file__).parent
HOME = Path(os.environ.get("AIRBYTE_PROTO_HOME", HERE / ".airbyte-proto"))
CATALOGS = HERE / "catalogs"
# State lies in the home folder, until several machines have to share it.
STATE = SqlStateStore(url=dg.EnvVar("STATE_URL")) if "STATE_URL" in os.environ else None
# Spark computes in this process, until there is a cluster; a run takes one of its processors, for there may be several.
CLUSTER = {"spark.master": os.environ["SPARK_MASTER"], "spark.cores.max": "1"} if "SPARK_MASTER" in os.environ else {}
if "SPARK_SECRET" in os.environ:
    CLUSTER |= {"spark.authenticate": "true", "spark.authenticate.secret": dg.EnvVar("SPARK_SECRET")}
# Or a server of Spark Connect has the only JVM, and this process is its client.
CONNECT = os.environ.get("CONNECT_URL", "")
if CONNECT:
    CLUSTER = {"spark.connect.authenticate.token": dg.EnvVar("SPARK_TOKEN")}

shop = Connection.from_file(HERE / "connections" / "shop.yaml")
customers = Connection.from_file(HERE / "connections" / "customers.yaml")
orders = Connection.from_file(HERE / "connections" / "orders.yaml")
reviews = Connection.from_file(HERE / "connections" / "reviews.yaml")
crm = Connection.from_file(HERE / "connections" / "crm.yaml")
stock = Connection.from_file(HERE / "connections" / "stock.yaml")

days = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-06")


@connector_assets(connection=shop, catalog=CATALOGS / "shop.json", checks=StreamChecks())
def shop_assets(context: dg.AssetExecutionContext, connector: ConnectorResource) -> Iterator[Any]:
    """Airbyte's sample source: users, products, purchases."""
    yield from connector.sync(context)


customers_assets = build_connector_assets(customers, catalog=CATALOGS / "customers.json", checks=StreamChecks())
orders_assets = build_connector_assets(orders, catalog=CATALOGS / "orders.json", partitions_def=days)
# A Singer tap: all the same.
reviews_assets = build_connector_assets(reviews, catalog=CATALOGS / "reviews.json", checks=StreamChecks())
# A Rapidbyte component has to be built first, as connections/stock.yaml says: until then it is no asset.
stock_assets = (
    [build_connector_assets(stock, catalog=CATALOGS / "stock.json", checks=StreamChecks())]
    if (HERE / "connectors" / "stock" / "source.wasm").exists()
    else []
)


@dg.asset(group_name="shop", kinds={"spark", "iceberg"})
def top_buyers(users: DataFrame, purchases: DataFrame) -> DataFrame:
    """Who bought most: a join of two streams."""
    bought = purchases.groupBy("user_id").agg(sf.count("*").alias("purchases"))
    return (
        users.join(bought, users.id == bought.user_id).select("id", "name", "purchases").orderBy(sf.desc("purchases"))
    )


# The way back: its rows to a destination, as the asset crm/leads downstream of it.
crm_assets = build_push_assets(crm, deps={"leads": ["top_buyers"]})


@dg.asset(
    ins={"orders": dg.AssetIn(["orders", "orders"]), "customers": dg.AssetIn(["customers", "customers"])},
    partitions_def=days,
    group_name="orders",
    kinds={"spark", "iceberg"},
)
def orders_by_country(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """A day's orders with the country of who ordered: its partition is replaced whole."""
    where = customers.select(sf.col("id").alias("customer_id"), "country")
    return orders.join(where, "customer_id").groupBy("country").agg(sf.sum("amount").alias("amount"))


@dg.asset(
    ins={"orders": dg.AssetIn(["orders", "orders"])},
    group_name="orders",
    kinds={"spark", "iceberg"},
    automation_condition=dg.AutomationCondition.eager(),
)
def sales(context: dg.AssetExecutionContext, orders: DataFrame) -> DataFrame:
    """What each day brought, with a picture of it."""
    each_day = orders.groupBy(sf.to_date("ordered_at").alias("day")).agg(sf.sum("amount").alias("amount"))
    rows = each_day.orderBy("day").collect()
    bars = [(f"{row['day']:%d %b}", float(row["amount"])) for row in rows]
    context.add_output_metadata({"days": len(bars), "by_day": dg.MetadataValue.md(bar_chart(bars))})
    return each_day


def bar_chart(bars: Sequence[tuple[str, float]]) -> str:
    """An image in Markdown, with nothing to install."""
    highest = max((height for _, height in bars), default=1)
    drawn = "".join(
        f'<rect x="{40 * i}" y="{120 - 100 * height / highest:.0f}" width="30" height="{100 * height / highest:.0f}"'
        f' fill="#4f43dd"/><text x="{40 * i + 15}" y="134" font-size="9" text-anchor="middle">{label}</text>'
        for i, (label, height) in enumerate(bars)
    )
    image = f'<svg xmlns="http://www.w3.org/2000/svg" width="{40 * len(bars)}" height="140">{drawn}</svg>'
    return f"![sales](data:image/svg+xml;base64,{base64.b64encode(image.encode()).decode()})"


nightly = dg.ScheduleDefinition(
    name="nightly", target=dg.AssetSelection.groups("shop"), cron_schedule="0 3 * * *", execution_timezone="UTC"
)
new_customers = build_sync_sensor(
    "new_customers",
    target=customers_assets,
    probe=files_changed(HERE / "data" / "customers.csv"),
    minimum_interval_seconds=10,
)

defs = dg.Definitions(
    assets=[
        shop_assets,
        customers_assets,
        orders_assets,
        reviews_assets,
        *stock_assets,
        top_buyers,
        crm_assets,
        orders_by_country,
        sales,
    ],
    jobs=[
        *build_connection_jobs(shop, assets=shop_assets),
        *build_connection_jobs(customers, assets=customers_assets),
    ],
    schedules=[nightly],
    sensors=[new_customers],
    resources={
        "connector": ConnectorResource(home=str(HOME), state=STATE),
        "io_manager": SparkTableIOManager(
            spark=SparkSessionResource(
                warehouse=str(HOME / "warehouse"), spark_config=CLUSTER, remote=CONNECT, short_lived=True
            )
        ),
    },
)
