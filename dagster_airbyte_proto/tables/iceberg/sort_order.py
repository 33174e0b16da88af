"""The sort order or clustering of an Iceberg table, which compactions, copies and Spark apply when they write files.

- A stream's sort columns become the table's sort order.
- Iceberg has no setting for clustering, so a table property of ours lists the columns. It lists their ids, because ids
  stay when a column is renamed.
- The same property marks a sort order as ours. An order that somebody else set is left alone if the stream has none.
"""

from typing import Any

from pyspark.sql import SparkSession

from dagster_airbyte_proto.model import Ordering
from dagster_airbyte_proto.schema.evolution import IcebergSchema
from dagster_airbyte_proto.schema.names import case_folded
from dagster_airbyte_proto.tables.spark.java_values import java_array

_OURS = "airbyte-proto.order"
_SORTED = "sorted"
_CLUSTERED = "clustered:"


def set_order(session: SparkSession, table: Any, columns: IcebergSchema, ordering: Ordering) -> None:
    """Sets the order of a table (Java's), or removes an order of ours. Changes nothing if it is set already."""
    current, requested = table.properties().get(_OURS), _order_text(columns, ordering)
    if current is None and requested is None:
        return
    order = _sort_order(session, table, columns, ordering)
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
