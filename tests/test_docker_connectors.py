"""A real connector as an image, by the command line, beside the same as a package."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagster_airbyte_proto.launchers.environments import PinnedPackage, environment_for
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.folder import FolderTables
from tests.images import python_image

pytestmark = [pytest.mark.docker, pytest.mark.connectors, pytest.mark.timeout(900)]

_PACKAGE = "airbyte-source-faker==7.2.1"
_CONNECTIONS = ("image", "package")
_FIXED = {"products": ["id", "make", "model", "year", "price", "created_at"], "users": ["id"], "purchases": ["id"]}


def _synced(folder: Path, name: str, launch: dict[str, Any]) -> dict[str, Any]:
    document = {"connector": {"protocol": "airbyte", "launch": launch}, "config": {"count": 300, "seed": 1}}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "dagster_airbyte_proto", "sync", f"{name}.yaml", "--json"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout)["streams"])


def test_source_faker_lands_the_same_rows_from_an_image(tmp_path: Path, connector_environments: Path) -> None:
    (tmp_path / "airbyte-proto.yaml").write_text("catalog: {format: folder}\n")
    (tmp_path / ".airbyte-proto").mkdir()
    (tmp_path / ".airbyte-proto" / "venvs").symlink_to(connector_environments)
    environment = environment_for(PinnedPackage.of(_PACKAGE), cache=connector_environments, python=None)
    [site] = environment.glob("lib/python*/site-packages")
    program = ["-c", "from source_faker.run import run; run()"]
    with python_image({"/site": site.resolve()}, program, ENV="PYTHONPATH=/site") as made:
        from_image = _synced(tmp_path, "image", {"kind": "docker", "image": made.name, "network": "none"})
        from_package = _synced(tmp_path, "package", {"kind": "pypi", "package": _PACKAGE})
        left = [each for each in made.daemon.containers(all=True) if each["Image"] == made.name]
    assert left == []
    assert {name: told["committed"] for name, told in from_image.items()} == {
        name: told["committed"] for name, told in from_package.items()
    }
    tables = FolderTables(tmp_path / ".airbyte-proto" / "warehouse")
    for stream in from_image:
        image, package = (tables.rows(TableName(name, stream)).sort_by("id") for name in _CONNECTIONS)
        # The others draw their values by chance, also with a seed: which process draws first is not settled.
        same = _FIXED[stream]
        assert image.num_rows == from_image[stream]["emitted"] > 0
        assert image.select(same).equals(package.select(same)), stream
