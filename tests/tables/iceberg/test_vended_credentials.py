"""A REST catalog that demands OAuth2 tokens and vends the credentials of its tables in S3: the process has none."""

import pickle
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.staging.files.staging_folder import remove_orphan_files
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query, start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.conformance.table_rows import SCHEMA, Bench, names, part_of, put, staged, table_name
from tests.support.catalogs.vending_catalog import SECRET, VendingCatalog, running_vending_catalog
from tests.support.needs import require_maven
from tests.support.object_stores.s3 import ObjectStore
from tests.tables.iceberg.test_catalogs import ObjectStoreConformance, bench_of, settings_of

pytestmark = pytest.mark.spark

_LIFE_SECONDS = 4.0


@pytest.fixture(scope="session")
def vending(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendingCatalog]:
    require_maven()
    with running_vending_catalog(tmp_path_factory.mktemp("vending"), object_store) as catalog:
        yield catalog


@pytest.fixture(scope="session")
def vending_settings(spark_settings: SparkSettings, vending: VendingCatalog) -> SparkSettings:
    return settings_of(spark_settings, "vended", "", **vending.properties)


@pytest.fixture(scope="session")
def vending_bench(spark: SparkSession, vending_settings: SparkSettings) -> Bench:
    return bench_of(spark, vending_settings)


@pytest.fixture
def _short_lives(vending: VendingCatalog) -> Iterator[None]:
    vending.credential_seconds = _LIFE_SECONDS
    yield
    vending.credential_seconds = 3600.0


@pytest.fixture(autouse=True)
def _no_rights_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.everyday("test_tables_are_cared_for_and_taken_back")
class TestTablesWithVendedCredentials(ObjectStoreConformance):
    @pytest.fixture
    def bench(self, vending_bench: Bench) -> Bench:
        return vending_bench

    @pytest.mark.usefixtures("_short_lives")
    def test_expired(self, bench: Bench, vending: VendingCatalog) -> None:
        """Credentials expire while a load is staged, and again before it is committed."""
        target = bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
        files, given = [], len(vending.vended)
        for number in range(3):
            files.append(staged(target, [{"id": number, "name": f"n{number}"}]))
            time.sleep(_LIFE_SECONDS / 2 + 0.5)
        time.sleep(_LIFE_SECONDS)
        bench.writer.commit("l1", part_of(target, WriteMode.APPEND, *files))
        assert names(bench.read(target)) == [(0, "n0"), (1, "n1"), (2, "n2")]
        assert len(vending.vended) - given >= 3

    @pytest.mark.parametrize("by_prefix", [False, True])
    def test_credentials_are_those_of_the_files_table(
        self, by_prefix: bool, bench: Bench, vending: VendingCatalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(vending, "by_prefix", by_prefix)
        first, second = (bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",))) for _ in range(2))
        for target in (first, second, first):
            put(target, pa.table({"id": [1]}))
        filesystem, path = first.storage.at(f"{second.location}/data/a.parquet")
        with filesystem.open_output_stream(path) as stream:
            stream.write(b"x")
        assert filesystem.get_file_info(path).size == 1

    def test_a_writer_finds_the_table_of_a_file_that_a_dead_run_left(
        self, spark: SparkSession, vending_settings: SparkSettings, target: TableTarget
    ) -> None:
        left = put(target, pa.table({"id": [1]}))
        writer = IcebergTables(spark, vending_settings)
        assert remove_orphan_files(f"{target.location}/data", (), writer.storage) >= 1
        filesystem, path = target.storage.at(left.path)
        assert filesystem.get_file_info(path).type.name == "NotFound"

    def test_another_process_gets_no_vended_credentials(
        self, target: TableTarget, vending: VendingCatalog, bench: Bench
    ) -> None:
        put(target, pa.table({"id": [1]}))
        shown = repr((target, bench.writer.storage.settings)).encode() + pickle.dumps(target)
        assert not [secret for secret in vending.secrets if secret.encode() in shown]
        copied = pickle.loads(pickle.dumps(target))
        filesystem, path = copied.storage.at(f"{target.location}/data/a.parquet")
        with pytest.raises(OSError, match=r"(?i)aws error"):
            filesystem.open_input_file(path)


@pytest.mark.nightly
def test_a_store_refuses_what_the_catalog_vended_for_another_table(
    vending_bench: Bench, vending: VendingCatalog
) -> None:
    target, other = (vending_bench.writer.prepare(TableSpec(table_name(), SCHEMA)) for _ in range(2))
    put(target, pa.table({"id": [1]}))
    ours = {key: value for key, value in vending.store.settings.items() if "key" not in key}
    storage = Storage({**ours, **vending.vend(target.location)})
    put(target._replace(storage=storage), pa.table({"id": [2]}))
    with pytest.raises(OSError, match=r"(?i)denied"):
        put(other._replace(storage=storage), pa.table({"id": [3]}))


@pytest.mark.nightly
def test_secrets_of_the_catalog_are_masked_where_spark_shows_its_settings(
    spark: SparkSession, vending_bench: Bench, vending: VendingCatalog
) -> None:
    assert vending_bench.writer.storage.settings
    shown = str(query(spark, "SET").rows) + str(query(spark, "SET spark.sql.catalog.vended.credential").rows)
    assert "spark.sql.catalog.vended.credential" in shown
    assert not [secret for secret in vending.secrets if secret in shown]


@pytest.mark.nightly
@pytest.mark.parametrize("refusal", ["invalid_client", "unauthorized_client"])  # the second is what Polaris says
def test_a_wrong_secret_is_a_config_error_that_tells_none(
    refusal: str,
    spark_settings: SparkSettings,
    vending: VendingCatalog,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vending, "refusal", refusal)
    properties = {**vending.properties, "credential": f"tester:{SECRET[::-1]}"}
    settings = settings_of(spark_settings, f"refused_by_{refusal}", "", **properties)
    with pytest.raises(ConfigError) as caught:
        IcebergTables(start_session(settings), settings).prepare(TableSpec(table_name(), SCHEMA))
    assert refusal in caught.value.found
    assert f"spark.sql.catalog.{settings.catalog}.credential" in caught.value.remedy
    assert SECRET[::-1] not in str(caught.value)
