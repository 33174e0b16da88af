"""SQL of the deliveries of pushes, and of the records that destinations of relays rejected.

The caller has begun the transaction and, for changes, checked that the lease holds.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, bindparam, case, delete, func, insert, select, update

from dagster_airbyte_proto.checkpoints.deliveries import (
    LONGEST_KEPT_REASON,
    MOST_KEPT_BYTES,
    MOST_KEPT_REJECTIONS,
    MOST_REASONS,
    OTHER_REASONS,
    PERHAPS_TAKEN,
    AcknowledgedRows,
    KeptRejection,
    RejectedContent,
)
from dagster_airbyte_proto.checkpoints.sql.database import Database, insert_of
from dagster_airbyte_proto.checkpoints.sql.schema import deliveries, kept_rejections, rejected_rows
from dagster_airbyte_proto.checkpoints.sql.states import stream_columns
from dagster_airbyte_proto.checkpoints.store import Lease, LoggedLoad
from dagster_airbyte_proto.errors import StateConflict
from dagster_airbyte_proto.loads.load import Load
from dagster_airbyte_proto.loads.push import Delivery, RejectedRow, SealedPlan
from dagster_airbyte_proto.model import IDEMPOTENT, PushMode, StreamId

_NEWEST_LAST = (kept_rejections.c.number, kept_rejections.c.row_number)
_PLAN = msgspec.json.Decoder(SealedPlan)
# Before the text of a record that JSON has no form for, and before one that may be there. No record begins so.
_FOR_PEOPLE = b"\0"
_MAY_BE_THERE = b"\1"


class DeliveryReader:
    """The part of the SQL store that reads deliveries."""

    _database: Database

    def deliveries(self, connection: str, stream: StreamId | None = None) -> Mapping[StreamId, Delivery]:
        with self._database.read() as tx:
            return stored(tx, connection, stream)

    def rejected_rows(self, plan: SealedPlan, *, start: int = 0, limit: int | None = None) -> Sequence[RejectedRow]:
        with self._database.read() as tx:
            return rejected_of(tx, plan, start, limit)

    def rejection_reasons(self, plan: SealedPlan, *, start: int = 0, end: int | None = None) -> Mapping[str, int]:
        with self._database.read() as tx:
            return reasons_of(tx, plan, start, end)


class RejectionKeeper(ABC):
    """The part of the SQL store that has the rejected records of relays."""

    _database: Database

    @abstractmethod
    def _fenced(self, lease: Lease) -> AbstractContextManager[Connection]: ...

    def keep_rejections(self, lease: Lease, plan: SealedPlan, rejections: Sequence[RejectedContent]) -> None:
        with self._fenced(lease) as tx:
            _replace_rejections(tx, plan, rejections, self._database.now(tx))

    def keeps_rejections(self, plan: SealedPlan) -> bool:
        here = *_of_stream(plan.connection, plan.stream), kept_rejections.c.load_id == plan.plan_id
        with self._database.read() as tx:
            return tx.scalar(select(kept_rejections.c.number).where(*here).limit(1)) is not None

    def kept_rejections(self, connection: str, stream: StreamId | None = None) -> Sequence[KeptRejection]:
        here = [kept_rejections.c.connection == connection] if stream is None else _of_stream(connection, stream)
        names = kept_rejections.c.namespace, kept_rejections.c.stream
        with self._database.read() as tx:
            rows = tx.execute(select(kept_rejections).where(*here).order_by(*names, *_NEWEST_LAST))
            return [_kept(row) for row in rows]

    def kept_counts(self, connection: str) -> Mapping[StreamId, int]:
        here = kept_rejections.c.connection == connection
        names = kept_rejections.c.namespace, kept_rejections.c.stream
        counted = select(*names, func.count()).where(here).group_by(*names).order_by(*names)
        with self._database.read() as tx:
            return {StreamId.of(stream, namespace): rows for namespace, stream, rows in tx.execute(counted)}

    def forget_rejections(self, lease: Lease, rejections: Sequence[KeptRejection]) -> None:
        with self._fenced(lease) as tx:
            for each in rejections:
                here = *_of_stream(lease.connection, each.stream), kept_rejections.c.load_id == each.load_id
                tx.execute(delete(kept_rejections).where(*here, kept_rejections.c.row_number == each.row.row))


def _kept(row: Row[Any]) -> KeptRejection:
    record = None if row.record is None else bytes(row.record)
    return KeptRejection(
        StreamId.of(row.stream, row.namespace),
        row.load_id,
        RejectedRow(row.row_number, row.reason),
        None if record is None else record.removeprefix(_FOR_PEOPLE).removeprefix(_MAY_BE_THERE).decode(),
        row.kept_at,
        sendable=record is not None and not record.startswith(_FOR_PEOPLE),
        may_be_there=record is not None and record.startswith(_MAY_BE_THERE),
    )


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
                of_stream = [table.c[name] == value for name, value in stream_columns(stream).items()]
            tx.execute(delete(table).where(here, *of_stream))


def forget_idempotent(tx: Connection, connection: str, streams: Collection[StreamId | None]) -> None:
    """Forgets the plans of streams whose kept values a person has rolled back: a plan that goes on would not send again
    the rows that these are about. Where rows may not be sent again, the plan stays: nothing else remembers them."""
    planned = {stream: each.plan for stream, each in stored(tx, connection).items() if stream in streams}
    forget(tx, connection, [stream for stream, plan in planned.items() if plan.mode in IDEMPOTENT])


def stored(tx: Connection, connection: str, stream: StreamId | None = None) -> Mapping[StreamId, Delivery]:
    here = [deliveries.c.connection == connection]
    if stream is not None:
        here += [deliveries.c[name] == value for name, value in stream_columns(stream).items()]
    found = {}
    for row in tx.execute(select(deliveries).where(*here)):
        plan = _PLAN.decode(row.body)
        found[plan.stream] = Delivery(plan, row.announced, row.acknowledged, row.attempts)
    return found


def begin(tx: Connection, plan: SealedPlan, position: int, now: datetime) -> None:
    announced: int | ColumnElement[int] = position
    if plan.mode is not PushMode.OVERWRITE:
        # What was announced may be there, whatever becomes of this attempt. It is not sent twice unasked, or it is sent
        # again once the plan is given up.
        announced = case((deliveries.c.announced > position, deliveries.c.announced), else_=position)
    set_back = {"announced": announced, "acknowledged": position, "attempts": deliveries.c.attempts + 1}
    _update(tx, plan, now, set_back)
    after = rejected_rows.c.row_number >= position
    tx.execute(delete(rejected_rows).where(*_of_plan(plan), after))


def announce(tx: Connection, plan: SealedPlan, rows: int, now: datetime) -> None:
    _update(tx, plan, now, {"announced": rows}, deliveries.c.announced <= rows)


def acknowledge(tx: Connection, plan: SealedPlan, acknowledged: AcknowledgedRows, now: datetime) -> None:
    rows, rejected = acknowledged.rows, acknowledged.rejected
    # Those before it are ended already: a call that comes again finds none to end.
    start = tx.scalar(select(deliveries.c.acknowledged).where(*_of_delivery(plan))) or 0
    _update(tx, plan, now, {"acknowledged": rows}, deliveries.c.acknowledged <= rows)
    if rejected:
        reasons = {each.row: stored_reason(each.reason) for each in rejected}
        values = [{**_key(plan), "row_number": row, "reason": reason} for row, reason in reasons.items()]
        new = insert_of(tx, rejected_rows)
        key = [*rejected_rows.primary_key]
        # A statement a row: one for all of them would have more parameters than a database takes.
        tx.execute(new.on_conflict_do_update(index_elements=key, set_={"reason": new.excluded.reason}), values)
    if plan.resends:
        _end_resent(tx, plan, start, acknowledged, now)


def stored_reason(reason: str) -> str:
    """A reason as it can be stored: PostgreSQL has no text with NUL, and a reason is what a destination wrote."""
    return reason.replace("\0", "\N{REPLACEMENT CHARACTER}")


def rejected_of(tx: Connection, plan: SealedPlan, start: int, limit: int | None) -> list[RejectedRow]:
    number = rejected_rows.c.row_number
    query = select(rejected_rows).where(*_of_plan(plan), number >= start).order_by(number).limit(limit)
    return [RejectedRow(row.row_number, row.reason) for row in tx.execute(query)]


def reasons_of(tx: Connection, plan: SealedPlan, start: int, end: int | None) -> dict[str, int]:
    number, reason, count = rejected_rows.c.row_number, rejected_rows.c.reason, func.count()
    here = [*_of_plan(plan), number >= start, *(() if end is None else (number < end,))]
    most = select(reason, count).where(*here).group_by(reason).order_by(count.desc(), reason).limit(MOST_REASONS)
    found: dict[str, int] = {str(row[0]): int(row[1]) for row in tx.execute(most)}
    if len(found) == MOST_REASONS:
        rows = tx.scalar(select(count).select_from(rejected_rows).where(*here)) or 0
        found[OTHER_REASONS] = rows - sum(found.values())
    return {text: rows for text, rows in found.items() if rows}


def _update(
    tx: Connection, plan: SealedPlan, now: datetime, values: Mapping[str, Any], *conditions: ColumnElement[bool]
) -> None:
    here = _of_delivery(plan)
    # A position only grows, and a call may come again: its outcome may have been unknown.
    tx.execute(update(deliveries).where(*here, *conditions).values(changed_at=now, **values))
    if tx.scalar(select(deliveries.c.plan_id).where(*here)) is None:
        raise StateConflict(
            f"delivering plan {plan.plan_id}", "another plan has taken its place", stream=str(plan.stream)
        )


def _of_delivery(plan: SealedPlan) -> list[ColumnElement[bool]]:
    of_plan = deliveries.c.plan_id == plan.plan_id
    return [*(deliveries.c[name] == part for name, part in _key(plan).items()), of_plan]


def _key(plan: SealedPlan) -> dict[str, str]:
    return {"connection": plan.connection, **stream_columns(plan.stream)}


def _of_plan(plan: SealedPlan) -> list[ColumnElement[bool]]:
    return [rejected_rows.c[name] == part for name, part in _key(plan).items()]


def take_over_rejections(tx: Connection, load: Load) -> None:
    """Keeps the records that a load sends again in its name: their rows are those of its plan.

    A load that is announced again finds none left to take over.
    """
    for part in load.parts:
        if not part.resends:
            continue
        here = _of_stream(load.connection, part.stream)
        rows = [(load_id, row) for load_id, rows in part.resends.items() for row in rows]
        moved = update(kept_rejections).where(
            *here,
            kept_rejections.c.load_id == bindparam("of_load"),
            kept_rejections.c.row_number == bindparam("of_row"),
        )
        values = {"number": _next_number(tx, here), "load_id": load.load_id, "row_number": bindparam("place")}
        places = [{"of_load": load_id, "of_row": row, "place": place} for place, (load_id, row) in enumerate(rows)]
        tx.execute(moved.values(values), places)


def _end_resent(tx: Connection, plan: SealedPlan, start: int, acknowledged: AcknowledgedRows, now: datetime) -> None:
    """Forgets the records behind `start` that a destination has taken now, and gives those that it rejected again their
    new reason. Where it took some of them and does not say which, all stay."""
    here = *_of_stream(plan.connection, plan.stream), kept_rejections.c.load_id == plan.plan_id
    if acknowledged.rejected:
        again = update(kept_rejections).where(*here, kept_rejections.c.row_number == bindparam("of_row"))
        reasons = [
            {"of_row": row, "why": stored_reason(reason[:LONGEST_KEPT_REASON])} for row, reason in acknowledged.rejected
        ]
        tx.execute(again.values(reason=bindparam("why"), kept_at=now), reasons)
    number = kept_rejections.c.row_number
    unnamed = *here, number.not_in(select(rejected_rows.c.row_number).where(*_of_plan(plan)))
    for begin, end in (*acknowledged.unsure, (acknowledged.rows, acknowledged.rows)):
        tx.execute(delete(kept_rejections).where(*unnamed, number >= start, number < begin))
        unsure = *unnamed, number >= begin, number < end
        tx.execute(update(kept_rejections).where(*unsure).values(reason=PERHAPS_TAKEN, kept_at=now))
        if plan.mode not in IDEMPOTENT:
            _mark_as_perhaps_there(tx, unsure)
        start = end


def _mark_as_perhaps_there(tx: Connection, here: Sequence[ColumnElement[bool]]) -> None:
    number = kept_rejections.c.row_number
    for row in tx.execute(select(number, kept_rejections.c.record).where(*here)).all():
        record = bytes(row.record or b"")
        if record and not record.startswith(_MAY_BE_THERE):
            marked = update(kept_rejections).where(*here, number == row.row_number)
            tx.execute(marked.values(record=_MAY_BE_THERE + record))


def end_rejections(tx: Connection, ended: LoggedLoad, *, as_landed: bool) -> None:
    """Ends what is kept of a load by the word of a person. The records of one that is lost come again, but for those of
    streams that have landed. Those that a load was to send again are at the destination if it has landed, as far as it
    came to them; else they stay."""
    landed = {each.stream for each in ended.committed}
    for part in ended.load.parts:
        here = *_of_stream(ended.load.connection, part.stream), kept_rejections.c.load_id == ended.load.load_id
        if part.resends and as_landed:
            delivery = stored(tx, ended.load.connection, part.stream).get(part.stream)
            if delivery is not None and delivery.plan.plan_id == ended.load.load_id:
                landed_rows = AcknowledgedRows(delivery.announced)
                _end_resent(tx, delivery.plan, delivery.acknowledged, landed_rows, ended.announced_at)
        elif not part.resends and not as_landed and part.stream not in landed:
            tx.execute(delete(kept_rejections).where(*here))


def prune_rejections(tx: Connection, connection: str, before: datetime) -> None:
    """Forgets the records from before a time."""
    here = kept_rejections.c.connection == connection
    tx.execute(delete(kept_rejections).where(here, kept_rejections.c.kept_at < before))


def _replace_rejections(tx: Connection, plan: SealedPlan, rejections: Sequence[RejectedContent], now: datetime) -> None:
    here = _of_stream(plan.connection, plan.stream)
    of_load = () if plan.mode is PushMode.OVERWRITE else (kept_rejections.c.load_id == plan.plan_id,)
    tx.execute(delete(kept_rejections).where(*here, *of_load))
    if not rejections:
        return
    values = [
        {
            "row_number": row.row,
            "reason": stored_reason(row.reason[:LONGEST_KEPT_REASON]),
            "record": None if record is None else (b"" if sendable else _FOR_PEOPLE) + record.encode(errors="replace"),
        }
        for row, record, sendable in rejections
    ]
    common = {**_key(plan), "number": _next_number(tx, here), "load_id": plan.plan_id, "kept_at": now}
    tx.execute(insert(kept_rejections), [{**common, **each} for each in values])
    _forget_oldest(tx, plan)


def _next_number(tx: Connection, here: Sequence[ColumnElement[bool]]) -> int:
    return (tx.scalar(select(func.max(kept_rejections.c.number)).where(*here)) or 0) + 1


def _forget_oldest(tx: Connection, plan: SealedPlan) -> None:
    """Forgets the oldest records of a stream which has more than are kept."""
    here = _of_stream(plan.connection, plan.stream)
    size = func.coalesce(func.length(kept_rejections.c.record), 0)
    newest_first = [column.desc() for column in _NEWEST_LAST]
    bytes_so_far = 0
    for place, row in enumerate(tx.execute(select(*_NEWEST_LAST, size).where(*here).order_by(*newest_first)).all()):
        bytes_so_far += row[2]
        if place >= MOST_KEPT_REJECTIONS or bytes_so_far > MOST_KEPT_BYTES:
            older = kept_rejections.c.number < row.number
            same = (kept_rejections.c.number == row.number) & (kept_rejections.c.row_number <= row.row_number)
            tx.execute(delete(kept_rejections).where(*here, older | same))
            return


def _of_stream(connection: str, stream: StreamId) -> tuple[ColumnElement[bool], ...]:
    here = {"connection": connection, **stream_columns(stream)}
    return tuple(kept_rejections.c[name] == value for name, value in here.items())
