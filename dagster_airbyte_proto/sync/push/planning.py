"""Plans the push of one stream: has Spark find the rows to send, holds them against the guards, and seals the plan."""

import secrets
from typing import NamedTuple

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.checkpoints.kept_values import Asset
from dagster_airbyte_proto.checkpoints.transform_states import stored_transform_states
from dagster_airbyte_proto.connection import PushOptions
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.loads.plan_query import OWN_COLUMNS, PlannedRows, PlanQuery
from dagster_airbyte_proto.loads.program_identity import connector_program
from dagster_airbyte_proto.loads.push import (
    PushPosition,
    SealedPlan,
    TableSnapshot,
    push_basis,
)
from dagster_airbyte_proto.loads.storage import Storage, folder_name
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import BY_KEY, ChangesBy, PushMode, StreamId
from dagster_airbyte_proto.staging.files.staging_folder import remove_orphan_files
from dagster_airbyte_proto.sync.enrichment.plan_transforms import PushTransforms, transforms_of
from dagster_airbyte_proto.sync.push.attempts import first_generation
from dagster_airbyte_proto.sync.push.content.row_versions import row_version
from dagster_airbyte_proto.sync.push.delivered_table import delivered_spec, prepare_delivered_table, stored_position
from dagster_airbyte_proto.sync.push.plan.field_origins import cursor_field
from dagster_airbyte_proto.sync.push.plan.partition import pushed_partition, query_of
from dagster_airbyte_proto.sync.push.plan.plan_digests import (
    fingerprint_of,
    mapping_of,
    planned_fields,
    selection_of,
    with_connectors,
)
from dagster_airbyte_proto.sync.push.plan.plan_files import plan_files
from dagster_airbyte_proto.sync.push.plan.removal_guard import check_max_removed, check_removals
from dagster_airbyte_proto.sync.push.plan.table_files import release_files, table_files
from dagster_airbyte_proto.sync.push.plan.written_plan import WrittenPlan, written_plan
from dagster_airbyte_proto.sync.push.push_context import PushContext, full_command
from dagster_airbyte_proto.transforms.transform_choice import described_connectors


class PushOrigin(NamedTuple):
    """The rows of one stream before they are planned: the query for Spark, the fields that the destination gets, the
    table that remembers them (None where none does), the transforms between, the field that has the cursor, and a
    digest of the connectors of the transforms."""

    query: PlanQuery
    fields: pa.Schema
    delivered: TableTarget | None
    transforms: PushTransforms | None = None
    cursor: str | None = None
    connectors: str = ""


def open_origin(context: PushContext, stream: StreamId, options: PushOptions) -> PushOrigin:
    """Looks at the origin without reading it, and prepares the delivered table. Raises ConfigError."""
    partition = pushed_partition(context.request, stream, options)
    before = context.delivery.store.deliveries(context.delivery.connection.name, stream).get(stream)
    known = None if before is None or context.request.is_full else before.plan
    query = PlanQuery(
        stream=str(stream),
        table=options.table,
        sql=options.sql if context.request.partition is None else query_of(context.request.partition, options.sql),
        fields=planned_fields(options, known.field_order if known else ()),
        keys=options.key or (),
        fingerprint="",
        sends_changed=options.mode is not PushMode.INSERT,
        finds_removed=options.mode is PushMode.MIRROR,
        retries_rejected=context.request.retries_rejected,
        cursor=options.cursor,
        compares_keys=options.changes_by in BY_KEY,
        partition=partition,
    )
    fields = context.engine.planner.fields(query)
    _check_names(stream, fields)
    specs = context.delivery.connection.transforms_of(stream)
    transforms = transforms_of(stream, options, specs, fields, context.enrichers)
    passed_on = None
    if transforms is not None:
        fields, passed_on = transforms.fields()
        _check_names(stream, fields)
    connectors = described_connectors(context.delivery.connection, specs)
    position = None if context.request.is_full else stored_position(context, stream)
    fingerprint = fingerprint_of(options, fields, specs)
    query = query._replace(fingerprint=with_connectors(fingerprint, connectors, known, position))
    if options.changes_by not in BY_KEY:
        if query.retries_rejected:
            text = (
                f"{stream}: with changes: {options.changes_by} no rejected rows are remembered; `--full` sends all rows"
            )
            context.delivery.destination.note(text)
        return PushOrigin(query, fields, None, transforms, cursor_field(query, fields, passed_on), connectors)
    spec = delivered_spec(context.delivery.connection.name, stream, fields, query.keys)
    return PushOrigin(query, fields, prepare_delivered_table(context, spec, stream), transforms, None, connectors)


