"""Pushes one stream: goes on with the plan of an earlier run or makes a new one, delivers it, and folds it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.connection import PushOptions
from dagster_airbyte_proto.encoding.arrow_frames import stream_columns
from dagster_airbyte_proto.encoding.json_types import json_schema
from dagster_airbyte_proto.errors import (
    Cancelled,
    CommitUnknown,
    InternalError,
    ProtoError,
    StagingError,
    StateConflict,
    StateUnavailable,
    TableError,
    TooManyRejected,
)
from dagster_airbyte_proto.loads.push import Delivery, PlannedCounts, PushPosition, SealedPlan
from dagster_airbyte_proto.model import IDEMPOTENT, ChangesBy, PushMode, StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.protocols.destination import PushedStream
from dagster_airbyte_proto.schema.columns import column_type
from dagster_airbyte_proto.sync.connector.destination_catalog import offered_operations, row_schema_of
from dagster_airbyte_proto.sync.push.attempts import (
    DeliveryAttempts,
    PlanPart,
    first_generation,
    first_position,
    generations,
    row_ranges,
)
from dagster_airbyte_proto.sync.push.content.row_versions import reason_to_keep_removed
from dagster_airbyte_proto.sync.push.content.stream_encoder import StreamEncoder
from dagster_airbyte_proto.sync.push.delivered_table import stored_position
from dagster_airbyte_proto.sync.push.fold import FOLDING, fold, remember_sent
from dagster_airbyte_proto.sync.push.plan.field_origins import field_origins
from dagster_airbyte_proto.sync.push.plan.plan_samples import samples_of
from dagster_airbyte_proto.sync.push.planning import PushOrigin, drop_plan, make_plan, open_origin
from dagster_airbyte_proto.sync.push.push_context import PushContext, reset_command
from dagster_airbyte_proto.sync.push.row_rules import RowRules
from dagster_airbyte_proto.sync.push.unfinished_plans import (
    check_destination,
    check_mapping,
    check_other_partition,
    is_planned_otherwise,
    rejections_before,
    would_double,
)
from dagster_airbyte_proto.sync.push.unknown_rows import (
    check_decided,
    how_to_decide,
    take_landed,
    warn_of_unfinished,
)
from dagster_airbyte_proto.sync.push_report import PushedField, PushedStreamReport, status_of
from dagster_airbyte_proto.sync.report import SyncStatus

_FOLD_SECONDS = 2.0
"""For the fold of a push that is cancelled. Its destination has had two for its last batch and five to end, and all is
to be over within ten."""


def push_stream(context: PushContext, stream: StreamId, options: PushOptions) -> PushedStreamReport:
    """Pushes one stream and returns its report. Raises ProtoError for what goes wrong before its delivery."""
    with context.interrupts.within(f"looking at the rows of {_origin_name(options)}", str(stream)):
        origin = open_origin(context, stream, options)
    before, report = rejections_before(context, stream), _pushed(context, stream, options, origin)
    return msgspec.structs.replace(report, fields=_origins(context, origin), rejections_before=before)


def _origins(context: PushContext, origin: PushOrigin) -> Mapping[str, PushedField]:
    """The fields with the columns that they come from; of one that a transform made, nobody knows them."""
    if origin.transforms is None:
        return field_origins(context.engine.planner, origin.query, origin.fields)
    given = field_origins(context.engine.planner, origin.query, origin.transforms.given)
    _, passed_on = origin.transforms.fields()
    return {
        field.name: given[passed_on[field.name]] if field.name in passed_on else PushedField(column_type(field.type))
        for field in origin.fields
    }


def _pushed(context: PushContext, stream: StreamId, options: PushOptions, origin: PushOrigin) -> PushedStreamReport:
    before = context.delivery.store.deliveries(context.delivery.connection.name, stream).get(stream)
    if before is not None:  # Before a plan that is only shown, too: what is acknowledged is not to be sent again.
        _fold_earlier(context, before, origin)
    if before is not None and not context.request.only_plans:
        if _goes_on(context, before, options, origin):
            return _deliver_and_fold(context, before.plan, options, origin)
        if before.undecided and origin.delivered is None and _is_delivered(context, before.plan):
            # Nobody remembers its rows: planned anew in this very run, they would all be sent once more.
            return msgspec.structs.replace(_report_of_plan(before.plan, options, None), resumed=before.plan.rows)
    position = stored_position(context, stream)
    if position is not None and options.changes_by is not ChangesBy.ALL:
        check_destination(context, stream, position.destination)
    plan = make_plan(context, stream, options, origin, position)
    if context.request.only_plans:
        if before is not None:
            warn_of_unfinished(context, before)
        return _only_planned(context, plan, options)
    if _is_to_be_sealed(plan, before):
        plan = msgspec.structs.replace(plan, first_generation=first_generation(before))
        context.delivery.store.seal_plan(context.delivery.lease, plan)
        reach("push.sealed")
        if before is not None and not before.is_complete:
            drop_plan(context, before.plan, successor=plan)
        return _deliver_and_fold(context, plan, options, origin)
    drop_plan(context, plan)
    return _report_of_plan(plan, options, origin.delivered.qualified if origin.delivered else None)


def _is_to_be_sealed(plan: SealedPlan, before: Delivery | None) -> bool:
    """True if a new plan takes the place of the one before: it has something to do, or that one is not to go on.

    One of another partition is left as it is by a plan that has nothing to do.
    """
    moves_snapshot = plan.keeps_snapshot and plan.moves_snapshot
    if plan.rows or plan.starts_over or plan.mode is PushMode.OVERWRITE or moves_snapshot:
        return True
    return before is not None and not before.is_complete and before.plan.partition == plan.partition


def _goes_on(context: PushContext, delivery: Delivery, options: PushOptions, origin: PushOrigin) -> bool:
    """Returns whether the plan of an earlier run is to go on. What that had acknowledged is folded.

    A plan of another table, query, mapping, key or mode is given up where it stands: the next one finds the rows that
    it had left. So is one whose rejected rows are to be sent again: the next one has these too. And so is one of
    another partition: the next one of that partition has them. Its files stay until the store has the next plan: should
    there be none, it is still to go on.
    (Whoever changes the state by hand has the store forget the plan.)
    """
    plan = delivery.plan
    if not delivery.is_complete and plan.mode is not PushMode.OVERWRITE:
        check_destination(context, plan.stream, plan.destination)
    check_other_partition(context, delivery, origin)
    if context.request.unknown_landed is not None:
        check_mapping(context, delivery, options, origin)
        protocol, rules = context.delivery.destination.protocol, _rules(context, plan.stream, options)
        described = _described(context, plan, options, origin)
        delivery = take_landed(context, delivery, StreamEncoder(protocol, described, rules))
        _fold_earlier(context, delivery, origin)
    check_decided(context, delivery)
    check_mapping(context, delivery, options, origin)
    if delivery.is_complete:
        drop_plan(context, plan)
    is_elsewhere = plan.partition != context.request.partition_key
    retries = context.request.retries_rejected and origin.delivered is not None
    plans_anew = is_elsewhere or retries or is_planned_otherwise(plan, options, origin)
    if delivery.is_complete or not (context.request.is_full or plans_anew):
        return not delivery.is_complete
    remember_sent(context, delivery, origin.delivered)
    return False


def _fold_earlier(context: PushContext, delivery: Delivery, origin: PushOrigin) -> None:
    """Folds what an earlier run had acknowledged."""
    plan = delivery.plan
    folded = _folded_rows(plan, stored_position(context, plan.stream))
    if (delivery.is_complete or not plan.counts_at_end) and delivery.acknowledged > folded:
        _fold(context, delivery, folded, origin)
        if delivery.is_complete and plan.keeps_snapshot:
            _keep_snapshot(context, plan)


def _fold(context: PushContext, delivery: Delivery, folded: int, origin: PushOrigin) -> None:
    """Folds what is acknowledged. Raises Cancelled where a push that is cancelled has no time for it: then the next one
    does it first."""
    with context.interrupts.within(FOLDING, str(delivery.plan.stream), _FOLD_SECONDS):
        fold(context, delivery, folded, origin.delivered)


def _is_delivered(context: PushContext, plan: SealedPlan) -> bool:
    found = context.delivery.store.deliveries(plan.connection, plan.stream).get(plan.stream)
    return found is not None and found.plan.plan_id == plan.plan_id and found.is_complete


def _deliver_and_fold(
    context: PushContext, plan: SealedPlan, options: PushOptions, origin: PushOrigin
) -> PushedStreamReport:
    """Delivers a sealed plan, then folds what is acknowledged."""
    begun = context.delivery.store.deliveries(plan.connection, plan.stream)[plan.stream]
    start, storage = first_position(begun), context.engine.tables.storage
    parts = _parts(context, begun, options, origin)
    attempts = DeliveryAttempts(context.delivery, plan, parts, storage)
    attempts.run()
    try:
        delivery = context.delivery.store.deliveries(plan.connection, plan.stream)[plan.stream]
        position = stored_position(context, plan.stream)
        reasons = context.delivery.store.rejection_reasons(plan, start=start)
    except StateUnavailable as failed:
        return _report_of_unread_store(context, plan, options, failed, max(0, attempts.sent - start))
    error, unfolded = attempts.error, _fold_or_error(context, delivery, position, origin)
    reach("push.folded")
    errors = [error] if error is not None and isinstance(unfolded, Cancelled) else [error, unfolded]
    texts = [context.delivery.destination.mask.text(str(each)) for each in errors if each is not None]
    if isinstance(error, TooManyRejected) and (unfolded or not _give_up(context, delivery, position, origin)):
        texts.append(_goes_on_as_planned(plan, origin))
    status = status_of((error, unfolded), delivery.undecided)
    error = error or unfolded
    if delivery.undecided:
        texts.append(how_to_decide(delivery))
    if delivery.is_complete and error is None:
        _drop_files(context, plan)
        if plan.keeps_snapshot:
            _keep_snapshot(context, plan)
    # What an earlier run announced may be there too, though this one came to an end before it.
    sent = max(attempts.sent, delivery.acknowledged, 0 if plan.mode in IDEMPOTENT else delivery.announced)
    rejected = sum(reasons.values())
    proved = delivery.acknowledged - start - rejected
    unnamed = min(attempts.unnamed, proved)
    return msgspec.structs.replace(
        _report_of_plan(plan, options, origin.delivered.qualified if origin.delivered else None),
        status=status,
        sent=sent - start,
        acknowledged=proved - unnamed,
        rejected=rejected + unnamed,
        bytes=attempts.sent_bytes,
        unnamed=unnamed,
        unknown=sent - delivery.acknowledged,
        resumed=start,
        error="\n".join(texts) or None,
        # A retry would be refused until a person has decided.
        retryable=error is not None and error.retryable and not delivery.undecided,
        rejections=attempts.unproved_reasons + Counter(reasons),
    )


def _fold_or_error(
    context: PushContext, delivery: Delivery, position: PushPosition | None, origin: PushOrigin
) -> ProtoError | None:
    """Folds what is acknowledged. Returns the error where it could not: the plan is needed until a later push can."""
    try:
        if delivery.is_complete or not delivery.plan.counts_at_end:
            _fold(context, delivery, _folded_rows(delivery.plan, position), origin)
    except (InternalError, StateConflict):
        raise
    except ProtoError as error:
        return error
    return None


def _give_up(context: PushContext, delivery: Delivery, position: PushPosition | None, origin: PushOrigin) -> bool:
    """Gives up a plan that rejected rows have stopped, so that the next push has them as they are by then. What is
    acknowledged is folded.

    Returns False where it has to go on: nobody remembers the rows, some may be there twice, or all were to be sent
    again.
    """
    plan = delivery.plan
    has_replaced = position is None or (delivery.acknowledged > 0 and not plan.activates)
    if would_double(delivery, origin) or (plan.starts_over and not has_replaced):
        return False
    try:
        remember_sent(context, delivery, origin.delivered)
    except (CommitUnknown, StagingError, StateUnavailable, TableError):
        return False
    # A plan without rows takes its place: there is nothing of it to go on with.
    nothing = msgspec.structs.replace(
        plan,
        files=(),
        removal_files=(),
        counts=PlannedCounts(),
        cursor=plan.after,
        snapshot=plan.snapshot_before,
        transform_states=(),
    )
    try:
        context.delivery.store.seal_plan(context.delivery.lease, nothing)
    except StateUnavailable:  # The report has the error of the rows: the push goes on in its plan.
        return False
    _drop_files(context, plan)
    return True


def _goes_on_as_planned(plan: SealedPlan, origin: PushOrigin) -> str:
    if origin.delivered is None and plan.partition is not None:
        command = reset_command(plan.connection, plan.stream)
        return f"The next push goes on with the rows as they were planned. `{command}` forgets all of them."
    option = "--full" if origin.delivered is None else "--retry-rejected"
    return f"A push without {option} goes on with the rows as they were planned."


def _drop_files(context: PushContext, plan: SealedPlan) -> None:
    """Deletes the files of a plan that is over, if they can be deleted: else the next plan's sweep does."""
    try:
        drop_plan(context, plan)
    except StagingError as error:
        context.log.write("WARN", str(error))


