"""The columns that a table can be sorted or clustered by, and the errors for others."""

from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import (
    Ordering,
    PlannedStream,
    ReadMode,
    Shaping,
    SortField,
    Stream,
    StreamId,
    TableName,
    WriteMode,
)
from dagster_airbyte_proto.schema.json_schema import table_columns

_PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "at": {"type": "string", "format": "date-time"},
    "name": {"type": "string"},
    "big": {"type": "integer", "airbyte_type": "big_integer"},
    "thing": {"type": "object"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "odd desc": {"type": "string"},
    "a.b": {"type": "string"},
}


def _ordering(**shaping: Any) -> Ordering:
    planned = PlannedStream(
        Stream(StreamId.of("orders"), {"properties": _PROPERTIES}),
        TableName("shop", "orders"),
        ReadMode.FULL_REFRESH,
        WriteMode.OVERWRITE,
        shaping=Shaping(**shaping),
    )
    return table_columns(planned).ordering


def test_columns_are_named_as_the_source_names_them() -> None:
    sorted_by = ("name", "at DESC", "id  asc", "`odd desc`", "a.b desc", "_airbyte_extracted_at desc", "big")
    assert list(map(str, _ordering(sort_by=sorted_by, renames=(("name", "who"),)).sorted)) == [
        "who",
        "at desc",
        "id",
        "odd desc",
        "a.b desc",
        "_airbyte_extracted_at desc",
        "big",
    ]
    assert _ordering(cluster=("name", "at", "`odd desc`")).clustered == ("name", "at", "odd desc")
    assert _ordering(sort_by=("id",)) == Ordering((SortField("id"),))


@pytest.mark.parametrize(
    ("shaping", "found"),
    [
        ({"sort_by": ("nmae",)}, "the table has no column 'nmae'"),
        ({"sort_by": ("name", "name desc")}, "it is named twice"),
        ({"sort_by": ("thing",)}, "thing has no order"),
        ({"sort_by": ("tags desc",)}, "tags has no order"),
        ({"sort_by": ("id",), "exclude": (("id",),)}, "the table has no column 'id'"),
        ({"sort_by": ("id",), "cluster": ("name",)}, "sorted or clustered"),
        ({"cluster": ("big",)}, "rows cannot be clustered by big"),
        ({"cluster": ("a.b",)}, "rows cannot be clustered by a.b"),
        ({"cluster": ("id", "id")}, "it is named twice"),
        ({"cluster": ("id", "name"), "partition_by": ("name",)}, "one value in all of a partition"),
    ],
)
def test_a_column_without_an_order_is_refused_with_the_reason(shaping: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _ordering(**shaping)
    assert found in refused.value.found
    assert refused.value.stream == "orders"