def _check_names(stream: StreamId, fields: pa.Schema) -> None:
    """Raises ConfigError for a field with the name of a column that a plan adds: its values would not be sent."""
    if taken := [name for name in fields.names if name.casefold() in OWN_COLUMNS]:
        raise ConfigError(
            "preparing the rows of a push",
            f"the plan of a push has columns of its own named {', '.join(taken)}",
            remedy="Give these fields other names by `map`, or leave them out.",
            stream=str(stream),
        )


def make_plan(
    context: PushContext, stream: StreamId, options: PushOptions, origin: PushOrigin, position: PushPosition | None
) -> SealedPlan:
    """Has Spark write the rows to send, where the table's own files do not have them, and returns the plan of them. It
    is not stored yet.

    Raises TableError where a guard stops it: then nothing of it stays.
    """
    starts_over = context.request.is_full or position is None or position.resends(context.request.partition_key)
    query = origin.query._replace(
        at=_snapshot(context, options),
        delivered=origin.delivered.qualified if origin.delivered else None,
        sends_all=starts_over,
        marks_known=starts_over and (options.removes_by_version or _may_leave_sent_rows_out(context, origin)),
    )
    if not starts_over and position is not None:
        query = query._replace(after=position.cursor)
        if options.changes_by is ChangesBy.SNAPSHOTS:
            query = query._replace(since=_since(context, stream, options, query, position))
        _check_cursor(context.delivery.connection.name, options, query, position)
    plan_id = secrets.token_hex(8)
    storage = context.engine.tables.storage
    plans = _plans_folder(context, stream, origin)
    _sweep(context, stream, plans, storage)
    folder = f"{plans}/{plan_id}"
    try:
        own = None if origin.transforms else table_files(context, stream, options, query, origin.fields)
        planned = _planned(context, query, folder) if own is None else PlannedRows(sum(each.rows for each in own.files))
        if options.removes_by_version and not query.sends_all:
            query, planned = _with_whole_version(context, options, query, folder, planned)
        states: tuple[TransformState, ...] = ()
        # A plan that is only shown asks no connector anything.
        if origin.transforms is not None and not context.request.only_plans:
            sends_all = query.sends_all or options.mode is PushMode.OVERWRITE
            before = () if sends_all else _transform_states(context, stream)
            states = origin.transforms.apply(f"{folder}/rows", storage, before)
        # A new version has all rows, and those that were delivered before are marked: they count as changed.
        counted = query._replace(sends_all=False) if options.removes_by_version else query
        plan = _sealed(context, stream, options, query, written_plan(counted, folder, planned, own, storage))
        plan = _with_ends(options, query, plan, planned, None if starts_over else position)
        json_fields = tuple(field.name for field in origin.fields if isinstance(field.type, pa.JsonType))
        plan = msgspec.structs.replace(
            plan,
            json_fields=json_fields,
            transform_states=states,
            field_order=tuple(field.name for field in query.fields),
            connectors=origin.connectors,
            version=_version(context, options, plan, position),
        )
        check_removals(options, plan, planned, storage)
    except BaseException:
        remove_orphan_files(folder, (), storage)
        raise
    return plan


