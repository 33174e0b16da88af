"""Folds what a destination has acknowledged into the delivered table, and moves the state of the stream with it.

Rows go into the table as a load like any other: announced, committed once, and then the state moves.
"""

import secrets
import time
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.encoding.sendable import readable_row
from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.load import FileContent, Load, StagedFile, StagedRows, TransformedStream
from dagster_airbyte_proto.loads.plan_query import CHANGE, HASH, OWN_COLUMNS, PARTITION, RowChange
from dagster_airbyte_proto.loads.push import Delivery, PushPosition, RejectedRow, SealedPlan, push_basis
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import IDEMPOTENT, PushMode, State, WriteMode
from dagster_airbyte_proto.protocols.lookup import PUSH, state_codec_named
from dagster_airbyte_proto.staging.files.parquet_file import OpenFile
from dagster_airbyte_proto.staging.files.staging_folder import (
    StagingFolder,
    create_folder,
    file_name,
    run_staging_folder,
    staging_id,
)
from dagster_airbyte_proto.sync.push.content.refused_rows import RejectedInOrder
from dagster_airbyte_proto.sync.push.delivered_table import (
    DELIVERED,
    REJECTED,
    keys_of,
    stored_position,
    was_pushed,
)
from dagster_airbyte_proto.sync.push.plan.plan_rows import PlanBatch, plan_batches
from dagster_airbyte_proto.sync.push.push_context import PushContext
from dagster_airbyte_proto.transforms.transform import DROPPED

FOLDING: Final = "bringing what is acknowledged into the delivered table"
DROPPED_LATER: Final = f"{DROPPED}, and the destination may have the row of before"
"""The reason of a dropped row that was sent before: once it is gone from the table, it is to be removed there too."""


def fold(context: PushContext, delivery: Delivery, folded: int, target: TableTarget | None) -> int:
    """Brings the rows that were acknowledged since position `folded` into the delivered table, and moves the state.

    Returns the new position. Does nothing if none were, but for an empty plan: one that starts over empties the table,
    and one of changes that are no rows to send moves the state to their snapshot. Raises TableError if a table refuses
    the rows, and CommitUnknown if nobody can tell: the plan is needed until a later run has brought them in.
    """
    plan, end = delivery.plan, delivery.acknowledged
    if end <= folded and not (plan.rows == 0 and (plan.starts_over or plan.moves_snapshot)):
        return folded
    has_rows = end > folded or plan.starts_over
    load = Load(
        load_id=secrets.token_hex(16),
        connection=plan.connection,
        run_id=context.delivery.lease.run_id,
        parts=(_staged(context, plan, folded, end, target),) if target is not None and has_rows else (),
        states=(_position_state(context, plan, end),),
        transformed=_transformed(plan) if end == plan.rows else (),
    )
    outcome = context.committer.commit(load)
    if outcome.refused:
        raise outcome.refused[plan.stream]
    return end


def _transformed(plan: SealedPlan) -> tuple[TransformedStream, ...]:
    """The states of the transforms, which count once all rows of the plan are acknowledged: they are about all."""
    if not plan.transform_states:
        return ()
    return (TransformedStream(plan.stream, plan.generation_id, plan.transform_states, plan.partition or ""),)


def _position_state(context: PushContext, plan: SealedPlan, rows: int) -> State:
    is_end = rows == plan.rows
    snapshot = plan.snapshot if is_end else plan.snapshot_before
    # A removal that was rejected is found again only by comparing all rows: its key is no change of the table any more.
    # So is a row that a cursor has passed over. A plan that compares no keys cannot tell what it did not look for.
    if is_end and (plan.counts.changed is None or _has_kept_removals(context, plan)):
        snapshot = None
    position = PushPosition(
        plan.plan_id,
        rows,
        plan.rows,
        cursor=plan.cursor if is_end else plan.after,
        snapshot=snapshot,
        basis=push_basis(plan.mode, plan.fingerprint, plan.mapping),
        cursor_of=plan.cursor_of,
        resent=_resent(context, plan),
        destination=plan.destination,
        version=plan.version,
    )
    return _as_state(plan, position)


def _as_state(plan: SealedPlan, position: PushPosition) -> State:
    return state_codec_named(PUSH).from_value(plan.stream, msgspec.to_builtins(position))


def _has_kept_removals(context: PushContext, plan: SealedPlan) -> bool:
    return bool(context.delivery.store.rejected_rows(plan, start=plan.rows_to_write, limit=1))


def _resent(context: PushContext, plan: SealedPlan) -> tuple[str, ...] | None:
    """The partitions of a mirror that were pushed since a reset, which forgets the position of all of them."""
    before = stored_position(context, plan.stream)
    if plan.partition is None:
        return None
    if before is None:
        is_again = plan.mode is PushMode.MIRROR and was_pushed(context, plan.stream)
        return (plan.partition,) if is_again else None
    return None if before.resent is None else tuple(sorted({*before.resent, plan.partition}))


