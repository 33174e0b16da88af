"""A source on a CDK of the protocol's first version, which keeps one state without a type for all of its streams."""

import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest
import yaml
from uv import find_uv_bin

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(300)]

# The last versions without states by stream. Their requirement of PyYAML 5 builds on no Python of today.
_PACKAGES = ("airbyte-cdk==0.1.50", "setuptools<80")
_OVERRIDE = "pyyaml>=6"

_SOURCE = """
import sys
from airbyte_cdk.entrypoint import launch
from airbyte_cdk.models import ConnectorSpecification
from airbyte_cdk.sources import AbstractSource
from airbyte_cdk.sources.streams import Stream


class Numbers(Stream):
    primary_key = cursor_field = "id"
    state_checkpoint_interval = 2

    def __init__(self, count):
        self.count = count

    def get_json_schema(self):
        return {"type": "object", "properties": {"id": {"type": "integer"}}}

    def read_records(self, sync_mode, cursor_field=None, stream_slice=None, stream_state=None):
        yield from ({"id": number} for number in range((stream_state or {}).get("id", 0) + 1, self.count + 1))

    def get_updated_state(self, current, latest):
        return {"id": max(latest["id"], (current or {}).get("id", 0))}


class Source(AbstractSource):
    def check_connection(self, logger, config):
        return True, None

    def streams(self, config):
        return [Numbers(config["count"])]

    def spec(self, *arguments):
        schema = {"type": "object", "properties": {"count": {"type": "integer"}}}
        return ConnectorSpecification(connectionSpecification=schema)


launch(Source(), sys.argv[1:])
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the old CDK."""
    folder = tmp_path_factory.mktemp("first version")
    (folder / "overrides.txt").write_text(_OVERRIDE)
    python = folder / "venv" / "bin" / "python"
    for words in (
        ["venv", "--python", sys.executable, str(folder / "venv")],
        ["pip", "install", "--python", str(python), "--overrides", str(folder / "overrides.txt"), *_PACKAGES],
    ):
        subprocess.run([find_uv_bin(), *words], check=True, capture_output=True)
    return python


def test_its_state_is_handed_back_as_it_reads_it(tmp_path: Path, python: Path) -> None:
    (tmp_path / "source.py").write_text(_SOURCE)
    (tmp_path / "settings.yaml").write_text("catalog: {format: parquet}\n")
    launch = {"kind": "local", "command": [str(python), str(tmp_path / "source.py")]}

    def sync(count: int) -> int:
        connector = {"protocol": "airbyte", "launch": launch}
        streams = {"numbers": {"read": "incremental", "write": "append"}}
        document = {"connector": connector, "config": {"count": count}, "streams": streams}
        (tmp_path / "shop.yaml").write_text(yaml.safe_dump(document))
        with Engine(Settings.load(tmp_path / "home", tmp_path / "settings.yaml")) as engine:
            report = sync_connection(engine, Connection.from_file(tmp_path / "shop.yaml"))
        assert report.status is SyncStatus.COMPLETE, report
        assert report.streams["numbers"].state == {"numbers": {"id": count}}
        return report.streams["numbers"].committed

    assert [sync(5), sync(5), sync(8)] == [5, 0, 3]
    newest = max((tmp_path / "home" / "warehouse" / "shop" / "numbers").glob("v*"))
    landed = ds.dataset(newest, format="parquet").to_table(columns=["id"])
    assert sorted(landed.column("id").drop_null().to_pylist()) == [1, 2, 3, 4, 5, 6, 7, 8]