def _with_whole_version(
    context: PushContext, options: PushOptions, query: PlanQuery, folder: str, planned: PlannedRows
) -> tuple[PlanQuery, PlannedRows]:
    """Has all rows written in the place of the changes, if rows are gone that a new version is to remove.

    Returns the query that stands, and its numbers.
    """
    storage = context.engine.tables.storage
    removed = sum(file.rows for file in plan_files(f"{folder}/removed", storage))
    if not removed:
        return query, planned
    check_max_removed(options, query.stream, removed, planned.delivered)
    remove_orphan_files(folder, (), storage)
    query = query._replace(since=None, sends_all=True, marks_known=True)
    return query, _planned(context, query, folder)


def _version(context: PushContext, options: PushOptions, plan: SealedPlan, position: PushPosition | None) -> int:
    """The version of the rows; 0 where they have none."""
    if not options.removes_by_version:
        return 0
    removed = plan.counts.removed or 0
    if removed:
        context.delivery.destination.note(
            f"{plan.stream}: rows are gone ({removed:,}), so all that are there ({plan.rows_to_write:,}) go as a new"
            " version, which is activated once the destination has them"
        )
    before = context.delivery.store.deliveries(plan.connection, plan.stream).get(plan.stream)
    return row_version(position, first_generation(before), is_new=removed > 0)


def _may_leave_sent_rows_out(context: PushContext, origin: PushOrigin) -> bool:
    """True if rows that the destination has may be left out of this push: a mirror has to remove them once they are
    gone, and not those that it never sent."""
    return origin.query.finds_removed and origin.transforms is not None and not context.request.only_plans


def _transform_states(context: PushContext, stream: StreamId) -> tuple[TransformState, ...]:
    asset = Asset(context.delivery.connection.name, stream, context.request.partition_key or "")
    return stored_transform_states(context.delivery.store, asset)


def _snapshot(context: PushContext, options: PushOptions) -> TableSnapshot | None:
    """The snapshot of the table that is to be pushed. Raises ConfigError where one is needed, and there is none."""
    found = None if options.table is None else context.engine.planner.snapshot(options.table)
    if found is None and options.changes_by is ChangesBy.SNAPSHOTS:
        raise ConfigError(
            f"planning the rows of {options.table or 'a query'}",
            "changes: snapshots needs an Iceberg or Delta table, and it is none",
            remedy="Use changes: diff, which finds the same rows and reads all of them.",
        )
    return found


def _since(
    context: PushContext, stream: StreamId, options: PushOptions, query: PlanQuery, position: PushPosition
) -> TableSnapshot | None:
    """The snapshot after which changes are looked for; None where rows before it may have to be sent too."""
    if query.retries_rejected:
        return None
    found = _compared_snapshot(options, query, position)
    reason = (
        "no snapshot was pushed, or a plan since then was given up"
        if position.snapshot is None
        else "its mapping or mode was changed"
    )
    last = context.delivery.store.deliveries(context.delivery.connection.name, stream).get(stream)
    if found is not None and last is not None and last.plan.version != position.version:
        found, reason = None, "a version of them was begun, and is not activated"
    if found is not None and not position.is_end:
        # The table may be set back to that snapshot, and then it has no changes since.
        found, reason = None, "the push of those after it was given up before its end"
    if found is None:
        context.log.write("NOTE", f"{query.stream}: all rows of {query.table} are compared: {reason}")
    return found


def _check_cursor(connection: str, options: PushOptions, query: PlanQuery, position: PushPosition) -> None:
    """Raises ConfigError where the value that was reached is of another column, or of another table."""
    now = _cursor_of(options)
    # Positions of earlier releases do not say what their value is of.
    if now and position.cursor is not None and position.cursor_of not in ("", now):
        raise ConfigError(
            f"planning the rows of {query.table or 'a query'}",
            f"its cursor is {now}, and what was pushed reaches up to a value of {position.cursor_of}",
            remedy=f"Send all rows again: `{full_command(connection, query.stream)}`; or name the cursor that was used"
            " before.",
            stream=query.stream,
        )


def _cursor_of(options: PushOptions) -> str:
    """The column and the table that a cursor value is of; empty without a cursor."""
    return f"{options.cursor} of {options.table or 'a query'}" if options.cursor else ""