def _parts(
    context: PushContext, delivery: Delivery, options: PushOptions, origin: PushOrigin
) -> Callable[[int], Iterator[PlanPart]]:
    """The parts of a plan from a position on, for one process each. Each call is another attempt."""
    plan = delivery.plan
    numbers = generations(plan.first_generation, delivery.attempts)
    rules, skips = _rules(context, plan.stream, options), context.delivery.connection.on_error == "skip"

    def parts(start: int) -> Iterator[PlanPart]:
        stream = _described(context, plan, options, origin)._replace(generation_id=next(numbers))
        for rows in row_ranges(plan, start, context.delivery.connection.checkpoint_rows):
            ends_version, kept = plan.activates and rows.start >= plan.rows_to_write, ""
            if ends_version and not skips:  # All rows before are proved, and the store has those that were rejected.
                kept = reason_to_keep_removed(context.delivery.store, plan, context.engine.tables.storage)
            starts_over = plan.starts_over and rows.start == 0
            part = stream._replace(starts_over=starts_over, activates=ends_version and not kept)
            yield PlanPart(rows, part, rules._replace(reason_to_keep=kept))

    return parts


def _folded_rows(plan: SealedPlan, position: PushPosition | None) -> int:
    """The rows of a plan that are in the delivered table."""
    return position.rows if position is not None and position.plan_id == plan.plan_id else 0


