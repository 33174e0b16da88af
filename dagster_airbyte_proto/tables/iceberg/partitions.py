"""How an Iceberg table is parted, and where in it a file belongs.

A table is made without partitions and given them in the same commit. So the spec of none stays among its specs, and a
file of deletes that is written in it reaches into every partition: the row of a key that has moved to another partition
leaves the one where it was. Under a partition's own spec it would reach no further than that one.
"""

import datetime
from collections.abc import Sequence
from typing import Any

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import PartitionField, PartitionValue

_EPOCH = datetime.date(1970, 1, 1)


def create_partitioned(builder: Any, partitioning: Sequence[PartitionField], expressions: Any) -> None:
    """Makes a builder's table, in one commit."""
    transaction = builder.createTransaction()
    update = transaction.updateSpec()
    for field in partitioning:
        update.addField(_term(field, expressions))
    update.commit()
    transaction.commitTransaction()


def unpartitioned(table: Any) -> Any:
    """The spec of a partitioned table by which a file is in no partition. Raises TableError where there is none."""
    for spec in table.specs().values():
        if spec.isUnpartitioned():
            return spec
    raise TableError(
        "committing a load",
        "deletes by key must reach into each partition, and the table was made with partitions from the first",
        remedy="Drop the table to have it made anew, or use write: append or overwrite.",
    )


def partition_data(data_files: Any, spec: Any, values: Sequence[PartitionValue]) -> Any:
    """A partition as Iceberg has it. Only Iceberg can make a long that is small: py4j sends it as an int."""
    types = [str(field.type()) for field in spec.partitionType().fields()]
    texts = [_text(value, kind) for value, kind in zip(values, types, strict=True)]
    nowhere = data_files.builder(spec).withPath("none").withFormat("PARQUET").withFileSizeInBytes(0).withRecordCount(0)
    data = nowhere.withPartitionValues(texts).build().partition()
    for position, value in enumerate(values):
        if isinstance(value, str):  # Among Iceberg's texts there is one that stands for null.
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
