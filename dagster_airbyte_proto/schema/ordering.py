"""How a table's rows lie in its files, as a user writes it: `sort_by: [country, "updated_at desc"]`, or `cluster`.

A text names columns as the source does; what is made of it names them as the table does.
"""

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from dagster_airbyte_proto.model import Ordering, PartitionField, SortField, StreamId
from dagster_airbyte_proto.schema.columns import Column, Kind
from dagster_airbyte_proto.schema.partitioning import IDENTITY, column_of, refusal

_FIELD = re.compile(r"\s*(?P<column>`(?:[^`]|``)+`|.+?)(?:\s+(?P<way>asc|desc))?\s*", re.IGNORECASE)


def ordering_of(
    sort_by: Sequence[str], cluster: Sequence[str], fields: Mapping[str, Column], stream: StreamId
) -> Ordering:
    """What the texts say. `fields` are the table's columns by the source's names. Raises ConfigError."""
    if sort_by and cluster:
        found = "rows are sorted, or clustered, and cannot be both"
        raise refusal("cluster", ", ".join(cluster), found, "Leave out the one or the other.", stream)
    sorting = tuple(_sort_field(text, fields, stream) for text in sort_by)
    clustered = tuple(_clustered(text, fields, stream) for text in cluster)
    for option, names in (("sort_by", [field.column for field in sorting]), ("cluster", list(clustered))):
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise refusal(option, twice, "it stands there twice", "Name it once.", stream)
    return Ordering(sorting, clustered)


def refuse_parted(ordering: Ordering, partitioning: Sequence[PartitionField], stream: StreamId) -> None:
    """Raises ConfigError for clustering by what is the same in all of a partition."""
    parted = {field.column for field in partitioning if field.transform == IDENTITY}
    if found := next((name for name in ordering.clustered if name in parted), None):
        raise refusal(
            "cluster", found, "partition_by has it: it is the same in all of a partition", "Leave it out.", stream
        )


def _sort_field(text: str, fields: Mapping[str, Column], stream: StreamId) -> SortField:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise refusal("sort_by", text, "it is not understood", "Write a column, or a column and desc.", stream)
    column = column_of(("sort_by", text), match["column"], fields, stream)
    if not _has_order(column):
        raise refusal("sort_by", text, f"{column.name} has no order", "Choose another.", stream)
    return SortField(column.name, (match["way"] or "").lower() == "desc")


def _clustered(text: str, fields: Mapping[str, Column], stream: StreamId) -> str:
    column = column_of(("cluster", text), text.strip(), fields, stream)
    # Iceberg knows no z-order of decimals, and looks for `a.b` inside of `a`.
    if not _has_order(column) or pa.types.is_decimal(column.type.in_table) or "." in column.name:
        found = f"{column.name} is nothing that rows are clustered by"
        raise refusal("cluster", text, found, "Choose another: numbers, texts, truths, dates, times.", stream)
    return column.name


def _has_order(column: Column) -> bool:
    return column.type.kind not in (Kind.JSON, Kind.VARIANT, Kind.STRUCT) and column.type.depth == 0