def _report_of_unread_store(
    context: PushContext, plan: SealedPlan, options: PushOptions, error: StateUnavailable, sent: int
) -> PushedStreamReport:
    """The report where the store does not say how far the destination came: the next push reads it."""
    return msgspec.structs.replace(
        _report_of_plan(plan, options, None),
        status=status_of((error,), sent if plan.mode not in IDEMPOTENT else 0),
        sent=sent,
        unknown=sent,
        error=context.delivery.destination.mask.text(str(error)),
        retryable=error.retryable,
    )


def _described(context: PushContext, plan: SealedPlan, options: PushOptions, origin: PushOrigin) -> PushedStream:
    """The stream as the destination is to see it."""
    protocol, fields = context.delivery.destination.protocol, origin.fields
    if options.mode is PushMode.MIRROR:
        fields = fields.append(pa.field(protocol.deletion_column, pa.timestamp("us", "UTC")))
    keys = options.key or ()
    schema = json_schema(fields, protocol.dialect, keys)
    has_object = bool(offered_operations(context.delivery.destination))
    return PushedStream(
        plan.stream,
        schema,
        options.mode,
        keys,
        has_object=has_object,
        options=options.options,
        columns=stream_columns(fields) if protocol.takes_batches else (),
        cursor=origin.cursor,
        version=plan.version,
    )


