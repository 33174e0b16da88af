"""Catalogs of Spark's config other than folders: in SQLite, in PostgreSQL, of a REST server; and tables in S3."""

import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from uuid import uuid4

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import MergeMode, TableName, WriteMode
from dagster_airbyte_proto.tables.care import ProtectedFiles
from dagster_airbyte_proto.tables.formats import rewinder_of
from dagster_airbyte_proto.tables.iceberg.care.iceberg_care import IcebergCare
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import query, spark_config, start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.sql_names import qualified
from tests.conformance.table_branches import BranchConformance
from tests.conformance.table_rows import SCHEMA, Bench, NewTable, Row, names, part, position_deletes, put, table_name
from tests.conformance.table_writer import TableWriterConformance
from tests.support.object_stores.s3 import ObjectStore
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.spark

_CREATORS = 8
_NEW_NAMESPACES = 20


def settings_of(settings: SparkSettings, catalog: str, warehouse: str, **properties: str) -> SparkSettings:
    written = {f"spark.sql.catalog.{catalog}.{key}": value for key, value in {"type": "jdbc", **properties}.items()}
    return settings._replace(catalog=catalog, warehouse=warehouse, config=written)


def bench_of(spark: SparkSession, settings: SparkSettings) -> Bench:
    """The other writer has a session of its own, and so a catalog of its own, of the same name: by that name a database
    tells the tables of one catalog from another's."""
    alone = spark.newSession()
    for key, value in spark_config(settings).items():
        if key.startswith("spark.sql.catalog."):
            alone.conf.set(key, value)
    writer = IcebergTables(start_session(settings), settings)

    def read(target: TableTarget) -> list[Row]:
        return [row.asDict(recursive=True) for row in spark.table(target.qualified).collect()]

    return Bench(writer, IcebergTables(alone, settings), read)


class CatalogConformance(NewTable):
    """The parts of the conformance that depend on the catalog: create, load, change and fence a table."""

    test_new = TableWriterConformance.test_a_new_table_has_the_columns_and_no_rows
    test_evolved = TableWriterConformance.test_columns_are_added_and_old_rows_have_nulls_there
    test_names = TableWriterConformance.test_odd_names_are_names
    test_appended = TableWriterConformance.test_appends_add_up
    test_replaced = TableWriterConformance.test_a_replace_takes_out_upserted_rows_and_their_deletes
    test_paused = TableWriterConformance.test_a_paused_writer_does_not_land_what_another_landed
    test_missing = TableWriterConformance.test_a_table_that_was_never_prepared_is_an_error

    def test_tables_are_cared_for_and_taken_back(self, bench: Bench) -> None:
        writer = bench.writer
        assert isinstance(writer, IcebergTables)
        target = writer.prepare(TableSpec(table_name(), SCHEMA, ("id",)))
        care, rewinder = IcebergCare(writer), rewinder_of(writer)
        assert target.name in care.names()
        loads = [part(target, WriteMode.APPEND_DEDUP, [{"id": n % 2, "name": f"n{n}"}]) for n in range(6)]
        landed = [writer.commit(f"l{number}", load) for number, load in enumerate(loads)]
        assert names(bench.read(target)) == [(0, "n4"), (1, "n5")]

        assert rewinder.rewind(target.name, landed[3].snapshot_id, seen=rewinder.past(target.name), version=1)
        assert names(bench.read(target)) == [(0, "n2"), (1, "n3")]
        assert care.compact(target.name).rewritten_files == 4
        assert care.facts(target.name).delete_files == 0

        assert care.expire(target.name, [each.snapshot_id for each in care.history(target.name).changes]) > 5
        dead, staged = (put(target, pa.table({"id": [7]})) for _ in range(2))
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        removed = care.remove_orphans(target.name, before=tomorrow, protected=ProtectedFiles(frozenset([staged.path])))
        assert dead.path in removed
        assert staged.path not in removed
        assert names(bench.read(target)) == [(0, "n2"), (1, "n3")]

    def test_several_may_create_a_namespace_at_the_same_time(self, bench: Bench) -> None:
        """In a JDBC catalog, the second one breaks a constraint of the database."""
        assert isinstance(bench.writer, IcebergTables)
        create, barrier = bench.writer._iceberg().create_namespace, Barrier(_CREATORS)

        def create_all(_: int) -> None:
            for namespace in namespaces:
                barrier.wait(120)
                create(namespace)

        namespaces = [f"new_{uuid4().hex}" for _ in range(_NEW_NAMESPACES)]
        with ThreadPoolExecutor(_CREATORS) as pool:
            list(pool.map(create_all, range(_CREATORS)))

    def test_a_load_whose_snapshot_expired_is_known_by_its_files(self, bench: Bench, target: TableTarget) -> None:
        writer = bench.writer
        assert isinstance(writer, IcebergTables)
        load = part(target, WriteMode.APPEND, [{"id": 1, "name": "a"}])
        first = writer.commit("l1", load)
        writer.commit("l2", part(target, WriteMode.APPEND, [{"id": 2, "name": "b"}]))
        assert IcebergCare(writer).expire(target.name, [first.snapshot_id]) == 1
        assert bench.other.commit("l1", load).was_there
        assert names(bench.read(target)) == [(1, "a"), (2, "b")]


