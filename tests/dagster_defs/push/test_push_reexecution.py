"""A failed run of pushes, re-executed by the mutations that the UI sends."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dagster_airbyte_proto import ConnectorResource, build_push_assets
from dagster_airbyte_proto.connection import Connection
from tests.dagster_defs.support.folder_shop import FolderIOManager
from tests.dagster_defs.support.web import Web, opened_web
from tests.sync.push.pushed_table import PushedTable, person

_STREAMS = (dg.AssetKey(["crm", "contacts"]), dg.AssetKey(["crm", "others"]))
_DEFINITIONS = """from pathlib import Path
from tests.dagster_defs.push.test_push_reexecution import definitions
defs = definitions(Path(__file__).parent)
"""


def definitions(folder: Path) -> dg.Definitions:
    """The definitions of the code location in a folder: the streams that are pushed."""
    home = folder / "home"
    return dg.Definitions(
        [build_push_assets(Connection.from_file(folder / "crm.yaml"))],
        resources={
            "connector": ConnectorResource(home=str(home)),
            "io_manager": FolderIOManager(warehouse=str(home / "warehouse")),
        },
        executor=dg.in_process_executor,
    )


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    """Of its two streams one fails where a row is rejected."""
    pushed = PushedTable(quick_folder)
    pushed.other_streams = {"others": {**pushed.push, "max_rejected": 0}}
    pushed.fill([person(1), person(2, score=float("nan"))])
    pushed.connection_file()
    return pushed


@pytest.fixture
def web(table: PushedTable) -> Iterator[Web]:
    with opened_web(table.folder, _DEFINITIONS) as opened:
        yield opened


def test_from_asset_failure_pushes_the_failed_stream_alone(table: PushedTable, web: Web) -> None:
    failed = web.materialized(*_STREAMS)
    assert (failed.succeeded, failed.materialized) == (False, ["contacts"])
    sent = len(table.received("contacts"))
    table.fill([person(1), person(2)])
    again = web.reexecuted(failed, "FROM_ASSET_FAILURE")
    assert again.succeeded, again.failures
    assert (web.selection(again), again.materialized) == (["others"], ["others"])
    assert len(table.received("contacts")) == sent
    assert sorted({row["id"] for row in table.received("others")}) == [1, 2]
