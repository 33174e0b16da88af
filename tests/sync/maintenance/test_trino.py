"""Tables of syncs in catalogs that are servers and in S3, as Trino sees them: another server, with nothing of ours."""

import base64
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.spark.session import query, start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.support.catalogs.rest_catalog import running_catalog
from tests.support.databases.trino import TrinoRefusal, TrinoServer, running_trino
from tests.support.object_stores.s3 import ObjectStore
from tests.support.postgres import PostgresServer
from tests.sync.maintenance import scan_table
from tests.sync.maintenance.test_reader_table import KINDS, TRINO_VERSIONS, DeletedRows, verdict, written
from tests.sync.maintenance.test_rollback import Lake
from tests.tables.iceberg.test_catalogs import settings_of

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(1800)]

_CATALOG = "for_trino"
_FORMATS = {"vectors": 3, "position_files": 2, "equality_deletes": 2}

# What a table has before a sync, and what its stream then makes of it: wider columns, a renamed one, and more.
_EARLIER = "id bigint, size int, weight float, price decimal(20,9), mail string"
_PROPERTIES = {
    "id": {"type": "integer"},
    "at": {"type": "integer"},
    "size": {"type": "integer"},
    "weight": {"type": "number"},
    "price": {"type": "number", "multipleOf": 0.01},
    "email": {"type": "string"},
    "since": {"type": "string", "format": "date"},
    "seen": {"type": "string", "format": "date-time"},
    "shown": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
    "photo": {"type": "string", "contentEncoding": "base64"},
    "is_new": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "home": {"type": "object", "properties": {"city": {"type": "string"}, "floor": {"type": "integer"}}},
    "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
}
_VALUES = {
    "size": 1 << 40,
    "weight": 0.1,
    "price": 12.34,
    "email": "é@Ω.example",
    "since": "2026-11-29",
    "seen": "2026-11-29T12:30:00.25+05:30",
    "shown": "1969-12-31T23:59:59.999999",
    "photo": "AAH/",
    "is_new": True,
    "tags": ["a", None, "ü"],
    "home": {"city": "Zürich", "floor": None},
    "lines": [{"sku": "x"}, {"sku": None}],
}


class Beside(NamedTuple):
    """Syncs into a catalog, and Trino on the same one."""

    lake: Lake
    session: SparkSession
    trino: TrinoServer

    @property
    def cells(self) -> Mapping[str, str]:
        """What the page says of this version."""
        version = self.trino.version
        assert version in map(str, TRINO_VERSIONS), f"docs/readers.md has no row of Trino {version}: add one"
        return dict(zip(KINDS, written()[f"Trino {version}"], strict=True))

    def by_spark(self, table: str) -> list[dict[str, Any]]:
        rows = self.session.table(f"{_CATALOG}.{self.lake.name}.{table}").toArrow().to_pylist()
        return sorted(({name.lower(): value for name, value in row.items()} for row in rows), key=lambda row: row["id"])

    def by_trino(self, table: str) -> list[dict[str, Any]]:
        columns, rows = self.trino.run(f"select * from lake.{self.lake.name}.{table} order by id")
        return [
            {column.name: _value(value, column.type) for column, value in zip(columns, row, strict=True)}
            for row in rows
        ]


@pytest.fixture(scope="module")
def trino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrinoServer]:
    with running_trino(tmp_path_factory.mktemp("trino")) as running:
        yield running


def _open_catalog(trino: TrinoServer, store: ObjectStore, name: str, **properties: str) -> None:
    """Makes a catalog of Trino whose tables are in the store."""
    of_store = {
        "fs.native-s3.enabled": "true",
        "s3.endpoint": store.endpoint,
        "s3.region": "us-east-1",
        "s3.path-style-access": "true",
        "s3.aws-access-key": store.access_key,
        "s3.aws-secret-key": store.secret_key,
    }
    trino.create_catalog(name, {**{f"iceberg.{key}": value for key, value in properties.items()}, **of_store})


@pytest.fixture(scope="module")
def beside(
    trino: TrinoServer,
    tmp_path_factory: pytest.TempPathFactory,
    spark: SparkSession,
    spark_settings: SparkSettings,
    object_store: ObjectStore,
) -> Iterator[Beside]:
    warehouse = f"s3://{object_store.new_bucket()}/ware house"
    properties = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **object_store.settings}
    with running_catalog(tmp_path_factory.mktemp("rest"), warehouse, properties) as uri:
        _open_catalog(trino, object_store, "lake", **{"catalog.type": "rest", "rest-catalog.uri": uri})
        settings = settings_of(spark_settings, _CATALOG, "", **{"type": "rest", "uri": uri, **properties})
        lake = Lake(tmp_path_factory.mktemp("lake"), start_session(settings), settings)
        yield Beside(lake, spark, trino)


