"""Creates partitioned Iceberg tables, and converts partition values to Iceberg's.

A table is created without partitions and partitioned in the same commit. So its metadata keeps an unpartitioned spec.
Equality deletes in that spec apply to every partition: if the row of a key moves to another partition, the old row is
deleted from where it was. Equality deletes in a partition's own spec would apply to that partition only.
"""

import datetime
from collections.abc import Sequence
from typing import Any

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import PartitionField, PartitionValue

_EPOCH = datetime.date(1970, 1, 1)


def create_partitioned(builder: Any, partitioning: Sequence[PartitionField], expressions: Any) -> None:
    """Creates a builder's table with partitions, in one commit."""
    transaction = builder.createTransaction()
    update = transaction.updateSpec()
    for field in partitioning:
        update.addField(_term(field, expressions))
    update.commit()
    transaction.commitTransaction()


def unpartitioned(table: Any) -> Any:
    """Returns the unpartitioned spec of a partitioned table. Raises TableError if the table has none."""
    for spec in table.specs().values():
        if spec.isUnpartitioned():
            return spec
    raise TableError(
        "committing a load",
        "deletes by key must apply to every partition, and the table was created with partitions from the start",
        remedy="Drop the table so that the next run creates it again, or use write: append or overwrite.",
    )


def partition_data(data_files: Any, spec: Any, values: Sequence[PartitionValue]) -> Any:
    """Returns Iceberg's object for a partition.

    The values go as text through a file builder, because only Iceberg can create a small long: py4j would send an int.
    """
    types = [str(field.type()) for field in spec.partitionType().fields()]
    texts = [_text(value, kind) for value, kind in zip(values, types, strict=True)]
    no_file = data_files.builder(spec).withPath("none").withFormat("PARQUET").withFileSizeInBytes(0).withRecordCount(0)
    data = no_file.withPartitionValues(texts).build().partition()
    for position, value in enumerate(values):
        if isinstance(value, str):  # Not as text: Iceberg has a text that stands for null, and a value may equal it.
            data.set(position, value)
    return data


def _text(value: PartitionValue, kind: str) -> str | None:
    if value is None or isinstance(value, str):
        return None
    if kind == "date":
        return (_EPOCH + datetime.timedelta(days=value)).isoformat()
    return str(value).lower()


def _term(field: PartitionField, expressions: Any) -> Any:
    if field.transform == "identity":
        return expressions.ref(field.column)
    transform = getattr(expressions, field.transform)
    return transform(field.column, field.width) if field.width else transform(field.column)
