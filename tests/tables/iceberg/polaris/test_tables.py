"""Tables in Polaris, which vends the credentials of each: the process has none of its own."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_rows import SCHEMA, Bench, put, table_name
from tests.support.catalogs.polaris import PolarisCatalog, PolarisServer
from tests.tables.iceberg.test_catalogs import ObjectStoreConformance, bench_of

pytestmark = [pytest.mark.nightly, pytest.mark.spark]


@pytest.fixture(autouse=True)
def _no_rights_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def _settings_of(settings: SparkSettings, name: str, properties: dict[str, str]) -> SparkSettings:
    config = {f"spark.sql.catalog.{name}.{key}": value for key, value in properties.items()}
    return settings._replace(catalog=name, warehouse="", config=config)


@pytest.fixture(scope="session")
def polaris_bench(spark: SparkSession, spark_settings: SparkSettings, polaris_server: PolarisServer) -> Bench:
    catalog = polaris_server.new_catalog()
    return bench_of(spark, _settings_of(spark_settings, "in_polaris", catalog.properties(catalog.new_client())))


class TestTablesInPolaris(ObjectStoreConformance):
    @pytest.fixture
    def bench(self, polaris_bench: Bench) -> Bench:
        return polaris_bench


@pytest.mark.usefixtures("spark")
def test_a_client_that_is_refused_is_a_config_error_that_tells_no_secret(
    spark_settings: SparkSettings, polaris: PolarisCatalog
) -> None:
    client = polaris.new_client()
    wrong = client._replace(secret=client.secret[::-1])
    settings = _settings_of(spark_settings, "refused_by_polaris", polaris.properties(wrong))
    with pytest.raises(ConfigError) as caught:
        IcebergTables(start_session(settings), settings).prepare(TableSpec(table_name(), SCHEMA))
    assert "spark.sql.catalog.refused_by_polaris.credential" in caught.value.remedy
    assert wrong.secret not in str(caught.value)


@pytest.mark.usefixtures("spark")
def test_a_client_that_may_only_read_makes_no_table_and_puts_no_file(
    spark_settings: SparkSettings, polaris: PolarisCatalog
) -> None:
    ours = _settings_of(spark_settings, "written_in_polaris", polaris.properties(polaris.new_client()))
    theirs = _settings_of(spark_settings, "read_in_polaris", polaris.properties(polaris.new_reader()))
    target = IcebergTables(start_session(ours), ours).prepare(TableSpec(table_name(), SCHEMA))
    tables = IcebergTables(start_session(theirs), theirs)
    with pytest.raises(TableError) as caught:
        tables.prepare(TableSpec(table_name(), SCHEMA))
    assert "the rights that they give" in caught.value.remedy
    assert tables.prepare(TableSpec(target.name, SCHEMA)).table_id == target.table_id
    with pytest.raises(OSError, match=r"(?i)denied"):
        put(target._replace(storage=tables.storage), pa.table({"id": [1]}))
