"""SQL of the deliveries of pushes.

The caller has begun the transaction and, for changes, checked that the lease holds.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, case, delete, insert, select, update

from dagster_airbyte_proto.checkpoints.deliveries import AcknowledgedRows
from dagster_airbyte_proto.checkpoints.sql.database import Database, insert_of
from dagster_airbyte_proto.checkpoints.sql.schema import deliveries, rejected_rows
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import StateConflict
from dagster_airbyte_proto.loads.push import Delivery, RejectedRow, SealedPlan
from dagster_airbyte_proto.model import IDEMPOTENT, PushMode, StreamId

_PLAN = msgspec.json.Decoder(SealedPlan)


class DeliveryReader:
    """The part of the SQL store that reads deliveries."""

    _database: Database

    def deliveries(self, connection: str) -> Mapping[StreamId, Delivery]:
        with self._database.read() as tx:
            return stored(tx, connection)

    def rejected_rows(self, plan: SealedPlan) -> Sequence[RejectedRow]:
        with self._database.read() as tx:
            return rejects(tx, plan)


def seal(tx: Connection, lease: Lease, plan: SealedPlan, now: datetime) -> None:
    key = _key(plan)
    for table in (rejected_rows, deliveries):
        tx.execute(delete(table).where(*(table.c[name] == part for name, part in key.items())))
    body = msgspec.json.encode(plan).decode()
    counts = {"announced": 0, "acknowledged": 0, "attempts": 0}
    values = {"plan_id": plan.plan_id, "body": body, "run_id": lease.run_id, "changed_at": now, **counts}
    tx.execute(insert(deliveries).values(**key, **values))


def forget(tx: Connection, connection: str, streams: Collection[StreamId | None]) -> None:
    """Forgets the plans of streams whose state a person has changed. None stands for all of the connection's."""
    for table in (rejected_rows, deliveries):
        here = table.c.connection == connection
        for stream in streams:
            of_stream = []
            if stream is not None:
                of_stream = [table.c.namespace == (stream.namespace or ""), table.c.stream == stream.name]
            tx.execute(delete(table).where(here, *of_stream))


def stored(tx: Connection, connection: str) -> Mapping[StreamId, Delivery]:
    found = {}
    for row in tx.execute(select(deliveries).where(deliveries.c.connection == connection)):
        plan = _PLAN.decode(row.body)
        found[plan.stream] = Delivery(plan, row.announced, row.acknowledged, row.attempts)
    return found


def begin(tx: Connection, plan: SealedPlan, position: int, now: datetime) -> None:
    announced: int | ColumnElement[int] = position
    if plan.mode not in IDEMPOTENT or plan.mode is PushMode.MIRROR:
        # What was announced may be there, whatever becomes of this attempt: nobody sends it twice, or it is removed.
        announced = case((deliveries.c.announced > position, deliveries.c.announced), else_=position)
    set_back = {"announced": announced, "acknowledged": position, "attempts": deliveries.c.attempts + 1}
    _update(tx, plan, now, set_back)
    after = rejected_rows.c.row_number >= position
    tx.execute(delete(rejected_rows).where(*_of_plan(plan), after))


def announce(tx: Connection, plan: SealedPlan, rows: int, now: datetime) -> None:
    _update(tx, plan, now, {"announced": rows}, deliveries.c.announced <= rows)


def acknowledge(tx: Connection, plan: SealedPlan, acknowledged: AcknowledgedRows, now: datetime) -> None:
    rows, rejected, _ = acknowledged
    _update(tx, plan, now, {"acknowledged": rows}, deliveries.c.acknowledged <= rows)
    if rejected:
        # PostgreSQL has no text with NUL, and a reason is what a destination wrote.
        reasons = {each.row: each.reason.replace("\0", "\N{REPLACEMENT CHARACTER}") for each in rejected}
        values = [{**_key(plan), "row_number": row, "reason": reason} for row, reason in reasons.items()]
        new = insert_of(tx, rejected_rows)
        key = [*rejected_rows.primary_key]
        # A statement a row: one for all of them would have more parameters than a database takes.
        tx.execute(new.on_conflict_do_update(index_elements=key, set_={"reason": new.excluded.reason}), values)


def rejects(tx: Connection, plan: SealedPlan) -> list[RejectedRow]:
    query = select(rejected_rows).where(*_of_plan(plan)).order_by(rejected_rows.c.row_number)
    return [RejectedRow(row.row_number, row.reason) for row in tx.execute(query)]


def _update(
    tx: Connection, plan: SealedPlan, now: datetime, values: Mapping[str, Any], *conditions: ColumnElement[bool]
) -> None:
    here = (*(deliveries.c[name] == part for name, part in _key(plan).items()), deliveries.c.plan_id == plan.plan_id)
    # A position only grows, and a call may come again: its outcome may have been unknown.
    tx.execute(update(deliveries).where(*here, *conditions).values(changed_at=now, **values))
    if tx.scalar(select(deliveries.c.plan_id).where(*here)) is None:
        raise StateConflict(
            f"delivering plan {plan.plan_id}", "another plan has taken its place", stream=str(plan.stream)
        )


def _key(plan: SealedPlan) -> dict[str, str]:
    return {"connection": plan.connection, "namespace": plan.stream.namespace or "", "stream": plan.stream.name}


def _of_plan(plan: SealedPlan) -> list[ColumnElement[bool]]:
    return [rejected_rows.c[name] == part for name, part in _key(plan).items()]
