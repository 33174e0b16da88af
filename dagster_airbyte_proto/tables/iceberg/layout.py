"""The layout of an Iceberg table: its partitions, and the sort order or clustering of its files.

- A table is created without partitions and partitioned in the same commit. So its metadata keeps an unpartitioned spec.
  Equality deletes in that spec apply to every partition: if the row of a key moves to another partition, the old row is
  deleted from where it was. Equality deletes in a partition's own spec would apply to that partition only.
- A stream's sort columns become the table's sort order. Compactions, copies and Spark apply it when they write files.
- Iceberg has no setting for clustering, so a table property of ours lists the columns. It lists their ids, because ids
  stay when a column is renamed.
- The same property marks a sort order as ours. An order that somebody else set is left alone if the stream has none.
"""

import datetime
from collections.abc import Sequence
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.column_ids import has_type
from dagster_airbyte_proto.model import Ordering, PartitionField, PartitionValue
from dagster_airbyte_proto.schema.evolution import IcebergSchema
from dagster_airbyte_proto.schema.names import case_folded
from dagster_airbyte_proto.tables.iceberg.handle import alone
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_array

_OURS = "airbyte-proto.order"
_SORTED = "sorted"
_CLUSTERED = "clustered:"
_EPOCH = datetime.date(1970, 1, 1)


def oldest_format(columns: IcebergSchema) -> int:
    """Returns the oldest format version that has such columns, because most readers support the oldest."""
    return 3 if has_type(columns, "variant") else 2


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


def set_order(session: SparkSession, table: Any, columns: IcebergSchema, ordering: Ordering) -> None:
    """Sets the order of a table (Java's), or removes an order of ours. Changes nothing if it is set already."""
    current, requested = table.properties().get(_OURS), _order_text(columns, ordering)
    if current is None and requested is None:
        return
    order = _sort_order(session, table, columns, ordering)
    with alone(table):
        if not table.sortOrder().sameOrder(order):
            _with_fields(session, table.replaceSortOrder(), columns, ordering).commit()
        if current != requested:
            update = table.updateProperties()
            (update.set(_OURS, requested) if requested else update.remove(_OURS)).commit()


def ordered_rewrite(session: SparkSession, action: Any, table: Any) -> Any:
    """Returns Iceberg's rewrite action with the table's order: clustered (z-order), sorted, or neither."""
    current = str(table.properties().get(_OURS) or "")
    if current.startswith(_CLUSTERED):
        ids = current.removeprefix(_CLUSTERED).split(",")
        found = (table.schema().findColumnName(int(each)) for each in ids)
        names = [str(name) for name in found if name is not None]
        if names:
            gateway: Any = session.sparkContext._gateway
            return action.zOrder(java_array(gateway, gateway.jvm.java.lang.String, names))
    return action.sort() if table.sortOrder().isSorted() else action.binPack()


def _order_text(columns: IcebergSchema, ordering: Ordering) -> str | None:
    if ordering.clustered:
        ids = {case_folded(str(field["name"])): field["id"] for field in columns["fields"]}
        return _CLUSTERED + ",".join(str(ids[case_folded(name)]) for name in ordering.clustered)
    return _SORTED if ordering.sorted else None


def _sort_order(session: SparkSession, table: Any, columns: IcebergSchema, ordering: Ordering) -> Any:
    jvm: Any = session._jvm
    builder = jvm.org.apache.iceberg.SortOrder.builderFor(table.schema())
    return _with_fields(session, builder, columns, ordering).build()


def _with_fields(session: SparkSession, builder: Any, columns: IcebergSchema, ordering: Ordering) -> Any:
    """Adds the sort fields to a builder. Nulls sort as less than any value."""
    jvm: Any = session._jvm
    iceberg = jvm.org.apache.iceberg
    names = {case_folded(str(field["name"])): str(field["name"]) for field in columns["fields"]}
    for field in ordering.sorted:
        term = iceberg.expressions.Expressions.ref(names[case_folded(field.column)])
        if field.is_descending:
            builder = builder.desc(term, iceberg.NullOrder.NULLS_LAST)
        else:
            builder = builder.asc(term, iceberg.NullOrder.NULLS_FIRST)
    return builder
