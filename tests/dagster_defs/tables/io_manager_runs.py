"""Runs of assets whose tables an IO manager keeps."""

from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
from pyspark.sql import SparkSession

Rows = Callable[[str], list[Any]]


def run(
    io: dg.ConfigurableIOManager,
    *assets: dg.AssetsDefinition | dg.AssetSpec,
    partition: str | None = None,
    **options: Any,
) -> dg.ExecuteInProcessResult:
    """One run of all the assets, or of a selection."""
    instance = dg.DagsterInstance.ephemeral()
    return dg.materialize(assets, resources={"io_manager": io}, partition_key=partition, instance=instance, **options)


def output(result: dg.ExecuteInProcessResult, key: Sequence[str]) -> dict[str, Any]:
    [event] = result.asset_materializations_for_node("__".join(key))
    return {name: value.value for name, value in event.metadata.items()}


def returning(key: Sequence[str], value: Callable[[], Any], **options: Any) -> dg.AssetsDefinition:
    def made() -> Any:
        return value()

    asset: dg.AssetsDefinition = dg.asset(key=list(key), **options)(made)
    return asset


FRAMES: dict[str, Callable[[SparkSession], Any]] = {
    "spark": lambda spark: spark.createDataFrame([(1, "a"), (2, "b")], "id bigint, name string"),
    "pandas": lambda _: pd.DataFrame({"id": [1, 2], "name": ["a", "b"]}),
    "pyarrow": lambda _: pa.table({"id": [1, 2], "name": ["a", "b"]}),
    "polars": lambda _: pl.DataFrame({"id": [1, 2], "name": ["a", "b"]}),
}