def _rules(context: PushContext, stream: StreamId, options: PushOptions) -> RowRules:
    protocol, operations = context.delivery.destination.protocol, offered_operations(context.delivery.destination)
    schema = row_schema_of(protocol, operations, PushedStream(stream, {}, options.mode, options.key or ()))
    omits_nulls = options.nulls == "omit" or (options.nulls is None and protocol.omits_nulls)
    return RowRules(omits_nulls, options.max_rejected, schema=schema)


def _keep_snapshot(context: PushContext, plan: SealedPlan) -> None:
    """Has the table keep the snapshot from which the next push looks for changes, whoever cleans it up."""
    tag = f"airbyte-proto-push-{plan.connection}-{plan.stream}"
    try:
        position = stored_position(context, plan.stream)
        if position is not None and position.snapshot is not None:
            context.engine.planner.keep_snapshot(tag, position.snapshot)
    except (StateUnavailable, TableError) as error:
        # The store is away, or it is somebody's table, which we may only read: once its snapshots expire, all rows are
        # compared. What is delivered counts all the same.
        context.log.write("NOTE", str(error))


def _only_planned(context: PushContext, plan: SealedPlan, options: PushOptions) -> PushedStreamReport:
    samples = samples_of(plan, context.engine.tables.storage, context.request.samples)
    drop_plan(context, plan)
    report = _report_of_plan(plan, options, None)
    return msgspec.structs.replace(report, samples=samples)


def _report_of_plan(plan: SealedPlan, options: PushOptions, table: str | None) -> PushedStreamReport:
    return PushedStreamReport(
        status=SyncStatus.COMPLETE,
        origin=_origin_name(options),
        planned=plan.counts,
        snapshot=_snapshot_id(plan),
        table=table,
        cursor=plan.cursor,
    )


def _snapshot_id(plan: SealedPlan) -> str | None:
    return None if plan.snapshot is None else plan.snapshot.snapshot_id or None


def _origin_name(options: PushOptions) -> str:
    return options.table or "a query"
