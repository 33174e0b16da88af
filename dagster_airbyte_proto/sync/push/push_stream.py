"""Pushes one stream: goes on with the plan of an earlier run or makes a new one, delivers it, and folds it."""

from collections.abc import Iterator

from dagster_airbyte_proto.connection import PushOptions
from dagster_airbyte_proto.errors import (
    Cancelled,
    ConfigError,
    ConnectorError,
    InternalError,
    ProtoError,
    StateConflict,
)
from dagster_airbyte_proto.loads.push import Delivery as StoredDelivery
from dagster_airbyte_proto.loads.push import PushPosition, SealedPlan
from dagster_airbyte_proto.model import IDEMPOTENT, PushMode, StreamId
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.sync.push.delivered_table import fold, stored_position
from dagster_airbyte_proto.sync.push.delivery import Delivery, Leg
from dagster_airbyte_proto.sync.push.planning import PushOrigin, drop_plan, make_plan, open_origin, samples_of
from dagster_airbyte_proto.sync.push.push_context import PushContext
from dagster_airbyte_proto.sync.push.report import PushedStreamReport
from dagster_airbyte_proto.sync.report import SyncStatus

_ATTEMPTS = 3
_WAIT_SECONDS = (2.0, 6.0)


def push_stream(context: PushContext, stream: StreamId, options: PushOptions) -> PushedStreamReport:
    """Pushes one stream and returns its report. Raises ProtoError for what goes wrong before its delivery."""
    origin = open_origin(context, stream, options)
    delivery = context.store.deliveries(context.connection.name).get(stream)
    position = stored_position(context, stream)
    if delivery is not None and not context.request.only_plans:
        position, delivery = _take_up(context, delivery, position, origin)
    if delivery is not None and not context.request.only_plans:
        return _delivered(context, delivery.plan, options, origin)
    plan = make_plan(context, stream, options, origin, position)
    if context.request.only_plans:
        return _only_planned(context, plan, options)
    if plan.rows or plan.starts_over or plan.mode is PushMode.OVERWRITE:
        context.store.seal_plan(context.lease, plan)
        reach("push.sealed")
        return _delivered(context, plan, options, origin)
    drop_plan(context, plan)
    return _report(plan, options, SyncStatus.COMPLETE, origin)


def _take_up(
    context: PushContext, delivery: StoredDelivery, position: PushPosition | None, origin: PushOrigin
) -> tuple[PushPosition | None, StoredDelivery | None]:
    """Folds what an earlier run had acknowledged. Returns the position then, and the delivery if it is to go on.

    A plan of another mapping, key or mode is given up where it stands: the next one finds the rows that it had left.
    (Whoever changes the state by hand has the store forget the plan.)
    """
    plan = delivery.plan
    is_current = position is not None and position.plan_id == plan.plan_id
    folded = position.rows if is_current and position is not None else 0
    if plan.mode is PushMode.OVERWRITE and not delivery.is_complete:
        folded = 0
    elif delivery.acknowledged > folded:
        fold(context, delivery, folded, origin.delivered)
        position = stored_position(context, plan.stream)
    _check_unknown(context, delivery)
    if delivery.is_complete or context.request.is_full or plan.fingerprint != origin.query.fingerprint:
        drop_plan(context, plan)
        return position, None
    return position, delivery


def _check_unknown(context: PushContext, delivery: StoredDelivery) -> None:
    """Raises ConfigError where rows may be at the destination and sending them again might double them."""
    if delivery.unknown and delivery.plan.mode not in IDEMPOTENT and not context.request.retries_unknown:
        raise ConfigError(
            f"going on with the push of connection {delivery.plan.connection}",
            f"{delivery.unknown:,} rows were sent and not acknowledged, and in mode {delivery.plan.mode} a row that is"
            " sent twice may be there twice",
            remedy="Look at the destination. `airbyte-proto push --retry-unknown` sends them again.",
            stream=str(delivery.plan.stream),
        )


