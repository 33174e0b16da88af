"""Assets that the IO manager refuses before it starts Spark."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_airbyte_proto import (
    ConfigError,
    ConnectorResource,
    SparkSessionResource,
    SparkTableIOManager,
    StreamTranslator,
    StreamTranslatorData,
    build_connector_assets,
    build_push_assets,
)
from tests.dagster_defs.support.saved import NO_CONNECTOR, connection

_PUSH = {"users": {"from": "lake.raw.users", "key": ["id"]}}
_RELAY = {"streams": {"users": {}}, "to": {"connector": NO_CONNECTOR}}


def _materialize(folder: Path, made: dg.AssetsDefinition, streams: dg.AssetsDefinition) -> None:
    resources = {
        "connector": ConnectorResource(home=str(folder)),
        "io_manager": SparkTableIOManager(spark=SparkSessionResource(warehouse=str(folder))),
    }
    instance = dg.DagsterInstance.ephemeral()
    dg.materialize([streams, made], selection=[made], resources=resources, instance=instance)


@pytest.mark.parametrize(("written", "build"), [(_RELAY, build_connector_assets), ({"push": _PUSH}, build_push_assets)])
def test_rows_at_a_destination_are_no_input(quick_folder: Path, written: dict[str, Any], build: Any) -> None:
    @dg.asset(ins={"users": dg.AssetIn(["shop", "users"])})
    def reader(users: pa.Table) -> None: ...

    with pytest.raises(ConfigError, match="loading shop/users: connection shop sends its rows to a destination"):
        _materialize(quick_folder, reader, build(connection(**written)))


class _Raw(StreamTranslator):
    def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
        spec = super().get_asset_spec(data)
        return spec.replace_attributes(key=spec.key.with_prefix("raw"))


def test_a_frame_does_not_replace_the_rows_of_a_stream(quick_folder: Path) -> None:
    @dg.asset(key=["shop", "users"], deps=[["raw", "shop", "users"]])
    def cleaned() -> pa.Table:
        return pa.table({"id": [1]})

    streams = build_connector_assets(connection(streams={"users": {}}), home=quick_folder, translator=_Raw())
    with pytest.raises(ConfigError, match=r"lake\.shop\.users is the table of the stream raw/shop/users: its rows"):
        _materialize(quick_folder, cleaned, streams)
