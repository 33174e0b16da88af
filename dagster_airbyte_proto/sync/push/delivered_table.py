"""The delivered table of a pushed stream: what the destination has, by key. It is the memory of the push.

- Each row is a key with the hash of the row that was delivered, or was rejected with a reason. A rejected row is not
  sent again until it changes, or somebody asks for it.
- Rows go into it as a load like any other: announced, committed once, and the state of the stream moves with it. So it
  is recovered, rolled back and repaired as other tables are.
- A push that finds out what is new in another way (`changes: cursor` or `all`) has no such table. Then only its state
  moves.
"""

import secrets
import time
from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.checkpoints.store import NO_LIMIT
from dagster_airbyte_proto.encoding.sendable import readable_row
from dagster_airbyte_proto.errors import ConfigError, SchemaRefused, StagingError, TableError
from dagster_airbyte_proto.loads.load import FileContent, Load, StagedFile, StagedRows, TransformedStream
from dagster_airbyte_proto.loads.plan_query import CHANGE, HASH, OWN_COLUMNS, PARTITION, RowChange
from dagster_airbyte_proto.loads.push import Delivery, PushPosition, RejectedRow, SealedPlan, push_basis
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import MergeMode, PushMode, SchemaPolicy, State, StreamId, TableName, WriteMode
from dagster_airbyte_proto.protocols.lookup import PUSH, state_codec_named
from dagster_airbyte_proto.schema.evolution import EvolutionRules
from dagster_airbyte_proto.staging.files.parquet_file import OpenFile
from dagster_airbyte_proto.staging.files.staging_folder import (
    StagingFolder,
    create_folder,
    file_name,
    run_staging_folder,
)
from dagster_airbyte_proto.sync.commit.table_witness import Remembered, check_witness
from dagster_airbyte_proto.sync.push.content.refused_rows import RejectedInOrder
from dagster_airbyte_proto.sync.push.plan.plan_rows import PlanBatch, plan_batches
from dagster_airbyte_proto.sync.push.push_context import PushContext, full_command
from dagster_airbyte_proto.transforms.transform import DROPPED

NAMESPACE: Final = "_pushes"
DELIVERED, REJECTED = "delivered", "rejected"
FOLDING: Final = "bringing what is acknowledged into the delivered table"
DROPPED_LATER: Final = f"{DROPPED}, and the destination may have the row of before"
"""The reason of a dropped row that was sent before: once it is gone from the table, it is to be removed there too."""
_OWN = (
    pa.field(HASH, pa.int64(), metadata={"comment": "Hash of the row as it was delivered"}),
    pa.field("_status", pa.string(), metadata={"comment": "delivered, or rejected"}),
    pa.field("_reason", pa.string(), metadata={"comment": "Why the row was rejected"}),
    pa.field("_row", pa.string(), metadata={"comment": "The rejected row as JSON"}),
    pa.field(PARTITION, pa.string(), metadata={"comment": "The partition in which the row was delivered last"}),
    pa.field("_pushed_at", pa.timestamp("us", "UTC"), metadata={"comment": "When this was written down"}),
)
_KEY_TYPES = (
    pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_date,
    pa.types.is_timestamp, pa.types.is_binary,
)  # fmt: skip


def delivered_table_name(connection: str, stream: StreamId) -> TableName:
    return TableName(NAMESPACE, f"{connection}__{stream}")


def delivered_spec(connection: str, stream: StreamId, fields: pa.Schema, keys: Sequence[str]) -> TableSpec:
    """Returns the table for these keys. Raises ConfigError for a key of a type that no table can look up."""
    for key in keys:
        kind = fields.field(key).type
        if not any(is_fit(kind) for is_fit in _KEY_TYPES):
            raise ConfigError(
                "preparing the memory of the push",
                f"the key {key} is of type {kind}, by which rows cannot be told apart",
                remedy="Map it to text, a whole number, a decimal, a date or a time.",
                stream=str(stream),
            )
    key_fields = [pa.field(key, fields.field(key).type) for key in keys]
    name = delivered_table_name(connection, stream)
    return TableSpec(
        name,
        pa.schema([*key_fields, *_OWN]),
        tuple(keys),
        comment="What a push has delivered",
        evolution_rules=EvolutionRules(SchemaPolicy.FREEZE),
        merge=MergeMode.ON_READ,
    )


def prepare_delivered_table(context: PushContext, spec: TableSpec, stream: StreamId) -> TableTarget:
    """Creates the table if it is missing, and holds it against what the store remembers of it, unless all rows are to
    be sent again.

    Raises TableError where it remembers rows by another key.
    """
    tables, lease = context.engine.tables, context.delivery.lease
    try:
        target = tables.prepare(spec)
    except SchemaRefused as error:
        raise _other_key(context, spec, stream) from error
    if set(_keys_of(target)) != set(spec.keys):
        raise _other_key(context, spec, stream)
    if not context.request.is_full:
        store, witness = context.delivery.store, tables.witness(spec.name, lease.connection)
        remedy = (
            f"Send all rows again: `{full_command(lease.connection, stream)}`; partitions after"
            f" `airbyte-proto state reset {lease.connection} {stream}`."
        )
        remembered = Remembered(store.landed_tables(lease.connection).get(stream), remedy=remedy)
        check_witness(store, lease, stream, witness, remembered)
    return target


