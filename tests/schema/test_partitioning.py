"""The columns and transforms that a table can be partitioned by, and the errors for others."""

from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import (
    PartitionField,
    PlannedStream,
    ReadMode,
    Shaping,
    Stream,
    StreamId,
    TableName,
    WriteMode,
)
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.schema.json_schema import table_columns

_PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "at": {"type": "string", "format": "date-time"},
    "on": {"type": "string", "format": "date"},
    "name": {"type": "string"},
    "amount": {"type": "number"},
    "is_paid": {"type": "boolean"},
    "thing": {"type": "object"},
    "an odd (name)": {"type": "string"},
}


def _columns(*partition_by: str, slice_key: str | None = None, **shaping: Any) -> Columns:
    planned = PlannedStream(
        Stream(StreamId.of("orders"), {"properties": _PROPERTIES}),
        TableName("shop", "orders"),
        ReadMode.FULL_REFRESH,
        WriteMode.OVERWRITE,
        shaping=Shaping(partition_by=partition_by, **shaping),
        slice=slice_key,
    )
    return table_columns(planned)


def test_fields_are_parsed_and_written_as_a_user_writes_them() -> None:
    texts = [
        "day(at)",
        "bucket(16, id)",
        "name",
        "truncate(3, name)",
        "hour( at )",
        "day(_airbyte_extracted_at)",
        "`an odd (name)`",
    ]
    columns = _columns(*texts)
    assert columns.partitioning[:3] == (
        PartitionField("day", "at"),
        PartitionField("bucket", "id", 16),
        PartitionField("identity", "name"),
    )
    assert [str(field) for field in columns.partitioning[:4]] == texts[:4]
    assert columns.partitioning[-1] == PartitionField("identity", "an odd (name)")
    assert columns.shaping_plan is None


def test_columns_are_named_as_the_source_names_them_and_partitioned_as_the_table_has_them() -> None:
    columns = _columns("truncate(2, id)", "name", renames=(("id", "who"), ("name", "mail")), hashed=(("id",),))
    assert columns.partitioning == (PartitionField("truncate", "who", 2), PartitionField("identity", "mail"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("dya(at)", "there is no transform 'dya'\nWrite year, month, day, hour, bucket, truncate, or a column alone."),
        ("day(att)", "the table has no column 'att'\nThe nearest column is at."),
        ("day(name)", "day takes dates and times, and name is none of these"),
        ("hour(on)", "hour takes times, and on is none of these"),
        ("bucket(id)", "bucket needs a number\nWrite bucket(16, id)."),
        ("bucket(0, id)", "bucket needs a number"),
        ("day(3, at)", "day takes no number\nWrite day(at)."),
        ("bucket(4, amount)", "bucket takes whole numbers, texts, dates and times, and amount is none"),
        ("bucket(4, is_paid)", "and is_paid is none"),
        ("at", "identity takes whole numbers, texts, booleans and dates, and at is none"),
        ("thing", "and thing is none"),
        ("day(at", "it is not understood\nWrite day(updated_at), bucket(16, id), or a column."),
        ("day at", "the table has no column 'day at'"),
        ("_airbyte_meta", "the table has no column '_airbyte_meta'"),
    ],
)
def test_a_partitioning_that_is_impossible_is_refused_with_a_remedy(text: str, found: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _columns(text)
    assert refused.value.doing == f"planning partition_by: {text}"
    assert found in str(refused.value)


def test_a_field_is_named_once_and_not_combined_with_slices() -> None:
    with pytest.raises(ConfigError, match="it is named twice"):
        _columns("day(at)", "day( at )")
    with pytest.raises(ConfigError, match="a run of one partition"):
        _columns("day(at)", slice_key="2026-01-01")
    with pytest.raises(ConfigError, match="the table has no column 'name'"):
        _columns("name", exclude=(("name",),))
