"""Holds the unfinished plan of an earlier push against the request for the next one: it goes on, is given up, or the push
is refused."""

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.push import Delivery, SealedPlan
from dagster_airbyte_proto.sync.push.planning import PushOrigin
from dagster_airbyte_proto.sync.push.push_context import PushContext


def check_mapping(context: PushContext, delivery: Delivery, origin: PushOrigin, *, is_changed: bool) -> None:
    """Raises ConfigError where the rest of a plan is of another mapping, and nobody remembers what was sent."""
    plan = delivery.plan
    if is_changed and not delivery.is_complete and origin.delivered is None and not context.request.is_full:
        raise ConfigError(
            f"going on with the push of connection {plan.connection}",
            f"its mapping or mode was changed with {plan.rows - delivery.acknowledged:,} rows of a plan left to send",
            remedy="Push once more with both as they were, or send all rows again: `airbyte-proto push --full`.",
            stream=str(plan.stream),
        )


def check_other_partition(context: PushContext, delivery: Delivery, origin: PushOrigin) -> None:
    """Raises ConfigError where the plan of another partition is unfinished, and giving it up would send rows twice."""
    plan = delivery.plan
    is_elsewhere = plan.partition != context.request.partition_key
    may_double = would_double(delivery, origin)
    if is_elsewhere and may_double and not delivery.is_complete and not context.request.is_full:
        unsure = f", and {delivery.unknown:,} of them may be there already" if delivery.unknown else ""
        option = "without --partition" if plan.partition is None else f"with --partition {plan.partition}"
        raise ConfigError(
            f"going on with the push of connection {plan.connection}",
            f"{plan.rows - delivery.acknowledged:,} rows of a push {option} are left to send{unsure}",
            remedy=f"Push these to their end first; or forget all that was sent by `{reset_command(plan)}`.",
            stream=str(plan.stream),
        )


def would_double(delivery: Delivery, origin: PushOrigin) -> bool:
    """True where a plan that is given up would send rows twice: nobody remembers what was acknowledged, or it is not
    known of others whether they are there."""
    is_forgotten = origin.delivered is None and delivery.acknowledged > 0
    return is_forgotten or delivery.undecided > 0


def reset_command(plan: SealedPlan) -> str:
    return f"airbyte-proto state reset {plan.connection} {plan.stream}"