class ObjectStoreConformance(CatalogConformance):
    """With the parts that depend on where files lie: deletes, a load that is sent twice, a file that is gone."""

    test_upserted = TableWriterConformance.test_an_upsert_replaces_rows_of_the_same_key
    test_positions = TableWriterConformance.test_position_deletes_take_out_duplicates_of_the_same_load
    test_once = TableWriterConformance.test_a_load_lands_once
    test_gone = TableWriterConformance.test_a_file_that_is_gone_is_an_error_and_nothing_lands

    @pytest.mark.parametrize("merge", [MergeMode.COPY_ON_WRITE, MergeMode.POSITIONS])
    def test_merged(self, merge: MergeMode, bench: Bench) -> None:
        target = bench.writer.prepare(TableSpec(table_name(), SCHEMA, ("id",), merge=merge))
        for number, ids in enumerate(((1, 2, 3), (2, 2))):
            load = part(target, WriteMode.APPEND_DEDUP, [{"id": each, "name": f"n{number}"} for each in ids])
            files = (*load.files, position_deletes(target, load.files[0], 0)) if number else load.files
            copied = msgspec.structs.replace(load, files=files, merge=merge)
            committed = bench.writer.commit(f"l{number}", copied)
        assert names(bench.read(target)) == [(1, "n0"), (2, "n1"), (3, "n0")]
        assert committed.totals is not None and committed.totals.delete_files == 0


