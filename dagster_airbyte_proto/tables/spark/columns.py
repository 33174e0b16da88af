"""A table's columns in Spark's own JSON for a schema."""

from collections.abc import Callable
from typing import Any, cast

from dagster_airbyte_proto.schema.evolution import Columns

SparkType = str | dict[str, Any]

_TO_SPARK = {"int": "integer", "timestamptz": "timestamp", "timestamp": "timestamp_ntz", "uuid": "string"}


def spark_schema(columns: Columns) -> dict[str, Any]:
    """As `StructType.fromJson` takes it. Comments come along, ids do not."""
    return cast(dict[str, Any], spark_type(columns, lambda _: {}))


def spark_type(kind: str | Columns, metadata_of: Callable[[Columns], dict[str, Any]]) -> SparkType:
    """A type with all that is in it, and what each field has to say beside its comment."""
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


def _field(field: Columns, metadata_of: Callable[[Columns], dict[str, Any]]) -> dict[str, Any]:
    comment = {"comment": field["doc"]} if "doc" in field else {}
    return {
        "name": field["name"],
        "type": spark_type(field["type"], metadata_of),
        "nullable": not field["required"],
        "metadata": {**comment, **metadata_of(field)},
    }
