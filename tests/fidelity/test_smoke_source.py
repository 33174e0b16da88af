"""Every scenario of a real smoke-test source, in each write mode, cell by cell through Spark."""

from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.fidelity.run import check, kept, text

pytestmark = [pytest.mark.connectors, pytest.mark.spark, pytest.mark.timeout(900)]

_SCENARIOS = 20
_LAUNCH = {"kind": "pypi", "package": "airbyte-source-smoke-test==0.1.2", "executable": "source-smoke-test"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, connector_environments: Path) -> Path:
    made = tmp_path_factory.mktemp("fidelity")
    (made / "venvs").symlink_to(connector_environments)
    document = {
        "connector": {"protocol": "airbyte", "launch": _LAUNCH},
        "config": {"all_fast_streams": True, "all_slow_streams": True},
    }
    (made / "smoke.yaml").write_text(yaml.safe_dump(document))
    return made


@pytest.fixture(scope="module")
def recording(home: Path) -> Path:
    return kept(home / "smoke.yaml", home / "recording", home)


@pytest.mark.everyday("append")
@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.OVERWRITE, WriteMode.APPEND_DEDUP,
                                  WriteMode.OVERWRITE_DEDUP, WriteMode.SOFT_DELETE])  # fmt: skip
def test_each_value_is_equal_or_accounted_for(
    mode: WriteMode, recording: Path, home: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    connection = Connection.from_file(home / "smoke.yaml")
    engine = Engine(Settings.load(home), tables=IcebergTables(spark, spark_settings))
    reports = check(connection, recording, mode, engine, lambda name: spark.table(name).toArrow())
    assert [report for report in reports.values() if report.wrong] == [], text({mode: reports.values()})
    assert len(reports) >= _SCENARIOS
    assert sum(report.cells for report in reports.values()) > 5_000
