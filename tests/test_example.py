"""The example as a user finds it: it loads without a warning, in Python and as a `dg` project, with its columns."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.fake_source import command

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "example_project"
_STREAMS = {
    "customers/customers": {"id", "name", "country"},
    "orders/orders": {"id", "customer_id", "amount", "ordered_at"},
    "shop/products": {"id", "make", "model", "price"},
    "shop/purchases": {"id", "user_id", "product_id"},
    "shop/users": {"id", "name", "occupation"},
}
_MADE_OF_THEM = {"orders_by_country", "sales", "top_buyers"}
_LOADED = """
import json, sys
sys.path.insert(0, "example_project")
from definitions import defs
specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
schemas = {name: spec.metadata.get("dagster/column_schema") for name, spec in specs.items()}
print(json.dumps({name: [c.name for c in schema.columns] if schema else [] for name, schema in schemas.items()}))
"""


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def warnings(self) -> list[str]:
        """Those of Python. That a command of Dagster has a newer name, and that a component of another package is new,
        is not ours to mend."""
        lines = (self.out + self.err).splitlines()
        foreign = ("SupersessionWarning", "SparkDeclarativePipelineScaffolder")
        return [line for line in lines if "Warning" in line and not any(word in line for word in foreign)]


def _called(home: Path, program: str, *words: str, folder: Path = ROOT, **environment: str) -> Said:
    """A program of the virtual environment, with homes of its own."""
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    ours = {"DAGSTER_HOME": str(home), "AIRBYTE_PROTO_HOME": str(home / "ours"), "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [Path(sys.executable).with_name(program), *words],
        cwd=folder,
        env={**os.environ, **ours, **environment},
        capture_output=True,
        text=True,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def test_the_workspace_is_valid(tmp_path: Path) -> None:
    said = _called(tmp_path, "dagster", "definitions", "validate", "-w", "workspace.yaml")

    assert (said.code, said.warnings) == (0, []), said
    assert "Validation successful for code location example_project." in said.out + said.err


def test_its_definitions_load_without_a_warning_and_every_stream_tells_its_columns(tmp_path: Path) -> None:
    said = _called(tmp_path, "python", "-W", "error", "-c", _LOADED)

    assert said.code == 0, said.err
    columns: dict[str, list[str]] = json.loads(said.out)
    assert columns.keys() == _STREAMS.keys() | _MADE_OF_THEM
    for name, some in _STREAMS.items():
        assert some < set(columns[name]), name
    assert not (tmp_path / "ours").exists()


class DgProject:
    """A copy of the component project, with its connections beside it as in the repository."""

    def __init__(self, folder: Path) -> None:
        self._home = folder / "home"
        self.example = folder / "example_project"
        kept = shutil.ignore_patterns(".airbyte-proto", ".local_defs_state", "__pycache__")
        shutil.copytree(EXAMPLE, self.example, ignore=kept)
        self._project = self.example / "components"

    def replace_shop(self) -> None:
        """The one connector that comes from the package index, by one that offers streams of the same names."""
        shop = self.example / "connections" / "shop.yaml"
        streams = {name: {"records": 1} for name in ("users", "products", "purchases")}
        connection = yaml.safe_load(shop.read_text()) | {"config": {"scenario": {"streams": streams}}}
        connection["connector"]["launch"] = {"kind": "local", "command": command()}
        shop.write_text(yaml.safe_dump(connection))

    def dg(self, *words: str) -> Said:
        return _called(self._home, "dg", *words, folder=self._project, PYTHONPATH=str(self._project / "src"))

    def assets(self) -> dict[str, Any]:
        said = self.dg("list", "defs", "--json")
        assert (said.code, said.warnings) == (0, []), said
        return {asset["asset_key"]: asset for asset in json.loads(said.out)["assets"]}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_offline", [True, pytest.param(False, marks=pytest.mark.connectors)])
def test_the_component_project_is_clean(tmp_path: Path, is_offline: bool) -> None:
    project = DgProject(tmp_path)
    if is_offline:
        project.replace_shop()

    refreshed = project.dg("utils", "refresh-defs-state")
    assert (refreshed.code, refreshed.warnings) == (0, []), refreshed

    checked = project.dg("check", "defs")
    assert (checked.code, checked.warnings) == (0, []), checked
    assert "All component YAML validated successfully." in checked.out
    assert "All definitions loaded successfully." in checked.out
    assets = project.assets()
    assert assets.keys() == _STREAMS.keys() | _MADE_OF_THEM
    assert assets["shop/users"]["owners"] == [{"team": "shop"}]
