"""The plan of a push of all rows that is the table's own files: nothing is computed, and no row is written again.

- It needs a push that compares nothing (`changes: all`), without a key, whose values would have to be looked at; fields
  that are columns as they are; and an Iceberg table whose files no delete touches. Every file must have the columns in
  the types that Spark would read, by their ids: a nested field may have been dropped, and made anew under its name.
- Whatever else there is, Spark plans. So each check only decides who plans, and none refuses a push.
- The table keeps the snapshot until the plan is delivered: by a tag for whoever cleans it up, and by the store for us.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto.connection import PushOptions
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.column_ids import FIELD_ID
from dagster_airbyte_proto.loads.plan_query import PlanQuery
from dagster_airbyte_proto.loads.push import PlanColumn, PlanFile, SealedPlan
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.model import ChangesBy, StreamId
from dagster_airbyte_proto.sync.push.plan.plain_types import plain_type
from dagster_airbyte_proto.sync.push.push_context import PushContext
from dagster_airbyte_proto.tables.planner import SupportsWholeFiles

_READERS = 8


class TableFiles(NamedTuple):
    """Files of a table with all its rows, and the columns of theirs that the fields are."""

    files: tuple[PlanFile, ...]
    columns: tuple[PlanColumn, ...]


def table_files(
    context: PushContext, stream: StreamId, options: PushOptions, query: PlanQuery, fields: pa.Schema
) -> TableFiles | None:
    """Returns the files to send as they are, and has the table keep them; None where Spark has to plan."""
    planner = context.engine.planner
    columns = _columns(query, fields)
    if options.changes_by is not ChangesBy.ALL or query.keys or query.partition is not None or columns is None:
        return None
    if query.at is None or not query.at.snapshot_id or not isinstance(planner, SupportsWholeFiles):
        return None
    try:
        whole = planner.whole_files(query)
        if whole is None:
            return None
        wanted = {each.field: whole.ids.get(each.column) for each in columns}
        found = _files_with(whole.files, context.engine.tables.storage, wanted, fields)
        if found is not None and not context.request.only_plans:
            planner.keep_snapshot(_tag(context, stream), query.at)
    except TableError as error:
        # Somebody's table, which we may only read: nothing would keep its files.
        context.log.write("NOTE", str(error))
        return None
    return found


def release_files(context: PushContext, plan: SealedPlan) -> None:
    """Has the table no longer keep the files of a plan, if the plan is the table's own files."""
    planner = context.engine.planner
    if not plan.columns or plan.snapshot is None or context.request.only_plans:
        return
    if isinstance(planner, SupportsWholeFiles):
        try:
            planner.release_snapshot(_tag(context, plan.stream), plan.snapshot.table)
        except TableError as error:
            context.log.write("NOTE", str(error))


def _tag(context: PushContext, stream: StreamId) -> str:
    return f"airbyte-proto-plan-{context.delivery.connection.name}-{stream}"


def _columns(query: PlanQuery, fields: pa.Schema) -> Sequence[PlanColumn] | None:
    """The column of each field; None if one is an expression, a constant or a part of a column."""
    if query.sql is not None:
        return None
    if not query.fields:
        return [PlanColumn(name, name) for name in fields.names]
    columns = [PlanColumn(each.name, each.column) for each in query.fields if each.column and "." not in each.column]
    return columns if len(columns) == len(query.fields) else None


def _files_with(
    files: Sequence[PlanFile], storage: Storage, wanted: Mapping[str, Sequence[int] | None], fields: pa.Schema
) -> TableFiles | None:
    """Returns the files, if all of them have the wanted columns under the same names and in the types of the fields."""

    def columns_of(file: PlanFile) -> tuple[PlanColumn, ...] | None:
        try:
            filesystem, path = storage.at(file.path)
            with filesystem.open_input_file(path) as opened:
                schema = pq.read_schema(opened)
        except (OSError, ValueError, pa.ArrowException):
            return None
        return _columns_in(schema, wanted, fields)

    with ThreadPoolExecutor(_READERS, thread_name_prefix="footers") as threads:
        found = set(threads.map(columns_of, files))
    if len(found) > 1 or None in found:
        return None
    columns = next(iter(found), tuple(PlanColumn(name, name) for name in fields.names))
    return None if columns is None else TableFiles(tuple(files), columns)


def _columns_in(
    schema: pa.Schema, wanted: Mapping[str, Sequence[int] | None], fields: pa.Schema
) -> tuple[PlanColumn, ...] | None:
    by_ids = {tuple(_ids(field)): field for field in schema}
    columns = []
    for name, ids in wanted.items():
        found = None if ids is None else by_ids.get(tuple(ids))
        if (
            found is None
            or schema.names.count(found.name) > 1
            or plain_type(found.type) != plain_type(fields.field(name).type)
        ):
            return None
        columns.append(PlanColumn(name, found.name))
    return tuple(columns)


def _ids(field: pa.Field) -> Iterator[int | None]:
    """Yields the id of a field, then those of the fields within it; None for one without."""
    mark, kind = (field.metadata or {}).get(FIELD_ID), field.type
    yield None if mark is None else int(mark)
    nested: Iterable[pa.Field] = ()
    if pa.types.is_struct(kind):
        nested = kind
    elif pa.types.is_map(kind):
        nested = (kind.key_field, kind.item_field)
    elif pa.types.is_list(kind):
        nested = (kind.value_field,)
    for each in nested:
        yield from _ids(each)