def _delivered(context: PushContext, plan: SealedPlan, options: PushOptions, origin: PushOrigin) -> PushedStreamReport:
    """Delivers a sealed plan from where it stands, then folds what is acknowledged."""
    start = _start(context, plan)
    error: ProtoError | None = None
    counts = {"rejected": 0, "unnamed": 0}
    rejections: dict[str, int] = {}
    sent = start
    for attempt in range(_ATTEMPTS):
        error = None
        for leg in _legs(context, plan, _start(context, plan)):
            part = Delivery(context, plan, options, origin.fields, context.engine.tables.storage)
            try:
                part.run(leg)
            except (InternalError, StateConflict):
                raise
            except ProtoError as problem:
                error = problem
            finally:
                sent = max(sent, part.sent)
                counts["rejected"] += part.rejected
                counts["unnamed"] += part.unnamed
                for reason, rows in part.rejections.items():
                    rejections[reason] = rejections.get(reason, 0) + rows
            if error is not None:
                break
        if not _may_retry(context, plan, error, attempt):
            break
    delivery = context.store.deliveries(plan.connection)[plan.stream]
    position = stored_position(context, plan.stream)
    folded = position.rows if position is not None and position.plan_id == plan.plan_id else 0
    if plan.mode is not PushMode.OVERWRITE or delivery.is_complete:
        fold(context, delivery, folded, origin.delivered)
    reach("push.folded")
    if delivery.is_complete:
        drop_plan(context, plan)
    acknowledged = delivery.acknowledged - start
    rejected = sum(each.row >= start for each in context.store.rejected_rows(plan))
    return PushedStreamReport(
        status=_status(error),
        origin=options.table or "a query",
        planned=plan.counts,
        sent=max(sent, delivery.acknowledged) - start,
        acknowledged=acknowledged - rejected - counts["unnamed"],
        rejected=rejected + counts["unnamed"],
        unnamed=counts["unnamed"],
        unknown=max(0, sent - delivery.acknowledged),
        resumed=start,
        snapshot=plan.snapshot,
        error=None if error is None else context.destination.mask.text(str(error)),
        retryable=error is not None and error.retryable,
        rejections=rejections,
        table=origin.delivered.qualified if origin.delivered else None,
    )


def _start(context: PushContext, plan: SealedPlan) -> int:
    """The position to go on from. A replacement starts over: the destination may drop what a broken one left."""
    delivery = context.store.deliveries(plan.connection)[plan.stream]
    return 0 if plan.mode is PushMode.OVERWRITE and not delivery.is_complete else delivery.acknowledged


def _legs(context: PushContext, plan: SealedPlan, start: int) -> Iterator[Leg]:
    """The parts for one process each. Removals get one of their own: all before them has to be proved."""
    step = context.connection.checkpoint_rows or max(1, plan.rows)
    for end in (plan.rows_to_write, plan.rows):
        while start < end:
            yield Leg(start, min(start + step, end))
            start = min(start + step, end)
    if plan.rows == 0 and plan.mode is PushMode.OVERWRITE:
        yield Leg(0, 0)


def _may_retry(context: PushContext, plan: SealedPlan, error: ProtoError | None, attempt: int) -> bool:
    """Whether to try again now: after a transient error, where a row that is sent twice does no harm."""
    if not isinstance(error, ConnectorError) or not error.retryable or plan.mode not in IDEMPOTENT:
        return False
    if attempt + 1 >= _ATTEMPTS:
        return False
    return not context.options.cancel.wait(_WAIT_SECONDS[min(attempt, len(_WAIT_SECONDS) - 1)])


def _status(error: ProtoError | None) -> SyncStatus:
    if error is None:
        return SyncStatus.COMPLETE
    return SyncStatus.CANCELLED if isinstance(error, Cancelled) else SyncStatus.FAILED


def _only_planned(context: PushContext, plan: SealedPlan, options: PushOptions) -> PushedStreamReport:
    samples = samples_of(plan, context.engine.tables.storage, context.request.samples)
    drop_plan(context, plan)
    return PushedStreamReport(
        status=SyncStatus.COMPLETE, origin=options.table or "a query", planned=plan.counts, samples=samples
    )


def _report(plan: SealedPlan, options: PushOptions, status: SyncStatus, origin: PushOrigin) -> PushedStreamReport:
    return PushedStreamReport(
        status=status,
        origin=options.table or "a query",
        planned=plan.counts,
        table=origin.delivered.qualified if origin.delivered else None,
    )
