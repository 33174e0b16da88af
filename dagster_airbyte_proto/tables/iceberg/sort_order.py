"""How the rows of an Iceberg table lie in its files, for whoever writes files of it anew: compactions, copies, Spark.

What a stream sorts by is the table's sort order. Iceberg has no word for clustering: a property names the columns, by
their ids, which stay when a column is called otherwise. The same property marks an order as ours, so that one that
somebody else gave a table is left alone where a stream says nothing.
"""

from typing import Any

from pyspark.sql import SparkSession

from dagster_airbyte_proto.model import Ordering
from dagster_airbyte_proto.schema.evolution import Columns
from dagster_airbyte_proto.schema.names import folded
from dagster_airbyte_proto.tables.iceberg.jvm import java_array

_OURS = "airbyte-proto.order"
_SORTED = "sorted"
_CLUSTERED = "clustered:"


def keep_order(session: SparkSession, table: Any, columns: Columns, ordering: Ordering) -> None:
    """Has a table (Java's) keep an order; or none, if it has one of ours. Changes nothing where it does."""
    noted, wanted = table.properties().get(_OURS), _noted(columns, ordering)
    if noted is None and wanted is None:
        return
    order = _sort_order(session, table, columns, ordering)
    if not table.sortOrder().sameOrder(order):
        _with_fields(session, table.replaceSortOrder(), columns, ordering).commit()
    if noted != wanted:
        update = table.updateProperties()
        (update.set(_OURS, wanted) if wanted else update.remove(_OURS)).commit()


def in_order(session: SparkSession, rewriting: Any, table: Any) -> Any:
    """A rewriting of a table's files that keeps its order."""
    noted = str(table.properties().get(_OURS) or "")
    if noted.startswith(_CLUSTERED):
        ids = noted.removeprefix(_CLUSTERED).split(",")
        found = (table.schema().findColumnName(int(each)) for each in ids)
        names = [str(name) for name in found if name is not None]
        if names:
            gateway: Any = session.sparkContext._gateway
            return rewriting.zOrder(java_array(gateway, gateway.jvm.java.lang.String, names))
    return rewriting.sort() if table.sortOrder().isSorted() else rewriting.binPack()


def _noted(columns: Columns, ordering: Ordering) -> str | None:
    if ordering.clustered:
        ids = {folded(str(field["name"])): field["id"] for field in columns["fields"]}
        return _CLUSTERED + ",".join(str(ids[folded(name)]) for name in ordering.clustered)
    return _SORTED if ordering.sorted else None


def _sort_order(session: SparkSession, table: Any, columns: Columns, ordering: Ordering) -> Any:
    jvm: Any = session._jvm
    builder = jvm.org.apache.iceberg.SortOrder.builderFor(table.schema())
    return _with_fields(session, builder, columns, ordering).build()


def _with_fields(session: SparkSession, builder: Any, columns: Columns, ordering: Ordering) -> Any:
    """Null is less than any value."""
    jvm: Any = session._jvm
    iceberg = jvm.org.apache.iceberg
    names = {folded(str(field["name"])): str(field["name"]) for field in columns["fields"]}
    for field in ordering.sorted:
        term = iceberg.expressions.Expressions.ref(names[folded(field.column)])
        if field.is_descending:
            builder = builder.desc(term, iceberg.NullOrder.NULLS_LAST)
        else:
            builder = builder.asc(term, iceberg.NullOrder.NULLS_FIRST)
    return builder
