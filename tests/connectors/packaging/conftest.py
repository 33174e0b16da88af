"""The wheel, built once."""

import subprocess
from pathlib import Path

import pytest

from dagster_airbyte_proto.launchers.packages.interpreters import find_uv

_ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv = find_uv()
    assert uv is not None
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", folder, _ROOT], check=True)
    [built] = folder.glob("*.whl")
    return built
