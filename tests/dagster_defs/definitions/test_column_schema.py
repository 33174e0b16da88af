"""Columns as Dagster shows them, and the version of the code that makes a table."""

from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.dagster_defs.definitions.column_schema import (
    DescribedColumn,
    code_version,
    column_lineage,
    described_schema,
    source_asset,
    table_schema,
)
from dagster_airbyte_proto.model import (
    EnrichmentSpec,
    PlannedStream,
    ReadMode,
    Shaping,
    Stream,
    StreamId,
    TableName,
    WriteMode,
)
from dagster_airbyte_proto.schema.columns import column_type
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.transforms.landed_columns import landed_columns
from tests.dagster_defs.support.saved import connection, connection_file

_PROPERTIES = {
    "id": {"type": "integer", "description": "Their number."},
    "tags": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
    "price": {"type": "number", "airbyte_type": "big_integer"},
    "at": {"type": "string", "format": "date-time"},
    "local": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
    "address": {"type": "object"},
}
_PACKAGE = {"protocol": "airbyte", "launch": {"kind": "pypi", "package": "airbyte-source-faker==7.2.1"}}


def _planned(properties: dict[str, Any] = _PROPERTIES, **written: Any) -> PlannedStream:
    stream = Stream(StreamId.of("users"), {"properties": properties})
    chosen = {"table": TableName("shop", "users"), "read": ReadMode.INCREMENTAL, "write": WriteMode.APPEND_DEDUP}
    return PlannedStream(stream=stream, **{**chosen, "primary_key": (("id",),), **written})


def test_columns_have_the_types_that_spark_shows_and_ours_come_last() -> None:
    schema = table_schema(table_columns(_planned()))

    assert [(column.name, column.type) for column in schema.columns] == [
        ("id", "bigint"),
        ("tags", "array<array<string>>"),
        ("price", "decimal(38,0)"),
        ("at", "timestamp"),
        ("local", "timestamp_ntz"),
        ("address", "string"),
        ("_airbyte_raw_id", "string"),
        ("_airbyte_extracted_at", "timestamp"),
        (
            "_airbyte_meta",
            "struct<sync_id:bigint,changes:array<struct<field:string,change:string,reason:string>>>",
        ),
        ("_airbyte_generation_id", "bigint"),
    ]


def test_descriptions_are_the_schemas_own() -> None:
    schema = table_schema(table_columns(_planned()))
    result = {column.name: column.description for column in schema.columns}

    assert result["id"] == "Their number."
    assert result["tags"] is None
    assert result["_airbyte_generation_id"] == "Generation of the row: grows by one with each full refresh"


@pytest.mark.parametrize(
    ("write", "key", "unique"),
    [
        (WriteMode.APPEND_DEDUP, (("id",),), {"id": True}),
        (WriteMode.APPEND, (("id",),), {"id": False}),
        (WriteMode.OVERWRITE_DEDUP, (("id",), ("at",)), {"id": False, "at": False}),
        (WriteMode.APPEND, (), {}),
    ],
)
def test_keys_are_marked_and_unique_where_the_table_makes_them_so(
    write: WriteMode, key: tuple[tuple[str, ...], ...], unique: dict[str, bool]
) -> None:
    schema = table_schema(table_columns(_planned(primary_key=key)), write=write)

    marked = {column.name: column.constraints for column in schema.columns if column.constraints.other}
    assert {name: constraints.unique for name, constraints in marked.items()} == unique
    assert all(constraints.other == ["primary key"] for constraints in marked.values())


def test_what_a_table_has_is_reported_with_the_keys_that_only_the_plan_knows() -> None:
    found = [
        DescribedColumn("id", "bigint"),
        DescribedColumn("price", "decimal(38,0)", "net"),
        DescribedColumn("x", "int"),
    ]

    result = described_schema(found, table_schema(table_columns(_planned()), write=WriteMode.APPEND_DEDUP))

    assert [(column.name, column.type, column.description) for column in result.columns] == [
        ("id", "bigint", "Their number."),
        ("price", "decimal(38,0)", "net"),
        ("x", "int", None),
    ]
    assert [column.constraints.unique for column in result.columns] == [True, False, False]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.map_(pa.string(), pa.int32()), "map<string,int>"),
        (pa.large_list(pa.float32()), "array<float>"),
        (pa.time64("us"), "time64[us]"),
    ],
)
def test_types_that_no_stream_has_are_reported_as_well(kind: pa.DataType, text: str) -> None:
    assert column_type(kind) == text