def test_the_page_says_what_trino_does_with_deletes(beside: Beside) -> None:
    DeletedRows(beside.lake, beside.session)

    def answer(kind: str, selected: str) -> list[int] | str:
        try:
            return [row[-1] for row in beside.trino.run(f"select {selected} from lake.{beside.lake.name}.{kind}").rows]
        except TrinoRefusal as refusal:
            return str(refusal)

    found = {
        kind: verdict("Trino", kind, {selected: answer(kind, selected) for selected in scan_table.QUERIES})
        for kind in KINDS
    }
    assert found == beside.cells


@pytest.mark.parametrize("kind", KINDS)
def test_trino_reads_the_values_that_spark_does_of_renamed_and_wider_columns(beside: Beside, kind: str) -> None:
    stream, (_, upserts) = f"changed_{kind}", KINDS[kind]
    table = f"{_CATALOG}.{beside.lake.name}.{stream}"
    for statement in (
        f"create namespace if not exists {_CATALOG}.{beside.lake.name}",
        f"create table {table} ({_EARLIER}) using iceberg tblproperties ('format-version' = '{_FORMATS[kind]}')",
        f"insert into {table} values (0, 7, 0.5, 1.25, 'old'), (100, -7, -0.5, null, null)",
    ):
        beside.session.sql(statement)
    write = {**upserts, "formerly": {"email": "mail"}, "types": {"objects": "struct"}}
    rows: list[dict[str, Any]] = []
    # The first sync replaces a row that the table had, the second one of the first.
    for numbers, values in (((0, 1, 2), _VALUES), ((2, 3), dict.fromkeys(_VALUES))):
        rows += [{"id": number, "at": len(rows), **values} for number in numbers]
        source = {"rows": rows, "properties": _PROPERTIES, "primary_key": [["id"]], "cursor": ["at"]}
        beside.lake.sync({stream: source}, {stream: write})

    expected = beside.by_spark(stream)
    assert [row["id"] for row in expected] == [0, 1, 2, 3, 100]
    assert [row["email"] for row in expected] == [*[_VALUES["email"]] * 2, None, None, None]
    assert expected[-1]["size"] == -7
    deletes = query(beside.session, f"select count(*) from {table}.delete_files").rows
    assert deletes != [[0]]
    if beside.cells[kind] == "refuses the table":
        with pytest.raises(TrinoRefusal):
            beside.by_trino(stream)
    else:
        assert beside.by_trino(stream) == expected


@pytest.mark.postgres
def test_trino_opens_a_catalog_in_postgresql(
    trino: TrinoServer,
    tmp_path: Path,
    spark: SparkSession,
    spark_settings: SparkSettings,
    object_store: ObjectStore,
    postgres_server: PostgresServer,
) -> None:
    """A catalog has a name of its own in its database, by which Trino finds it too."""
    name, warehouse = "shared_lake", f"s3://{object_store.new_bucket()}/lake"
    uri = postgres_server.jdbc_uri()
    settings = settings_of(spark_settings, name, warehouse, **{"uri": uri, **object_store.settings})
    lake = Lake(tmp_path, start_session(settings), settings)
    for records in (6, 9):
        lake.sync({"users": {"records": records, "keys": 3}}, {"users": {**KINDS["equality_deletes"][0]}})
    given = {
        "catalog.type": "jdbc",
        "jdbc-catalog.catalog-name": name,
        "jdbc-catalog.driver-class": "org.postgresql.Driver",
        "jdbc-catalog.connection-url": uri,
        "jdbc-catalog.default-warehouse-dir": warehouse,
    }
    _open_catalog(trino, object_store, "in_postgres", **given)
    found = trino.run(f"select id from in_postgres.{lake.name}.users order by id").rows
    assert found == query(spark, f"select id from {name}.{lake.name}.users order by id").rows == [[6], [7], [8]]


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.removesuffix(" UTC"))


_FROM_JSON: Mapping[str, Callable[[Any], Any]] = {
    "date": date.fromisoformat,
    "decimal": Decimal,
    "timestamp": _moment,
    "timestamp with time zone": lambda text: _moment(text).replace(tzinfo=UTC),
    "varbinary": base64.b64decode,
}


def _value(value: Any, signature: Mapping[str, Any]) -> Any:
    """A value of an answer as Arrow has it."""
    if value is None:
        return None
    kind, of = signature["rawType"], [each["value"] for each in signature["arguments"]]
    if kind == "array":
        return [_value(each, of[0]) for each in value]
    if kind == "row":
        return {
            field["fieldName"]["name"]: _value(each, field["typeSignature"])
            for field, each in zip(of, value, strict=True)
        }
    return _FROM_JSON.get(kind, lambda same: same)(value)
