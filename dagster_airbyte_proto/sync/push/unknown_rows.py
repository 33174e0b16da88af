"""The rows of a push of which nobody knows whether the destination has them: those that were sent and not acknowledged.

In a mode in which a row that is sent twice stands there twice, the next push stops, and a person decides. They may look
at the rows, say how many of them are there, from the first one on, and have the others sent again.
"""

from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.deliveries import AcknowledgedRows
from dagster_airbyte_proto.checkpoints.slot import partition_option
from dagster_airbyte_proto.encoding.sendable import readable_row
from dagster_airbyte_proto.errors import ConfigError, StateUnavailable
from dagster_airbyte_proto.loads.plan_query import OWN_COLUMNS
from dagster_airbyte_proto.loads.push import Delivery, RejectedRow
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.push.content.stream_encoder import StreamEncoder
from dagster_airbyte_proto.sync.push.plan.plan_rows import plan_batches
from dagster_airbyte_proto.sync.push.push_context import PushContext


class UnknownRow(NamedTuple):
    """A row for people to look at. Its `number` is its place among the unknown rows, from 1 on."""

    number: int
    values: str
    is_removal: bool


def unknown_rows(delivery: Delivery, storage: Storage, limit: int) -> list[UnknownRow]:
    """Returns the first unknown rows of a plan. Raises StagingError where its files are gone."""
    start, found = delivery.acknowledged, []
    for batch in plan_batches(delivery.plan, storage, start, min(delivery.announced, start + limit)):
        rows = batch.rows.select([name for name in batch.rows.schema.names if name not in OWN_COLUMNS])
        for place in range(rows.num_rows):
            number = batch.start + place - start + 1
            found.append(UnknownRow(number, readable_row(rows.slice(place, 1)), batch.is_removal))
    return found


def check_decided(context: PushContext, delivery: Delivery) -> None:
    """Raises ConfigError where rows may be at the destination, and nobody has said what is to become of them."""
    if delivery.undecided and not context.request.decides_unknown:
        raise ConfigError(
            f"going on with the push of connection {delivery.plan.connection}",
            _undecided(delivery),
            remedy=_ways_out(delivery, is_full=context.request.is_full),
            stream=str(delivery.plan.stream),
        )


def how_to_decide(delivery: Delivery) -> str:
    """Says that a person has to decide on rows of a push, and how."""
    return f"{_undecided(delivery)}. {_ways_out(delivery)}"


def _undecided(delivery: Delivery) -> str:
    return (
        f"{delivery.undecided:,} rows were sent and not acknowledged, and in mode {delivery.plan.mode} a row that is"
        " sent twice may be there twice"
    )


def _ways_out(delivery: Delivery, *, is_full: bool = False) -> str:
    # All rows are sent again because nothing remembers them any more: only both options together lead out of that.
    name, full = delivery.plan.connection, "--full " if is_full else ""
    return (
        f"Look at the destination: `airbyte-proto push unknown {name}` lists these rows, in the order of sending."
        f" Then run `airbyte-proto push {name} {full}--retry-unknown`, which sends all of them again; or, if the first"
        f" N are there, `{full}--unknown-landed N/{delivery.undecided}` in its place.{_of_partition(delivery)}"
    )


def take_landed(context: PushContext, delivery: Delivery, encoder: StreamEncoder) -> Delivery:
    """Takes the first unknown rows for acknowledged, as many as the request says. Returns the delivery after that.

    Raises ConfigError if other rows are unknown by now than those that a person has seen: the word is not about them.
    """
    plan, word = delivery.plan, context.request.unknown_landed
    if word is None:
        return delivery
    if word.of != delivery.undecided:
        raise ConfigError(
            f"going on with the push of connection {plan.connection}",
            f"{word.landed:,} of {word.of:,} unknown rows are said to have landed, and {delivery.undecided:,} are"
            " unknown",
            remedy=f"Look again: `airbyte-proto push unknown {plan.connection}`.",
            stream=str(plan.stream),
        )
    if not word.landed:
        return delivery
    end = delivery.acknowledged + word.landed
    refused = _refused(context, delivery, end, encoder)
    context.delivery.store.acknowledge_rows(context.delivery.lease, plan, AcknowledgedRows(end, refused))
    text = f"{plan.stream}: {word.landed:,} rows that were not acknowledged count as delivered, by the word of a person"
    context.delivery.destination.note(text)
    return context.delivery.store.deliveries(plan.connection, plan.stream)[plan.stream]


def _of_partition(delivery: Delivery) -> str:
    return (
        ""
        if delivery.plan.partition is None
        else f" They are of `{partition_option(delivery.plan.partition).strip()}`."
    )


def _refused(context: PushContext, delivery: Delivery, end: int, encoder: StreamEncoder) -> list[RejectedRow]:
    """The rows that the run before refused to send. It wrote them down only with what was acknowledged."""
    batches = plan_batches(delivery.plan, context.engine.tables.storage, delivery.acknowledged, end)
    return [row for batch in batches for found in encoder.sendable(batch)[1] for row in found]


def rows_left_unknown(context: PushContext, stream: StreamId) -> int:
    """The rows of an earlier push of the stream on which a person has to decide; 0 where the store does not answer."""
    try:
        delivery = context.delivery.store.deliveries(context.delivery.connection.name, stream).get(stream)
    except StateUnavailable:
        return 0
    return delivery.undecided if delivery is not None else 0


def warn_of_unfinished(context: PushContext, delivery: Delivery) -> None:
    """Says that a plan which is shown comes only after the rest of an earlier one."""
    left = delivery.plan.rows - delivery.acknowledged
    if left > 0:
        text = f"{delivery.plan.stream}: {left:,} rows of an earlier push are left, and go first where it goes on"
        if delivery.undecided:
            text += f"; {delivery.undecided:,} of them were sent and not acknowledged: the next push asks what to do"
        context.delivery.destination.warn(text)