def _keys_of(target: TableTarget) -> tuple[str, ...]:
    own = {field.name for field in _OWN}
    return tuple(name for name in target.schema.names if name not in own)


def _other_key(context: PushContext, spec: TableSpec, stream: StreamId) -> TableError:
    return TableError(
        f"preparing the memory of the push, table {spec.name}",
        f"it remembers rows by another key, or its key has another type than {', '.join(spec.keys)} has now",
        remedy="Use the key as it was; or drop the table and run `airbyte-proto state reset"
        f" {context.delivery.connection.name} {stream}`: then all rows are sent again.",
        stream=str(stream),
    )


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
    if is_end and _has_kept_removals(context, plan):
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
    return state_codec_named(PUSH).from_value(plan.stream, msgspec.to_builtins(position))


def _has_kept_removals(context: PushContext, plan: SealedPlan) -> bool:
    return bool(context.delivery.store.rejected_rows(plan, start=plan.rows_to_write, limit=1))


def _resent(context: PushContext, plan: SealedPlan) -> tuple[str, ...] | None:
    """The partitions of a mirror that were pushed since a reset, which forgets the position of all of them."""
    before = stored_position(context, plan.stream)
    if plan.partition is None:
        return None
    if before is None:
        is_again = plan.mode is PushMode.MIRROR and _was_pushed(context, plan.stream)
        return (plan.partition,) if is_again else None
    return None if before.resent is None else tuple(sorted({*before.resent, plan.partition}))


def _was_pushed(context: PushContext, stream: StreamId) -> bool:
    """True if rows of the stream were delivered before, though its state may have been reset since."""
    if stored_position(context, stream) is not None:
        return True
    changes = context.delivery.store.history(context.delivery.connection.name, limit=NO_LIMIT)
    return any(change.stream in (stream, None) for change in changes)


def stored_position(context: PushContext, stream: StreamId) -> PushPosition | None:
    """The position of a stream as the store has it; None if it was never pushed, or was reset."""
    codec = state_codec_named(PUSH)
    for stored in context.delivery.store.states(context.delivery.connection.name):
        if stored.state.stream == stream:
            try:
                return msgspec.convert(codec.value(stored.state), PushPosition)
            except msgspec.ValidationError as error:
                remedy = f"airbyte-proto state reset {context.delivery.connection.name} {stream} sends all rows again."
                raise ConfigError(
                    "reading the state of the push", f"it is none of a push: {error}", remedy=remedy, stream=str(stream)
                ) from error
    return None


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
    if starts_over and _was_pushed(context, plan.stream):
        for batch in plan_batches(plan, target.storage, end, plan.rows):
            context.interrupts.check(FOLDING, str(plan.stream))
            files.leave(batch)
    return _part(plan, files, target, replaces=replaces)


def remember_sent(context: PushContext, delivery: Delivery, target: TableTarget | None) -> None:
    """Notes the rows of a mirror's plan that were sent and not acknowledged, before that plan is given up: they may be
    at the destination, and are to be removed there should they be gone. Those that it was to remove may be gone there,
    and are to be sent should they be back. Raises as `fold`.

    Of a version that is not activated these are all that were sent, and of one that starts over all its rows: the
    destination may show none of them.
    """
    plan, start = delivery.plan, 0 if delivery.plan.activates else delivery.acknowledged
    end = plan.rows if plan.activates and plan.starts_over else delivery.announced
    if target is None or plan.mode is not PushMode.MIRROR or end <= start:
        return
    files = _FoldFiles(context, plan, target, replaces=False)
    try:
        for batch in plan_batches(plan, target.storage, start, end):
            files.leave(batch)
    except StagingError as error:  # A plan whose files are gone can still be given up.
        context.log.write("WARN", f"rows that may be at the destination are not known any more: {error.found}")
        return
    part = _part(plan, files, target, replaces=False)
    load = Load(secrets.token_hex(16), plan.connection, context.delivery.lease.run_id, (part,), ())
    outcome = context.committer.commit(load)
    if outcome.refused:
        raise outcome.refused[plan.stream]


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
        self.keys = _keys_of(target)
        uri = run_staging_folder(target, context.delivery.lease.run_id)
        context.delivery.store.note_folders(context.delivery.lease, [uri])
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
        """Takes in rows that a plan which starts over has not sent yet. Should another one take its place, that has to
        send them again; in a mirror the destination may have them, and they are to be removed once they are gone.
        Nobody knows of removals whether they are made."""
        if not self._replaces:
            self._delete(batch.rows)
        if self._mode is PushMode.MIRROR:
            self.keep(batch.rows)

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


def _now() -> int:
    return time.time_ns() // 1000
