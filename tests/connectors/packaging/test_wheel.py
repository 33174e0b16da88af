"""The wheel, as a user gets it: it resolves with the oldest and the newest of what it needs, and syncs there."""

import json
import shlex
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.connectors.packaging.installed import Installed, interpreter

_PROJECT = Path(__file__).parents[3] / "pyproject.toml"
_DEFINITIONS = """
import dagster as dg
from dagster_airbyte_proto import Connection, ConnectorResource, SparkSessionResource, SparkTableIOManager
from dagster_airbyte_proto import build_connector_assets, build_status_asset

tables = SparkTableIOManager(spark=SparkSessionResource(format="parquet"))
resources = {"connector": ConnectorResource(), "io_manager": tables}
shop = build_connector_assets(Connection.from_file("shop.yaml"), table_format="parquet")
defs = dg.Definitions(assets=[shop, build_status_asset()], resources=resources)
dg.Definitions.validate_loadable(defs)
assert dg.materialize([shop, build_status_asset()], resources=resources).success
"""


def _oldest(name: str) -> str:
    """The oldest version of a package that pyproject.toml allows."""
    declared = map(Requirement, tomllib.loads(_PROJECT.read_text())["project"]["dependencies"])
    [found] = [each for each in declared if each.name == name]
    [version] = [each.version for each in found.specifier if each.operator == ">="]
    return version


# Each Python has the newest of both; the oldest ones are met together, where all else is the oldest too, and alone.
@pytest.mark.nightly
@pytest.mark.connectors
@pytest.mark.spark
@pytest.mark.parametrize(
    ("python", "resolution", "oldest"),
    [
        pytest.param("3.11", "lowest-direct", ["dagster", "pyspark"], id="3.11, all the oldest"),
        pytest.param("3.11", "highest", [], id="3.11, all the newest"),
        pytest.param("3.12", "highest", ["dagster"], id="3.12, the oldest Dagster"),
        pytest.param("3.12", "highest", [], id="3.12, all the newest"),
        pytest.param("3.13", "highest", ["pyspark"], id="3.13, the oldest pyspark"),
        pytest.param("3.13", "highest", [], id="3.13, all the newest"),
    ],
)
def test_it_resolves_and_syncs(tmp_path: Path, wheel: Path, python: str, resolution: str, oldest: list[str]) -> None:
    home = Installed(tmp_path, interpreter(python))
    pinned = [f"{name}=={_oldest(name)}" for name in oldest]
    home.install("--resolution", resolution, str(wheel), *pinned)
    versions = home.json("version")
    for name in ("dagster", "pyspark"):
        assert (Version(versions[name]) == Version(_oldest(name))) is (name in oldest), versions
    assert home.run("airbyte-proto", "--version").startswith("airbyte-proto ")
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
    (tmp_path / "airbyte-proto.yaml").write_text("{}\n")  # Iceberg
    assert home.json("sync", "shop.yaml", "--refresh")["streams"]["users"]["committed"] == 3
    assert home.json("query", "SELECT count(*) FROM lake.shop.users")["rows"] == [[3]]
