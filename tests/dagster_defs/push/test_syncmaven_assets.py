"""A push to a Syncmaven destination as a Dagster asset: its numbers, and what the destination keeps between runs."""

from pathlib import Path

import dagster as dg
import pytest

from dagster_airbyte_proto import ConnectorResource, build_push_assets
from dagster_airbyte_proto.connection import Connection
from tests.dagster_defs.support.folder_shop import FolderIOManager
from tests.sync.push.pushed_table import PushedTable, person


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, protocol="syncmaven")
    pushed.config |= {"keeps": True, "fails": True}
    pushed.fill([person(1), person(2), person(3, bad=True), person(4, "x" * 41)])
    return pushed


def _run(table: PushedTable, instance: dg.DagsterInstance) -> tuple[dict[str, object], bool]:
    """The numbers of a run, and whether it ended well."""
    assets = build_push_assets(Connection.from_file(table.connection_file()))
    assert [spec.kinds for spec in assets.specs] == [{"syncmaven"}]
    resources = {
        "connector": ConnectorResource(home=str(table.home)),
        "io_manager": FolderIOManager(warehouse=str(table.home / "warehouse")),
    }
    result = dg.materialize([assets], resources=resources, instance=instance, raise_on_error=False)
    events = [each for each in result.get_asset_materialization_events() if each.asset_key]
    numbers: dict[str, object] = {
        name.removeprefix("airbyte_proto/"): value.value
        for event in events
        for name, value in event.materialization.metadata.items()
    }
    return numbers, result.success


def test_runs_tell_their_numbers_and_state_moves_with_them(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    first, is_well = _run(table, dagster_instance)
    names = ("planned", "sent", "acknowledged", "rejected", "unknown")
    assert is_well
    assert {name: first[name] for name in names} == {
        "planned": 4,
        "sent": 4,
        "acknowledged": 2,
        "rejected": 2,
        "unknown": 0,
    }
    kept = table.kept_names()
    assert kept == {1: "person 1", 2: "person 2", 3: "person 3"}

    table.fill([person(1, "renamed"), person(2), person(3, bad=True), person(5)])
    table.config["halts_after"] = 2
    _, is_well = _run(table, dagster_instance)
    assert not is_well
    assert table.kept_names() == kept

    del table.config["halts_after"]
    second, is_well = _run(table, dagster_instance)
    assert is_well
    assert {name: second[name] for name in names} == {
        **dict.fromkeys(names, 0),
        "planned": 2,
        "sent": 2,
        "acknowledged": 2,
    }
    assert table.kept_names() == {**kept, 1: "renamed", 5: "person 5"}
    starts = [message["payload"] for message in table.messages() if message["type"] == "start-stream"]
    assert [(each["syncId"], each["fullRefresh"]) for each in starts] == [
        ("crm.contacts", True),
        ("crm.contacts", False),
        ("crm.contacts", False),
    ]
