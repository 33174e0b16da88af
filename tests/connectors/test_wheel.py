"""The wheel, as a user gets it: it resolves with the oldest and the newest of what it needs, and syncs there."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.packages.interpreters import find_python, find_uv

_ROOT = Path(__file__).parents[2]
_OURS = "{}.{}".format(*sys.version_info)
_DEFINITIONS = """
import dagster as dg
from dagster_airbyte_proto import Connection, ConnectorResource, SparkSessionResource, SparkTableIOManager
from dagster_airbyte_proto import build_connector_assets

tables = SparkTableIOManager(spark=SparkSessionResource(format="parquet"))
shop = build_connector_assets(Connection.from_file("shop.yaml"), table_format="parquet")
defs = dg.Definitions(assets=[shop], resources={"connector": ConnectorResource(), "io_manager": tables})
assert dg.materialize([shop], resources={"connector": ConnectorResource(), "io_manager": tables}).success
"""


class Installed:
    """An empty folder, and an environment with nothing but the wheel."""

    def __init__(self, folder: Path, python: Path) -> None:
        self._folder = folder
        self._programs = folder / "venv" / "bin"
        uv = find_uv()
        assert uv is not None
        self._uv = uv
        self.run(uv, "venv", "--quiet", "--python", str(python), "venv")

    def install(self, *words: str) -> None:
        self.run(self._uv, "pip", "install", "--quiet", "--python", "venv/bin/python", *words)

    def run(self, program: str, *words: str) -> str:
        environment = {name: os.environ[name] for name in os.environ if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
        path = f"{self._programs}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [program if os.sep in program else str(self._programs / program), *words],
            cwd=self._folder, env={**environment, "PATH": path}, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, (program, words, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.run("airbyte-proto", "--json", *words))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv = find_uv()
    assert uv is not None
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", folder, _ROOT], check=True)
    [built] = folder.glob("*.whl")
    return built


@pytest.mark.nightly
@pytest.mark.connectors
@pytest.mark.parametrize(
    ("python", "resolution"),
    [
        (_OURS, "highest"),
        ("3.12", "highest"),
        ("3.13", "highest"),
        pytest.param("3.11", "lowest-direct", marks=pytest.mark.spark),
    ],
)
def test_it_resolves_and_syncs(tmp_path: Path, wheel: Path, python: str, resolution: str) -> None:
    try:
        interpreter, _ = find_python(python)
    except ConfigError:
        pytest.skip(f"there is no Python {python} here")
    home = Installed(tmp_path, interpreter)
    home.install("--resolution", resolution, str(wheel))
    (tmp_path / "airbyte-proto.yaml").write_text("catalog: {format: parquet}\n")
    (tmp_path / "scenario.json").write_text(json.dumps({"streams": {"users": {"records": 3}}}))
    source = ["venv/bin/python", "-m", "dagster_airbyte_proto.testing.fake_source", "--scenario", "scenario.json"]
    home.json("init", "shop", "--command", shlex.join(source), "--no-check")
    with (tmp_path / "shop.yaml").open("a") as file:
        file.write('streams: {"*": {read: full_refresh, write: overwrite}}\n')
    assert home.json("check", "shop.yaml")["status"] == "succeeded"
    home.json("discover", "shop.yaml", "--save")
    assert home.json("sync", "shop.yaml")["streams"]["users"]["committed"] == 3
    (tmp_path / "definitions.py").write_text(_DEFINITIONS)
    home.run("python", "definitions.py")
    assert home.json("version")["dagster"].startswith("1.13.")
    if resolution == "lowest-direct":
        (tmp_path / "airbyte-proto.yaml").write_text("{}\n")
        assert home.json("sync", "shop.yaml", "--refresh")["streams"]["users"]["committed"] == 3
        assert home.json("query", "SELECT count(*) FROM lake.shop.users")["rows"] == [[3]]
