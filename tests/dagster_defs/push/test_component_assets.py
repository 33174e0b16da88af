"""A push to a component as a Dagster asset: its numbers, its rejected rows, and values equal to the table's."""

from pathlib import Path

import dagster as dg
import pytest

from dagster_airbyte_proto import ConnectorResource, build_push_assets
from dagster_airbyte_proto.connection import Connection
from tests.dagster_defs.support.folder_shop import FolderIOManager
from tests.sync.push.pushed_table import person
from tests.sync.push.rapidbyte.component_table import ComponentTable

pytestmark = pytest.mark.nightly


def test_a_component_gets_the_rows_of_the_table(quick_folder: Path, dagster_instance: dg.DagsterInstance) -> None:
    table = ComponentTable(quick_folder)
    metric = '{"name":"batches","value":{"type":"counter","value":1}}'
    table.config |= {"record": '{"id": 3}', "failed": "1", "metric": metric}
    people = [person(number) for number in range(12)]
    table.fill(people)
    assets = build_push_assets(Connection.from_file(table.connection_file()))
    assert [spec.kinds for spec in assets.specs] == [{"rapidbyte"}]
    resources = {
        "connector": ConnectorResource(home=str(table.home)),
        "io_manager": FolderIOManager(warehouse=str(table.home / "warehouse")),
    }
    result = dg.materialize([assets], resources=resources, instance=dagster_instance)
    [event] = [each for each in result.get_asset_materialization_events() if each.asset_key]
    found = {name: value.value for name, value in event.materialization.metadata.items()}
    assert {name: found[f"airbyte_proto/{name}"] for name in ("sent", "acknowledged", "rejected", "unknown")} == {
        "sent": 12,
        "acknowledged": 11,
        "rejected": 1,
        "unknown": 0,
    }
    assert found["airbyte_proto/metrics"] == {"destination": {"batches": 3.0}}
    assert table.received() == people