@pytest.fixture(scope="session")
def sqlite_bench(spark: SparkSession, spark_settings: SparkSettings, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("sqlite")
    uri = f"jdbc:sqlite:{folder / 'catalog.db'}"
    return bench_of(spark, settings_of(spark_settings, "in_sqlite", str(folder / "ware house"), uri=uri))


@pytest.fixture(scope="session")
def postgres_bench(
    spark: SparkSession,
    spark_settings: SparkSettings,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Bench:
    folder = tmp_path_factory.mktemp("postgres")
    return bench_of(spark, settings_of(spark_settings, "in_postgres", str(folder), uri=postgres_server.jdbc_uri()))


@pytest.fixture(scope="session")
def rest_bench(spark: SparkSession, spark_settings: SparkSettings, rest_catalog_uri: str) -> Bench:
    return bench_of(spark, settings_of(spark_settings, "in_rest", "", type="rest", uri=rest_catalog_uri))


@pytest.fixture(scope="session")
def s3_bench(
    spark: SparkSession,
    spark_settings: SparkSettings,
    object_store: ObjectStore,
    tmp_path_factory: pytest.TempPathFactory,
) -> Bench:
    uri = f"jdbc:sqlite:{tmp_path_factory.mktemp('s3') / 'catalog.db'}"
    properties = {"uri": uri, **object_store.settings}
    warehouse = f"s3://{object_store.new_bucket()}/ware house"
    return bench_of(spark, settings_of(spark_settings, "in_s3", warehouse, **properties))


class TestCatalogInSqlite(CatalogConformance):
    @pytest.fixture
    def bench(self, sqlite_bench: Bench) -> Bench:
        return sqlite_bench


@pytest.mark.everyday(
    "test_new",
    "test_replaced",
    "test_missing",
    "test_paused[False-append_dedup]",
    "test_paused[True-overwrite]",
    "test_several_may_create_a_namespace_at_the_same_time",
    "test_a_load_whose_snapshot_expired_is_known_by_its_files",
)
@pytest.mark.postgres
class TestCatalogInPostgres(CatalogConformance):
    @pytest.fixture
    def bench(self, postgres_bench: Bench) -> Bench:
        return postgres_bench


@pytest.mark.everyday(
    "test_new",
    "test_evolved",
    "test_columns",
    "test_replaced",
    "test_missing",
    "test_paused[False-append_dedup]",
    "test_paused[True-overwrite]",
    "test_several_may_create_a_namespace_at_the_same_time",
    "test_a_load_whose_snapshot_expired_is_known_by_its_files",
)
class TestCatalogOfARestServer(CatalogConformance):
    """A REST catalog receives the single changes of a table, not the table's new metadata."""

    old = BranchConformance.old
    test_columns = BranchConformance.test_columns_change_with_the_rows

    @pytest.fixture
    def bench(self, rest_bench: Bench) -> Bench:
        return rest_bench


@pytest.mark.everyday(
    "test_new",
    "test_replaced",
    "test_missing",
    "test_paused[False-append_dedup]",
    "test_tables_are_cared_for_and_taken_back",
    "test_a_load_whose_snapshot_expired_is_known_by_its_files",
    "test_upserted",
    "test_positions[False]",
    "test_once[append_dedup]",
    "test_gone",
    "test_merged[positions]",
)
class TestTablesInS3(ObjectStoreConformance):
    @pytest.fixture
    def bench(self, s3_bench: Bench) -> Bench:
        return s3_bench


def test_files_of_a_renamed_table_are_no_orphans_of_the_next_one_of_its_name(
    spark: SparkSession, sqlite_bench: Bench
) -> None:
    writer, spec, ours = sqlite_bench.writer, TableSpec(table_name(), SCHEMA), ProtectedFiles()
    assert isinstance(writer, IcebergTables)
    care, tomorrow = IcebergCare(writer), datetime.now(UTC) + timedelta(days=1)
    before = writer.prepare(spec)
    writer.commit("l1", part(before, WriteMode.APPEND, [{"id": 1, "name": "a"}]))
    name = TableName(spec.name.namespace, f"{spec.name.name}_before")
    renamed = qualified(writer.catalog, name)
    query(spark, f"alter table {before.qualified} rename to {name.namespace}.{name.name}")
    target = writer.prepare(spec)
    assert target.location == before.location
    for each, other in ((target.name, name), (name, target.name)):
        with pytest.raises(TableError, match=f"table {other} lies in the same folder"):
            care.remove_orphans(each, before=tomorrow, protected=ours)
    assert query(spark, f"select id from {renamed}").rows == [[1]]
    query(spark, f"drop table {renamed}")
    assert len(care.remove_orphans(target.name, before=tomorrow, protected=ours)) == 1


def refused(spark_settings: SparkSettings, warehouse: str, **properties: str) -> ConfigError:
    """A catalog that cannot be opened."""
    settings = settings_of(spark_settings, f"c_{uuid4().hex}", warehouse, **properties)
    with pytest.raises(ConfigError) as caught:
        IcebergTables(start_session(settings), settings).prepare(TableSpec(table_name(), SCHEMA))
    return caught.value


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("driver", ["postgresql", "nosuchdriver"])
def test_a_database_that_does_not_answer_is_an_error_that_tells_no_password(
    spark_settings: SparkSettings, driver: str
) -> None:
    with socket.socket() as closed:  # bound, and not listening
        closed.bind(("127.0.0.1", 0))
        uri = f"jdbc:{driver}://127.0.0.1:{closed.getsockname()[1]}/lake?user=u&password=hunter2"
        error = refused(spark_settings, "/nowhere", uri=uri)
    assert "reachable" in error.remedy
    assert "hunter2" not in str(error)
    assert "\n" not in error.found


@pytest.mark.usefixtures("spark")
def test_folders_in_an_object_store_are_refused_for_nothing_keeps_writers_apart_there(
    spark_settings: SparkSettings,
) -> None:
    error = refused(spark_settings, "s3://bucket/lake", type="hadoop")
    assert "rename" in error.found
    assert "jdbc" in error.remedy


@pytest.mark.parametrize(
    ("wrong", "told"),
    [({"s3.secret-access-key": "hunter2hunter2"}, "403"), ({"s3.endpoint": "http://127.0.0.1:1"}, "refused")],
)
def test_a_store_that_cannot_be_used_is_a_table_error_that_tells_no_secret(
    spark: SparkSession,
    spark_settings: SparkSettings,
    object_store: ObjectStore,
    tmp_path: Path,
    wrong: dict[str, str],
    told: str,
) -> None:
    properties = {"uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}", **object_store.settings, **wrong}
    settings = settings_of(spark_settings, f"c_{uuid4().hex}", f"s3://{object_store.new_bucket()}/w", **properties)
    with pytest.raises(TableError) as caught:
        IcebergTables(start_session(settings), settings).prepare(TableSpec(table_name(), SCHEMA))
    assert told in caught.value.found.lower()
    assert settings.warehouse in caught.value.remedy
    assert "hunter2" not in str(caught.value)
