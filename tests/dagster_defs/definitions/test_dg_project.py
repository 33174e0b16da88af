"""Components of connections in a real `dg` project, with the commands of `dg`."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.launch import PypiLaunch
from dagster_airbyte_proto.testing.fake_source import command

_REGISTRY = Path(__file__).parents[2] / "cli" / "oss_registry.json"
_PROJECT = Path(__file__).parent / "dg_project"
_SCENARIO = {"streams": {"users": {"records": 3}, "orders": {"records": 3, "namespace": "sales"}}}


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Project:
    """A copy of the project whose one connection is the fake source."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "demo"
        self.defs = self.folder / "src" / "demo" / "defs"
        shutil.copytree(_PROJECT, self.folder)
        self.connect(command())

    def connect(self, program: list[str]) -> None:
        connector = {"protocol": "airbyte", "launch": {"kind": "local", "command": program}}
        written = {"name": "shop", "connector": connector, "config": {"scenario": _SCENARIO, "password": "${env:SHOP}"}}
        (self.defs / "shop" / "connection.yaml").write_text(yaml.safe_dump(written))

    def dg(self, *words: str, **environment: str) -> Said:
        """A `dg` command as a user runs it. Only what is given here is in the environment beside the PATH."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        ours = {"DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "1", "PYTHONPATH": str(self.folder / "src")}
        found = subprocess.run(
            [str(Path(sys.executable).with_name("dg")), *words],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(home), **ours, **environment},
            capture_output=True,
            text=True,
        )
        return Said(found.returncode, found.stdout, found.stderr)

    def scaffold(self, name: str, connector: str, *words: str) -> Said:
        component = "dagster_airbyte_proto.ConnectorComponent"
        return self.dg(
            "scaffold", "defs", component, name, "--connector", connector, *words, DOCKER_HOST="unix:///none"
        )

    def assets(self) -> dict[str, Any]:
        said = self.dg("list", "defs", "--json")
        assert said.code == 0, said.err
        return {asset["asset_key"]: asset for asset in json.loads(said.out)["assets"]}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.nightly
def test_a_project_gets_its_assets_when_its_state_is_refreshed_and_never_before(project: Project) -> None:
    said = project.dg("list", "defs", "--json")
    assert json.loads(said.out)["assets"] == []
    assert "Run `dg utils refresh-defs-state`." in said.err

    refused = project.dg("utils", "refresh-defs-state")
    assert refused.code != 0
    assert "the environment variable SHOP is not set" in refused.out + refused.err

    assert project.dg("utils", "refresh-defs-state", SHOP="secret").code == 0
    project.connect(["/nowhere/connector"])

    checked = project.dg("check", "defs")
    assert (checked.code, "All definitions loaded successfully." in checked.out) == (0, True), checked
    assets = project.assets()
    assert set(assets) == {"raw/shop/users", "raw/shop/sales/orders"}
    users = assets["raw/shop/users"]
    assert users["group_name"] == "shop"
    assert users["owners"] == [{"team": "data"}]
    assert users["kinds"] == ["airbyte", "iceberg", "spark"]
    assert "written as append_dedup" in users["description"]


@pytest.mark.nightly
def test_the_tools_of_a_project_know_the_component(project: Project) -> None:
    listed = project.dg("list", "components", "--json")
    kinds = {item["key"]: item["summary"] for item in json.loads(listed.out)["items"]}
    assert kinds["dagster_airbyte_proto.ConnectorComponent"] == (
        "Makes every stream of a connection an asset: in a Spark table, or pushed to a destination."
    )

    # Of several components of one type, `dg check yaml` looks at one.
    shutil.rmtree(project.defs / "shop")
    scaffolded = project.scaffold("second", shlex.join(command()))
    assert scaffolded.code == 0, scaffolded
    written = yaml.safe_load((project.defs / "second" / "defs.yaml").read_text())
    assert written["attributes"] == {"connection_file": "connection.yaml"}
    connection = Connection.from_file(project.defs / "second" / "connection.yaml")
    assert (connection.name, connection.config) == ("second", None)
    assert project.dg("check", "yaml").code == 0

    written["attributes"] = {"connection": {"connector": {"protocoll": "airbyte"}}}
    (project.defs / "second" / "defs.yaml").write_text(yaml.safe_dump(written))
    faulty = project.dg("check", "yaml")
    assert faulty.code != 0
    assert "protocoll" in faulty.out + faulty.err


def test_a_scaffolded_component_has_all_that_it_needs(project: Project) -> None:
    shutil.rmtree(project.defs / "shop")
    (project.defs / "resources.py").unlink()
    (project.folder / ".gitignore").write_bytes(b"# B\xfccher\r\n*.tmp")
    registry = ("--registry", str(_REGISTRY))
    scaffolded = project.scaffold("fakes", "source-faker", *registry)
    assert scaffolded.code == 0, scaffolded
    assert scaffolded.out.splitlines()[-4:] == [
        "to fill in: count",
        "to set in the environment: FAKES_API_KEY",
        "then: airbyte-proto check src/demo/defs/fakes/connection.yaml",
        "and:  dg utils refresh-defs-state    (makes its streams assets)",
    ]
    connection = Connection.from_file(project.defs / "fakes" / "connection.yaml")
    assert connection.connector.launch == PypiLaunch(kind="pypi", package="airbyte-source-faker==7.2.1")
    assert (project.folder / ".gitignore").read_bytes() == b"# B\xfccher\r\n*.tmp\n.airbyte-proto/\n"
    assert project.dg("check", "defs").code == 0


@pytest.mark.nightly
def test_a_second_component_is_scaffolded_beside_the_first(project: Project) -> None:
    (project.defs / "resources.py").unlink()
    registry = ("--registry", str(_REGISTRY))
    assert project.scaffold("fakes", "source-faker", *registry).code == 0
    resources = (project.defs / "resources.py").read_text()
    misspelled = project.scaffold("more", "source-fakre", *registry)
    assert (misspelled.code != 0, "Did you mean source-faker?" in misspelled.err) == (True, True), misspelled
    more = project.scaffold("more", "faker", *registry)
    assert more.code == 0, more
    assert (project.defs / "resources.py").read_text() == resources
    assert (project.folder / ".gitignore").read_text().split().count(".airbyte-proto/") == 1


@pytest.mark.nightly
def test_a_destination_is_scaffolded_as_a_push_whose_table_is_left_to_fill_in(project: Project) -> None:
    program = project.folder / "destination-fake"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m dagster_airbyte_proto.testing.fake_destination "$@"\n')
    program.chmod(0o755)
    scaffolded = project.scaffold("crm", str(program))
    assert scaffolded.code == 0, scaffolded
    assert scaffolded.out.splitlines()[-2:] == [
        "to fill in: push.crm.from, push.crm.key",
        "then: airbyte-proto check src/demo/defs/crm/connection.yaml",
    ]
    file = project.defs / "crm" / "connection.yaml"
    filled = file.read_text().replace("from: null", "from: lake.shop.users").replace("key: null", "key: [id]")
    file.write_text(filled)
    assert "crm/crm" in project.assets()
