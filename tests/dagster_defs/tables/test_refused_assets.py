"""Assets that the IO manager refuses before it starts Spark."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository

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


class Raw(StreamTranslator):
    """Gives the assets of streams other keys than their tables have."""

    def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
        spec = super().get_asset_spec(data)
        return spec.replace_attributes(key=spec.key.with_prefix("raw"))


def test_a_frame_does_not_replace_the_rows_of_a_stream(quick_folder: Path) -> None:
    @dg.asset(key=["shop", "users"], deps=[["raw", "shop", "users"]])
    def cleaned() -> pa.Table:
        return pa.table({"id": [1]})

    streams = build_connector_assets(connection(streams={"users": {}}), home=quick_folder, translator=Raw())
    with pytest.raises(ConfigError, match=r"lake\.shop\.users is the table of the stream raw/shop/users: its rows"):
        _materialize(quick_folder, cleaned, streams)


_LOCATION = """
from pathlib import Path

import dagster as dg
import pyarrow as pa

from dagster_airbyte_proto import SparkSessionResource, SparkTableIOManager, build_connector_assets
from tests.dagster_defs.support.saved import connection
from tests.dagster_defs.tables.test_refused_assets import Raw

streams = build_connector_assets(connection(streams={{"users": {{}}}}), home=Path({folder!r}), translator=Raw())

@dg.asset(key=["shop", "users"])
def cleaned() -> pa.Table:
    return pa.table({{"id": [1]}})

@dg.definitions
def location():
    return dg.Definitions(
        assets=[streams, cleaned], jobs=[dg.define_asset_job("clean", selection=[cleaned])],
        executor=dg.in_process_executor,
        resources={{
            "connector": dg.ResourceDefinition.none_resource(),
            "io_manager": SparkTableIOManager(spark=SparkSessionResource(warehouse={folder!r})),
        }},
    )
"""


def test_a_job_of_the_frame_alone_does_not_replace_the_rows_of_a_stream(quick_folder: Path) -> None:
    code = quick_folder / "location.py"
    code.write_text(_LOCATION.format(folder=str(quick_folder)))
    job = ReconstructableRepository.for_file(str(code), "location").get_reconstructable_job("clean")
    with (
        dg.instance_for_test() as instance,
        pytest.raises(ConfigError, match=r"lake\.shop\.users is the table of the stream raw/shop/users: its rows"),
    ):
        dg.execute_job(job, instance, raise_on_error=True)