def _compared_snapshot(options: PushOptions, query: PlanQuery, position: PushPosition) -> TableSnapshot | None:
    """The snapshot up to which no row has to be sent; None where the mapping or the mode is another one by now."""
    is_same = position.basis == push_basis(options.mode, query.fingerprint, mapping_of(query.fields))
    return position.snapshot if is_same else None


def _planned(context: PushContext, query: PlanQuery, folder: str) -> PlannedRows:
    """Has the rows written, unless the table's newest snapshot is the one that was pushed."""
    if query.since is not None and query.since == query.at:
        return PlannedRows(0, has_compared_all=False)
    with context.interrupts.within(f"planning the rows of {query.table or 'a query'}", query.stream):
        planned = context.engine.planner.write(query, folder)
    if planned.note is not None:
        context.log.write("NOTE", f"{query.stream}: all rows of {query.table} were compared: {planned.note}")
    return planned


def _sweep(context: PushContext, stream: StreamId, plans: str, storage: Storage) -> None:
    """Removes the plans that runs left which died, but for one that is still to be gone on with."""
    known = context.delivery.store.deliveries(context.delivery.connection.name, stream).get(stream)
    kept = () if known is None else (*known.plan.files, *known.plan.removal_files)
    context.delivery.renewal.check()  # A run that slept since must not remove the plan of the one that took over.
    remove_orphan_files(plans, [file.path for file in kept], storage)


def drop_plan(context: PushContext, plan: SealedPlan, *, successor: SealedPlan | None = None) -> None:
    """Deletes the files of a plan that is delivered, or given up. Those that are the table's own stay."""
    remove_orphan_files(plan.folder, (), context.engine.tables.storage)
    if successor is None or not successor.columns:  # Else the tag is the successor's by now.
        release_files(context, plan)


def _plans_folder(context: PushContext, stream: StreamId, origin: PushOrigin) -> str:
    """The folder of a stream's plans: beside the table that remembers them, else in the home folder.

    Spark writes plans by Hadoop's file systems, which need not know the object store of the tables: those have a FileIO
    of their own, and a REST catalog may vend its credentials to nothing else.
    """
    if origin.delivered is not None and context.engine.planner.writes_to(origin.delivered.location):
        return f"{origin.delivered.location.rstrip('/')}/plans"
    folder = context.engine.settings.staging_folder.absolute() / "plans" / context.delivery.connection.name
    return str(folder / folder_name(str(stream)))


def _sealed(
    context: PushContext, stream: StreamId, options: PushOptions, query: PlanQuery, written: WrittenPlan
) -> SealedPlan:
    return SealedPlan(
        plan_id=written.folder.rpartition("/")[2],
        connection=context.delivery.connection.name,
        stream=stream,
        mode=options.mode,
        folder=written.folder,
        files=written.files,
        removal_files=written.removal_files,
        counts=written.counts,
        fingerprint=query.fingerprint,
        mapping=mapping_of(query.fields),
        selection=selection_of(options, query.fields),
        destination=connector_program(context.delivery.connection.connector),
        generation_id=context.delivery.sync_id,
        partition=context.request.partition_key,
        columns=written.columns,
    )


def _with_ends(
    options: PushOptions, query: PlanQuery, plan: SealedPlan, planned: PlannedRows, position: PushPosition | None
) -> SealedPlan:
    """Adds where a plan begins and ends. It starts over without a position to go on from."""
    before = None if position is None else position.cursor
    return msgspec.structs.replace(
        plan,
        starts_over=position is None,
        cursor=planned.cursor or before,
        after=before,
        cursor_of=_cursor_of(options) or ("" if position is None else position.cursor_of),
        # What a table has up to a snapshot is not pushed with one partition of it.
        snapshot=None if query.partition is not None else query.at,
        snapshot_before=None if position is None else _compared_snapshot(options, query, position),
        keeps_snapshot=options.changes_by is ChangesBy.SNAPSHOTS,
    )
