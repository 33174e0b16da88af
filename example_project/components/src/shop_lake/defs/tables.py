"""What is made of the tables: plain assets, which take and return Spark's data frames."""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-06")


@dg.asset(group_name="shop", kinds={"spark", "iceberg"})
def top_buyers(users: DataFrame, purchases: DataFrame) -> DataFrame:
    """Who bought most: a join of two streams."""
    bought = purchases.groupBy("user_id").agg(sf.count("*").alias("purchases"))
    buyers = users.join(bought, users.id == bought.user_id)
    return buyers.select("id", "name", "purchases").orderBy(sf.desc("purchases"))


@dg.asset(
    ins={"orders": dg.AssetIn(["orders", "orders"]), "customers": dg.AssetIn(["customers", "customers"])},
    partitions_def=DAYS,
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
def sales(orders: DataFrame) -> DataFrame:
    """What each day brought."""
    return orders.groupBy(sf.to_date("ordered_at").alias("day")).agg(sf.sum("amount").alias("amount"))
