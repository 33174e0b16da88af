"""The jobs of a connection, launched from their forms: a person resets and rolls back in the UI."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import expect

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.testing import fake_source
from tests.browser.dagster_server import DagsterServer, Target, running_dagster
from tests.browser.dagster_ui import DagsterUI

pytestmark = [pytest.mark.browser, pytest.mark.spark, pytest.mark.nightly]

_LOCATION = "desk.py"
_TICKETS = ("desk", "tickets")
_SCENARIO = {"streams": {"tickets": {"records": 25}}}
_MORE_TICKETS = {"streams": {"tickets": {"records": 40}}}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home folder of a project with one connection, which stands beside it."""
    folder = tmp_path_factory.mktemp("desk")
    for file in (Path(__file__).with_name(_LOCATION), Path(fake_source.__file__)):
        shutil.copy(file, folder)
    _offer(folder, _SCENARIO)
    streams = [fake_source.catalog_stream(name, written) for name, written in _SCENARIO["streams"].items()]
    (folder / "catalog.json").write_text(json.dumps({"streams": streams}))
    return folder / "home"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Iterator[DagsterServer]:
    target = Target(["-f", _LOCATION], home.parent)
    with running_dagster(target, tmp_path_factory.mktemp("dagster"), {"AIRBYTE_PROTO_HOME": str(home)}) as started:
        yield started


def _offer(folder: Path, scenario: dict[str, Any]) -> None:
    """Writes the connection file: from now on the source has these records."""
    command = [sys.executable, "-I", "-S", str(folder / "fake_source.py")]
    written = {
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": command}},
        "config": {"scenario": scenario},
        "streams": {"tickets": {"write": "append"}},
    }
    (folder / "desk.yaml").write_text(yaml.safe_dump(written))


def test_states_and_tables_are_reset_and_rolled_back_from_forms_as_they_stand(
    server: DagsterServer, ui: DagsterUI, home: Path
) -> None:
    server.wait_for_run(ui.materialize(_TICKETS), "SUCCESS")
    ui.sees_metadata(_TICKETS, "airbyte_proto/emitted", "25")
    assert _states(home) == ["tickets"]

    form = ui.open_launchpad(_LOCATION, "reset_desk")
    expect(form).to_contain_text("streams: []")
    server.wait_for_run(ui.launch_from_form(), "SUCCESS")
    assert _states(home) == []
    _roll_back(server, ui)
    assert _states(home) == ["tickets"]

    _offer(home.parent, _MORE_TICKETS)
    server.wait_for_run(ui.materialize(_TICKETS), "SUCCESS")
    ui.sees_metadata(_TICKETS, "airbyte_proto/emitted", "15")
    ui.sees_metadata(_TICKETS, "dagster/row_count", "40")
    ui.open_launchpad(_LOCATION, "rollback_desk")
    ui.take_picture("launchpad")
    _roll_back(server, ui)

    # Rows and state have gone back together: the same rows come again, once.
    server.wait_for_run(ui.materialize(_TICKETS), "SUCCESS")
    ui.sees_metadata(_TICKETS, "airbyte_proto/emitted", "15")
    ui.sees_metadata(_TICKETS, "dagster/row_count", "40")


def _roll_back(server: DagsterServer, ui: DagsterUI) -> None:
    """Launches the job with the form as the Launchpad shows it."""
    form = ui.open_launchpad(_LOCATION, "rollback_desk")
    expect(form).to_contain_text("tables: true")
    expect(form).to_contain_text("version: null")
    server.wait_for_run(ui.launch_from_form(), "SUCCESS")


def _states(home: Path) -> list[str]:
    """The streams of which the store has a state."""
    with closing(SqlStore(f"sqlite:///{home / 'state.db'}")) as store:
        return [stored.state.stream.name for stored in store.states("desk") if stored.state.stream is not None]