def _staged(context: PushContext, plan: SealedPlan, start: int, end: int, target: TableTarget) -> StagedRows:
    """Stages the rows of a plan from one position to another, as one part of a load.

    One that starts over replaces all rows. That of a partition leaves those of the others, if they are to be sent again
    one by one: they say what a mirror has to remove.
    """
    starts_over = plan.starts_over and start == 0
    is_of_all = plan.partition is None
    if not is_of_all and plan.mode is not PushMode.MIRROR:
        is_of_all = stored_position(context, plan.stream) is None
    replaces = starts_over and is_of_all
    files = _FoldFiles(context, plan, target, replaces=replaces)
    rejected = RejectedInOrder(context.delivery.store, plan, start)
    for batch in plan_batches(plan, target.storage, start, end):
        context.interrupts.check(FOLDING, str(plan.stream))
        files.add(batch, rejected.until(batch.end))
    if starts_over and was_pushed(context, plan.stream):
        for batch in plan_batches(plan, target.storage, end, plan.rows):
            context.interrupts.check(FOLDING, str(plan.stream))
            files.leave(batch)
    return _part(plan, files, target, replaces=replaces)


def remember_sent(context: PushContext, delivery: Delivery, target: TableTarget | None) -> None:
    """Notes what the destination may have of a plan, before that plan is given up. Raises as `fold`.

    - A row that was sent and not acknowledged may stand there in the place of the one that was delivered before. So it
      is sent again, also if it is as that one by then; of a mirror it is removed, should it be gone. What a mirror was
      to remove may be gone there, and is sent should it be back.
    - Of a version that is not activated these are all that were sent, and of one that starts over all its rows: the
      destination may show none of them.
    - All rows of a plan that was to send all of them (`--full`), and of which none is acknowledged: they are still to
      be sent, if they are not to be anyway.
    - A snapshot up to which rows were pushed counts no more. If the table is set back to it, nothing has changed since.
    """
    plan = delivery.plan
    position = stored_position(context, plan.stream)
    start = 0 if plan.activates else delivery.acknowledged
    is_unmet = position is not None and plan.partition is None and not context.request.is_full
    is_of_all = plan.starts_over and start == 0 and (plan.activates or is_unmet)
    end = plan.rows if is_of_all else delivery.announced
    # Of the rows of other modes a person decides, if they are not all to be sent.
    if target is None or end <= start or not (is_of_all or plan.mode in IDEMPOTENT):
        return
    files = _FoldFiles(context, plan, target, replaces=False)
    for batch in _readable(context, plan_batches(plan, target.storage, start, end)):
        files.leave(batch)
    part = _part(plan, files, target, replaces=False)
    if not part.files:
        return
    states: tuple[State, ...] = ()
    if position is not None and position.snapshot is not None:
        states = (_as_state(plan, msgspec.structs.replace(position, snapshot=None)),)
    load = Load(secrets.token_hex(16), plan.connection, context.delivery.lease.run_id, (part,), states)
    outcome = context.committer.commit(load)
    if outcome.refused:
        raise outcome.refused[plan.stream]


def _readable(context: PushContext, batches: Iterable[PlanBatch]) -> Iterator[PlanBatch]:
    """Yields the batches up to one that cannot be read: a plan whose files are gone can still be given up."""
    try:
        yield from batches
    except StagingError as error:
        context.log.write("WARN", f"rows that may be at the destination are not known any more: {error.found}")


def _part(plan: SealedPlan, files: "_FoldFiles", target: TableTarget, *, replaces: bool) -> StagedRows:
    return StagedRows(
        stream=plan.stream,
        table=target.name,
        write=WriteMode.OVERWRITE_DEDUP if replaces else WriteMode.APPEND_DEDUP,
        files=files.close(has_deletes=not replaces),
        keys=files.keys,
        emitted=files.rows,
        rows=files.rows,
        deleted=files.removed,
        connection=plan.connection,
        table_id=target.table_id,
        log_position=target.log_position,
    )


