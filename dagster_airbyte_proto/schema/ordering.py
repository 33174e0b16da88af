"""Parses the order of rows within a table's files: `sort_by: [country, "updated_at desc"]`, or `cluster`.

The user's text has the source's names of columns. The result has the table's names.
"""

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from dagster_airbyte_proto.model import IDENTITY, Ordering, PartitionField, SortField, StreamId
from dagster_airbyte_proto.schema.columns import Column, ValueKind
from dagster_airbyte_proto.schema.partitioning import named_column, option_error

_FIELD = re.compile(r"\s*(?P<column>`(?:[^`]|``)+`|.+?)(?:\s+(?P<way>asc|desc))?\s*", re.IGNORECASE)


def parsed_ordering(
    sort_by: Sequence[str], cluster: Sequence[str], fields: Mapping[str, Column], stream: StreamId
) -> Ordering:
    """Parses both options. `fields` are the table's columns by the source's names. Raises ConfigError."""
    if sort_by and cluster:
        found = "rows are either sorted or clustered"
        raise option_error("cluster", ", ".join(cluster), found, "Leave out the one or the other.", stream)
    sorting = tuple(_sort_field(text, fields, stream) for text in sort_by)
    clustered = tuple(_clustered(text, fields, stream) for text in cluster)
    for option, names in (("sort_by", [field.column for field in sorting]), ("cluster", list(clustered))):
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise option_error(option, twice, "it is named twice", "Name it once.", stream)
    return Ordering(sorting, clustered)


def check_clustering(ordering: Ordering, partitioning: Sequence[PartitionField], stream: StreamId) -> None:
    """Raises ConfigError for clustering by a partition column, which has one value in all of a partition."""
    partition_columns = {field.column for field in partitioning if field.transform == IDENTITY}
    if found := next((name for name in ordering.clustered if name in partition_columns), None):
        raise option_error(
            "cluster", found, "partition_by has it: it has one value in all of a partition", "Leave it out.", stream
        )


def _sort_field(text: str, fields: Mapping[str, Column], stream: StreamId) -> SortField:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise option_error("sort_by", text, "it is not understood", "Write a column, or a column and desc.", stream)
    column = named_column(("sort_by", text), match["column"], fields, stream)
    if not _has_order(column):
        raise option_error("sort_by", text, f"{column.name} has no order", "Choose another.", stream)
    return SortField(column.name, (match["way"] or "").lower() == "desc")


def _clustered(text: str, fields: Mapping[str, Column], stream: StreamId) -> str:
    column = named_column(("cluster", text), text.strip(), fields, stream)
    # Iceberg has no z-order of decimals, and it reads `a.b` as field b of a struct a.
    if not _has_order(column) or pa.types.is_decimal(column.type.table_type) or "." in column.name:
        found = f"rows cannot be clustered by {column.name}"
        raise option_error("cluster", text, found, "Choose another: numbers, texts, booleans, dates, times.", stream)
    return column.name


def _has_order(column: Column) -> bool:
    return column.type.kind not in (ValueKind.JSON, ValueKind.STRUCT) and column.type.depth == 0