def test_lineage_leads_to_the_fields_as_the_source_calls_them() -> None:
    columns = table_columns(_planned({"id": {"type": "integer"}, "ID": {"type": "string"}}))

    lineage = column_lineage(columns, dg.AssetKey(["crm", "users"])).deps_by_column

    assert {name: [dep.column_name for dep in deps] for name, deps in lineage.items()} == {
        columns.all[0].name: ["id"],
        columns.all[1].name: ["ID"],
    }
    assert columns.all[1].name != "ID"
    assert {dep.asset_key for deps in lineage.values() for dep in deps} == {dg.AssetKey(["crm", "users"])}


def test_lineage_leads_through_new_names_and_code_versions_change_with_them() -> None:
    plain, shaping = (
        _planned({"id": {"type": "integer"}, "mail": {"type": "string"}}),
        Shaping(renames=(("mail", "m"),)),
    )
    named = msgspec.structs.replace(plain, shaping=shaping)

    lineage = column_lineage(table_columns(named), dg.AssetKey(["crm", "users"])).deps_by_column

    assert [(name, dep.column_name) for name, [dep] in lineage.items()] == [("id", "id"), ("m", "mail")]
    assert code_version(connection(), named) != code_version(connection(), plain)


def test_a_column_that_a_transform_makes_comes_from_no_field() -> None:
    planned = _planned({"id": {"type": "integer"}, "city": {"type": "string"}})
    filled = EnrichmentSpec(0, (("city", "string"), ("country", "string")))
    columns = landed_columns(msgspec.structs.replace(planned, transforms=(filled,)))

    lineage = column_lineage(columns, dg.AssetKey(["crm", "users"])).deps_by_column

    assert [column.name for column in columns.all] == ["id", "city", "country"]
    assert [(name, dep.column_name) for name, [dep] in lineage.items()] == [("id", "id"), ("city", "city")]


_CRM = dg.AssetKey(["crm", "users"])


@pytest.mark.parametrize("said", [_CRM, "crm/users", dg.MetadataValue.asset(_CRM), dg.MetadataValue.text("crm/users")])
def test_the_source_asset_may_be_said_in_any_way(said: Any) -> None:
    assert source_asset({"airbyte_proto/source_asset": said}) == _CRM
    assert source_asset({}) is None


@pytest.mark.parametrize(
    "changed",
    [
        _planned({**_PROPERTIES, "new": {"type": "string"}}),
        _planned(write=WriteMode.APPEND),
        _planned(read=ReadMode.FULL_REFRESH),
        _planned(primary_key=(("at",),)),
        _planned(cursor=("at",)),
        _planned(table=TableName("shop", "people")),
        _planned(sdc_columns=True),
    ],
)
def test_the_code_version_changes_with_what_changes_the_table(changed: PlannedStream) -> None:
    assert code_version(connection(), changed) != code_version(connection(), _planned())


def test_the_code_version_changes_with_the_connectors_version() -> None:
    newer = {**_PACKAGE, "launch": {"kind": "pypi", "package": "airbyte-source-faker==7.2.2"}}
    versions = {code_version(connection(connector=each), _planned()) for each in (_PACKAGE, newer)}

    assert len(versions) == 2
    assert all(len(version) == 16 for version in versions)


def test_the_code_version_stays_with_what_changes_nothing() -> None:
    backwards = _planned(dict(reversed(list(_PROPERTIES.items()))))
    elsewhere = {**_PACKAGE, "launch": {**_PACKAGE["launch"], "python": "3.12"}}  # type: ignore[dict-item]  # a mapping
    numbered = _planned(generation_id=5, minimum_generation_id=5)

    expected = code_version(connection(connector=_PACKAGE, config={"count": 1}), _planned())
    assert code_version(connection(connector=_PACKAGE, config={"count": 2}), backwards) == expected
    assert code_version(connection(connector=elsewhere), numbered) == expected


def test_the_code_version_stays_with_a_program_that_lies_in_another_folder(tmp_path: Path) -> None:
    def version(release: str, *arguments: str) -> str:
        folder = tmp_path / release
        folder.mkdir(exist_ok=True)
        launch = {"kind": "local", "command": ["../connectors/source-csv", *arguments]}
        return code_version(connection_file(folder, connector={"protocol": "airbyte", "launch": launch}), _planned())

    assert version("release-1") == version("release-2") != version("release-2", "--fast")
