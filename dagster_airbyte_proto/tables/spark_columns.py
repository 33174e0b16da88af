"""A table's columns in Spark's own JSON for a schema, from those of `columns.py` and back."""

from typing import Any

from dagster_airbyte_proto.schema.evolution import Columns

SparkType = str | dict[str, Any]

_TO_SPARK = {"int": "integer", "timestamptz": "timestamp", "timestamp": "timestamp_ntz", "uuid": "string"}


def spark_schema(columns: Columns) -> dict[str, Any]:
    """As `StructType.fromJson` takes it. Comments come along, ids do not."""
    return {"type": "struct", "fields": [_spark_field(field) for field in columns["fields"]]}


def _spark_field(field: Columns) -> dict[str, Any]:
    metadata = {"comment": field["doc"]} if "doc" in field else {}
    return {
        "name": field["name"],
        "type": _spark_type(field["type"]),
        "nullable": not field["required"],
        "metadata": metadata,
    }


def _spark_type(kind: str | Columns) -> SparkType:
    if isinstance(kind, str):
        return _TO_SPARK.get(kind, kind.replace(" ", ""))
    if kind["type"] == "struct":
        return spark_schema(kind)
    if kind["type"] == "list":
        return {
            "type": "array",
            "elementType": _spark_type(kind["element"]),
            "containsNull": not kind["element-required"],
        }
    return {
        "type": "map",
        "keyType": _spark_type(kind["key"]),
        "valueType": _spark_type(kind["value"]),
        "valueContainsNull": not kind["value-required"],
    }
