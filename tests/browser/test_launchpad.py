"""The jobs of a connection, launched from their forms: a person resets and rolls back in the UI."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import expect

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.testing import fake_source
from tests.browser.dagster_server import DagsterServer, Target, running_dagster
from tests.browser.dagster_ui import DagsterUI

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

_LOCATION = "desk.py"
_TICKETS = ("desk", "tickets")
_SCENARIO = {"streams": {"tickets": {"records": 25}}}
_WITHOUT_TABLES = """ops:
  desk_rollback:
    config:
      tables: false
      version: null
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home folder of a project with one connection, which stands beside it."""
    folder = tmp_path_factory.mktemp("desk")
    for file in (Path(__file__).with_name(_LOCATION), Path(fake_source.__file__)):
        shutil.copy(file, folder)
    command = [sys.executable, "-I", "-S", str(folder / "fake_source.py")]
    connector = {"protocol": "airbyte", "launch": {"kind": "local", "command": command}}
    (folder / "desk.yaml").write_text(
        yaml.safe_dump(
            {
                "connector": connector,
                "config": {"scenario": _SCENARIO},
                "streams": {"tickets": {"write": "append"}},
            }
        )
    )
    streams = [fake_source.catalog_stream(name, written) for name, written in _SCENARIO["streams"].items()]
    (folder / "catalog.json").write_text(json.dumps({"streams": streams}))
    return folder / "home"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Iterator[DagsterServer]:
    target = Target(["-f", _LOCATION], home.parent)
    with running_dagster(target, tmp_path_factory.mktemp("dagster"), {"AIRBYTE_PROTO_HOME": str(home)}) as started:
        yield started


def test_states_are_reset_and_rolled_back_from_a_form(server: DagsterServer, ui: DagsterUI, home: Path) -> None:
    server.wait_for_run(ui.materialize(_TICKETS), "SUCCESS")
    ui.sees_metadata(_TICKETS, "airbyte_proto/emitted", "25")
    assert _states(home) == ["tickets"]

    form = ui.open_launchpad(_LOCATION, "reset_desk")
    expect(form).to_contain_text("streams: []")
    server.wait_for_run(ui.launch_from_form(), "SUCCESS")
    assert _states(home) == []

    form = ui.open_launchpad(_LOCATION, "rollback_desk")
    expect(form).to_contain_text("tables: true")
    expect(form).to_contain_text("version: null")
    ui.write_form(_WITHOUT_TABLES)
    ui.take_picture("launchpad")
    server.wait_for_run(ui.launch_from_form(), "SUCCESS")
    assert _states(home) == ["tickets"]

    server.wait_for_run(ui.materialize(_TICKETS), "SUCCESS")
    ui.sees_metadata(_TICKETS, "airbyte_proto/emitted", "0")


def _states(home: Path) -> list[str]:
    """The streams of which the store has a state."""
    with closing(SqlStore(f"sqlite:///{home / 'state.db'}")) as store:
        return [stored.state.stream.name for stored in store.states("desk") if stored.state.stream is not None]
