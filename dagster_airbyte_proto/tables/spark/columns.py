"""Translates a table's columns into Spark's JSON for a schema, and looks into Spark's types."""

from collections.abc import Callable
from typing import Any, cast

import pyspark
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from dagster_airbyte_proto.schema.evolution import IcebergSchema

SparkType = str | dict[str, Any]

_TO_SPARK = {"int": "integer", "timestamptz": "timestamp", "timestamp": "timestamp_ntz", "uuid": "string"}


def spark_schema(columns: IcebergSchema) -> dict[str, Any]:
    """Returns the schema for `StructType.fromJson`, with comments and without ids."""
    return cast(dict[str, Any], spark_type(columns, lambda _: {}))


def spark_type(kind: str | IcebergSchema, metadata_of: Callable[[IcebergSchema], dict[str, Any]]) -> SparkType:
    """Returns a type with all nested types. `metadata_of` gives each field metadata beside its comment."""
    if isinstance(kind, str):
        return _TO_SPARK.get(kind, kind.replace(" ", ""))
    if kind["type"] == "struct":
        return {"type": "struct", "fields": [_field(field, metadata_of) for field in kind["fields"]]}
    if kind["type"] == "list":
        return {
            "type": "array",
            "elementType": spark_type(kind["element"], metadata_of),
            "containsNull": not kind["element-required"],
        }
    return {
        "type": "map",
        "keyType": spark_type(kind["key"], metadata_of),
        "valueType": spark_type(kind["value"], metadata_of),
        "valueContainsNull": not kind["value-required"],
    }


def _field(field: IcebergSchema, metadata_of: Callable[[IcebergSchema], dict[str, Any]]) -> dict[str, Any]:
    comment = {"comment": field["doc"]} if "doc" in field else {}
    return {
        "name": field["name"],
        "type": spark_type(field["type"], metadata_of),
        "nullable": not field["required"],
        "metadata": {**comment, **metadata_of(field)},
    }


def has_variant(kind: DataType) -> bool:
    """Returns whether a type is a VARIANT, or has one within it."""
    if isinstance(kind, StructType):
        return any(has_variant(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return has_variant(kind.elementType)
    if isinstance(kind, MapType):
        return has_variant(kind.keyType) or has_variant(kind.valueType)
    return isinstance(kind, VariantType)
