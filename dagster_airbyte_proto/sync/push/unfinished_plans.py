"""Holds what earlier pushes have left against the next one: their plan goes on, is given up, or the push is refused.

- A plan has rows as they were to be sent when it was made. It goes on only if they would be made the same way today: a
  column that is hashed or left out by now must not go in clear.
- What is delivered is at one destination. The rows that it has are missing at any other.
"""

from collections.abc import Mapping

from dagster_airbyte_proto.checkpoints.slot import partition_option
from dagster_airbyte_proto.connection import PushOptions
from dagster_airbyte_proto.connection.stream_names import shell_word
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.program_identity import connector_program, is_same_program
from dagster_airbyte_proto.loads.push import Delivery, SealedPlan
from dagster_airbyte_proto.model import PushMode, StreamId
from dagster_airbyte_proto.sync.push.delivered_table import stored_position
from dagster_airbyte_proto.sync.push.plan.plan_digests import mapping_of, selection_of
from dagster_airbyte_proto.sync.push.planning import PushOrigin
from dagster_airbyte_proto.sync.push.push_context import PushContext, full_command, reset_command


def is_planned_otherwise(plan: SealedPlan, options: PushOptions, origin: PushOrigin) -> bool:
    """True if the rows of a plan would be made otherwise today: by another table or query, mapping, key, transform or
    option, in another mode, or with another form of removals."""
    if plan.fingerprint != origin.query.fingerprint or plan.mode is not options.mode:
        return True
    if bool(plan.version) is not options.removes_by_version:
        return True
    if plan.selection:
        return plan.selection != selection_of(options, origin.query.fields)
    return plan.mapping != mapping_of(origin.query.fields)  # Of an earlier release.


def check_destination(context: PushContext, stream: StreamId, before: str) -> None:
    """Raises ConfigError where the destination is another program than the one that has the rows of `before`, unless
    all rows are to be sent. Of earlier releases nobody knows which one has them."""
    connection, partition = context.delivery.connection, context.request.partition_key
    now = connector_program(connection.connector)
    if not before or is_same_program(before, now) or (context.request.is_full and partition is None):
        return
    reset = reset_command(connection.name, stream)
    full = full_command(connection.name, stream)
    every = f"`{reset}`, then each partition" if partition is not None else f"`{full}`"
    raise ConfigError(
        f"pushing connection {connection.name}",
        f"what it has delivered is at {before}, and its destination is {now} now, where these rows would be missing",
        remedy=f"Send all rows to this one: {every}. Or give this push another `name`, and the other one goes on. If it"
        " is the same destination by another name, put that name as `destination` into the state"
        f" (`airbyte-proto state show {connection.name} {shell_word(stream)}`, and `state set`).",
        stream=str(stream),
    )


def check_mapping(context: PushContext, delivery: Delivery, options: PushOptions, origin: PushOrigin) -> None:
    """Raises ConfigError where the rest of a plan is of another mapping, and nobody remembers what was sent. A
    replacement sends all its rows again anyway."""
    plan = delivery.plan
    replaces = plan.mode is PushMode.OVERWRITE and options.mode is PushMode.OVERWRITE
    if delivery.is_complete or context.request.is_full or replaces or origin.delivered is not None:
        return
    if is_planned_otherwise(plan, options, origin):
        raise ConfigError(
            f"going on with the push of connection {plan.connection}",
            "its table or query, mapping or mode was changed with"
            f" {plan.rows - delivery.acknowledged:,} rows of a plan left to send",
            remedy="Push once more with all as they were, or send all rows again:"
            f" `{full_command(plan.connection, plan.stream)}`.",
            stream=str(plan.stream),
        )


def check_other_partition(context: PushContext, delivery: Delivery, origin: PushOrigin) -> None:
    """Raises ConfigError where the plan of another partition is unfinished, and giving it up would send rows twice."""
    plan = delivery.plan
    is_elsewhere = plan.partition != context.request.partition_key
    may_double = would_double(delivery, origin)
    if is_elsewhere and may_double and not delivery.is_complete and not context.request.is_full:
        unsure = f", and {delivery.unknown:,} of them may be there already" if delivery.unknown else ""
        option = "without --partition" if plan.partition is None else f"with{partition_option(plan.partition)}"
        raise ConfigError(
            f"going on with the push of connection {plan.connection}",
            f"{plan.rows - delivery.acknowledged:,} rows of a push {option} are left to send{unsure}",
            remedy="Push these to their end first; or forget all that was sent by"
            f" `{reset_command(plan.connection, plan.stream)}`.",
            stream=str(plan.stream),
        )


def rejections_before(context: PushContext, stream: StreamId) -> Mapping[str, int]:
    """Returns why rows of the last plan were rejected, if no push has brought that plan to its end, and this one does:
    its own report is about the rows behind them. To be called before it delivers anything."""
    delivery = context.delivery.store.deliveries(context.delivery.connection.name, stream).get(stream)
    request = context.request
    if delivery is None or request.is_full or request.retries_rejected or request.only_plans:
        return {}
    plan, position = delivery.plan, stored_position(context, stream)
    is_ended = position is not None and position.plan_id == plan.plan_id and position.is_end
    starts_over = plan.mode is PushMode.OVERWRITE and not delivery.is_complete
    if is_ended or starts_over or plan.partition != request.partition_key:
        return {}
    return context.delivery.store.rejection_reasons(plan, end=delivery.acknowledged)


def would_double(delivery: Delivery, origin: PushOrigin) -> bool:
    """True where a plan that is given up would send rows twice: nobody remembers what was acknowledged, or it is not
    known of others whether they are there."""
    is_forgotten = origin.delivered is None and delivery.acknowledged > 0
    return is_forgotten or delivery.undecided > 0