class _FoldFiles:
    """The staged files of one fold: a file of rows, and one of the keys whose older rows go."""

    def __init__(self, context: PushContext, plan: SealedPlan, target: TableTarget, *, replaces: bool) -> None:
        self.keys = keys_of(target)
        lease = context.delivery.lease
        uri = run_staging_folder(target, staging_id(lease.run_id, lease.fence))
        context.delivery.store.note_folders(lease, [uri])
        self._folder = StagingFolder.at(uri, target.storage)
        create_folder(self._folder)
        self._target, self._stream, self._suffix = target, str(plan.stream), secrets.token_hex(4)
        self._partition, self._replaces, self._mode = plan.partition, replaces, plan.mode
        # A version that is activated removes the rows that transforms left out.
        self._keeps_dropped = not plan.activates or _has_kept_removals(context, plan)
        self._rows: OpenFile | None = None
        self._deletes: OpenFile | None = None
        self.rows = self.removed = 0

    def add(self, batch: PlanBatch, rejected: dict[int, RejectedRow]) -> None:
        gone = batch.rows
        if batch.is_removal:
            # A removal that was rejected leaves its row: the next plan finds it again.
            refused = _refused_places(batch, rejected)
            if refused:
                if self._replaces:
                    self.keep(batch.rows.take(pa.array(sorted(refused), pa.int64())))
                kept = [place for place in range(batch.rows.num_rows) if place not in refused]
                gone = batch.rows.take(pa.array(kept, pa.int64()))
            self.removed += gone.num_rows
        if gone.num_rows:
            self._delete(gone)
        if not batch.is_removal:
            self._write(self._noted(batch, rejected))

    def leave(self, batch: PlanBatch) -> None:
        """Takes in rows of which nobody knows whether they are at the destination. Should another plan take the place
        of theirs, that has to send them again. Those of a mirror are to be removed once they are gone; so are, in a
        mirror to come, others that were delivered before. Nobody knows of removals whether they are made."""
        if not set(self.keys) <= set(batch.rows.schema.names):
            return  # They are of another key than the table, which was made anew.
        if not self._replaces:
            self._delete(batch.rows)
        kept = batch.rows if self._mode is PushMode.MIRROR else _sent_before(batch.rows)
        if kept.num_rows:
            self.keep(kept)

    def keep(self, keys: pa.RecordBatch) -> None:
        """Keeps rows that the destination still has. Nobody has their hash."""
        count = keys.num_rows
        nothing, delivered = pa.nulls(count, pa.string()), pa.array([DELIVERED] * count, pa.string())
        self._write(self._described(keys, pa.array([0] * count, pa.int64()), delivered, nothing, nothing))

    def _delete(self, rows: pa.RecordBatch) -> None:
        if self._deletes is None:
            keys = pa.schema([self._target.schema.field(key) for key in self.keys])
            self._deletes = self._open("keys", keys, FileContent.EQUALITY_DELETES)
        self._deletes.write(rows.select(self.keys))

    def _write(self, rows: pa.RecordBatch) -> None:
        if self._rows is None:
            self._rows = self._open("rows", self._target.schema, FileContent.ROWS)
        self._rows.write(rows)
        self.rows += rows.num_rows

    def close(self, *, has_deletes: bool) -> tuple[StagedFile, ...]:
        if not has_deletes and self._deletes is not None:
            self._deletes.discard()
            self._deletes = None
        return tuple(file.close() for file in (self._rows, self._deletes) if file is not None and file.rows)

    def _open(self, kind: str, schema: pa.Schema, content: FileContent) -> OpenFile:
        return OpenFile(self._folder, file_name(kind, self._stream, self._suffix, 1), schema, content)

    def _noted(self, batch: PlanBatch, rejected: dict[int, RejectedRow]) -> pa.RecordBatch:
        """Returns the rows of the delivered table for these rows of the plan."""
        rows, count = batch.rows, batch.rows.num_rows
        payload = rows.select([name for name in rows.schema.names if name not in OWN_COLUMNS])
        reasons: list[str | None] = [None] * count
        texts: list[str | None] = [None] * count
        for place, refused in _refused_places(batch, rejected).items():
            was_sent = rows.column(CHANGE)[place].as_py() == RowChange.CHANGED
            is_there = refused.reason == DROPPED and was_sent and self._keeps_dropped
            reasons[place] = DROPPED_LATER if is_there else refused.reason
            texts[place] = readable_row(payload.slice(place, 1))
        reason = pa.array(reasons, pa.string())
        status = pc.if_else(reason.is_valid(), REJECTED, DELIVERED)
        return self._described(rows, rows.column(HASH), status, reason, pa.array(texts, pa.string()))

    def _described(
        self, rows: pa.RecordBatch, number: pa.Array, status: pa.Array, reason: pa.Array, text: pa.Array
    ) -> pa.RecordBatch:
        columns = {
            **{key: rows.column(key) for key in self.keys},
            HASH: number,
            "_status": status,
            "_reason": reason,
            "_row": text,
            PARTITION: pa.array([self._partition] * rows.num_rows, pa.string()),
            "_pushed_at": pa.array([_now()] * rows.num_rows, pa.timestamp("us", "UTC")),
        }
        return pa.RecordBatch.from_pydict(columns)


def _refused_places(batch: PlanBatch, rejected: dict[int, RejectedRow]) -> dict[int, RejectedRow]:
    """The rejected rows among those of a batch, by their place in it."""
    return {row - batch.start: rejected[row] for row in rejected.keys() & range(batch.start, batch.end)}


def _sent_before(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.filter(pc.equal(rows.column(CHANGE), RowChange.CHANGED.value))


def _now() -> int:
    return time.time_ns() // 1000
