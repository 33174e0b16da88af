"""Sends the rejected records of a relay again, before its source is read.

- The kept records of a stream are staged and announced as a load, which moves no state. From then on it is a load as
  any other: a run that dies goes on in it, and a person ends it where nobody knows what its destination has.
- The announcement takes the records over in the name of the load. Each leaves with the transaction that acknowledges
  it, and one that is rejected again stays with its new reason. So what a load that is given up has not delivered is
  kept.
- Where the destination only counts what it rejects, all that it may mean are kept. Without a key such a record may be
  there: it is sent again only with `--retry-unknown`.
- A record that the source sends again anyway is not sent, nor is one of which is not known that it is still to be sent
  as it was: each such is counted in a warning, and stays.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import uuid4

import msgspec

from dagster_airbyte_proto.checkpoints.deliveries import PERHAPS_TAKEN, DeliveryStore, KeptRejection
from dagster_airbyte_proto.checkpoints.logs import loads_newest_first
from dagster_airbyte_proto.checkpoints.store import NO_LIMIT
from dagster_airbyte_proto.errors import (
    Cancelled,
    ConfigError,
    InternalError,
    ProtoError,
    StateConflict,
    StateUnavailable,
)
from dagster_airbyte_proto.loads.load import Load, StagedRows
from dagster_airbyte_proto.loads.program_identity import is_same_target
from dagster_airbyte_proto.loads.push import Delivery
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.plurals import counted
from dagster_airbyte_proto.schema.columns import RecordForm
from dagster_airbyte_proto.staging.files.staging_folder import run_staging_folder, staging_id
from dagster_airbyte_proto.sync.commit.committer import LoadOutcome
from dagster_airbyte_proto.sync.plan.relayed_stream import fingerprints_of
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest, replaces_table
from dagster_airbyte_proto.sync.plan.sync_plan import SyncPlan, hashes_columns
from dagster_airbyte_proto.sync.relay.kept_records import KeptRecords, as_columns, as_texts, staged
from dagster_airbyte_proto.sync.relay.state_moves import moves_of_stream, reason_to_wait
from dagster_airbyte_proto.sync.report import ResentRecords, StreamReport, status_after
from dagster_airbyte_proto.sync.sync_context import SyncContext

_TOO_LONG = "they are too long: only their reasons are kept"
_OF_SOURCE = "the source rejected them: they were not to be sent"
_NO_JSON = "JSON has no form for a value of theirs"
_MISFIT = "a value or field of theirs does not fit the columns that the stream has now"
_OLDER = "they are of an older generation, and what the source sends of the newer one takes their place"
_MAY_BE_THERE = (
    "the destination may have taken them when they were sent again; `--retry-unknown` sends them all the same"
)
_ELSEWHERE = "another destination rejected them"
_SHAPED_OTHERWISE = (
    "they were sent with another key, write mode, selection or transform than the stream has now, or another hash_key,"
    " or of a partition"
)
_SHAPED_BETWEEN = (
    "a later load of their stream went with another key, write mode, selection, transform or hash_key, or of a"
    " partition, and it may have had newer records of their keys"
)
_NOT_NOTED = "an older version of this program kept them, and did not note how they were to be sent"
_FORGOTTEN = "their load is in the history no more"


class Resent(NamedTuple):
    """The records of one stream that were sent again, and the error that stopped them."""

    records: ResentRecords
    error: ProtoError | None = None

    def in_report(self, report: StreamReport, mask: Mask) -> StreamReport:
        """Returns the report of the stream with these records. It has failed if they have."""
        found = msgspec.structs.replace(report, resent=self.records)
        if self.error is None or report.error is not None:
            return found
        status, text = status_after(self.error), mask.text(str(self.error))
        return msgspec.structs.replace(found, status=status, error=text, retryable=self.error.retryable)


def check_retries(request: SyncRequest, name: str, *, is_relay: bool) -> None:
    """Raises ConfigError for a request to send rejected records again that makes no sense."""
    if not request.retries_rejected:
        return
    doing = f"sending the rejected records of connection {name} again"
    if not is_relay:
        raise ConfigError(doing, "it has no `to`", remedy=f"Of a push: airbyte-proto push {name} --retry-rejected.")
    if request.starts_over:
        found = "a refresh or a partition is read from its beginning, and its rejected records come again with it"
        raise ConfigError(doing, found, remedy="Leave out one of the two.")


def resend_rejections(context: SyncContext, plan: SyncPlan) -> Mapping[StreamId, Resent]:
    """Sends the kept records of the plan's streams again. Raises CommitUnknown where nobody knows what arrived."""
    if not context.request.retries_rejected or context.destination is None:
        return {}
    planned = {each.id: each for each in plan.streams}
    store = context.engine.store
    counts = store.kept_counts(context.connection)
    _warn_of_strangers(context, plan, counts)
    # One stream at a time: there is a limit to what is kept of each.
    return {
        stream: _resent(context, plan, planned[stream], store.kept_rejections(context.connection, stream))
        for stream in counts
        if stream in planned and not context.is_cancelled()
    }


def _warn_of_strangers(context: SyncContext, plan: SyncPlan, counts: Mapping[StreamId, int]) -> None:
    known = {*(each.id for each in plan.streams), *(each.planned.id for each in plan.refused)}
    for stream, count in counts.items():
        if context.request.only is None and stream not in known:
            _warn(context, stream, Counter({"the connection has no such stream now": count}))


def _warn(context: SyncContext, stream: StreamId, left: Mapping[str, int]) -> None:
    for why, count in left.items():
        if context.destination is not None:
            text = f"{counted(count, 'rejected record')} {'is' if count == 1 else 'are'}"
            context.destination.warn(f"{stream}: {text} not sent again: {why}")


def _resent(context: SyncContext, plan: SyncPlan, planned: PlannedStream, kept: Sequence[KeptRejection]) -> Resent:
    """Sends the records of one stream again. An error of it leaves the other streams alone."""
    form = plan.columns[planned.id].record_form
    if form is None:
        raise InternalError(f"sending records of stream {planned.id} again", "it is no stream of a relay")
    left: Counter[str] = Counter()
    if not context.request.retries_unknown and (perhaps_there := sum(each.may_be_there for each in kept)):
        left[_MAY_BE_THERE] = perhaps_there
        kept = [each for each in kept if not each.may_be_there]
    sendable = _sendable(context, plan, planned, kept, left)
    records = _records(context, plan, sendable, form)
    if records.misfits:
        left[_MISFIT] += len(records.misfits)
        sendable = [each for place, each in enumerate(sendable) if place not in records.misfits]
        records = _records(context, plan, sendable, form)
    _warn(context, planned.id, left)
    if not sendable:
        return Resent(ResentRecords())
    try:
        load = _load(context, plan, planned, sendable, records)
    except (StateConflict, StateUnavailable, Cancelled):
        raise
    except ProtoError as error:  # Nothing is announced yet: they are kept as they were.
        return Resent(ResentRecords(), error)
    context.log.write("NOTE", f"{planned.id}: {len(sendable):,} rejected records are sent again")
    outcome = context.committer.commit(load)
    return _result(context.engine.store, load, outcome)


def _sendable(
    context: SyncContext, plan: SyncPlan, planned: PlannedStream, kept: Sequence[KeptRejection], left: Counter[str]
) -> list[KeptRejection]:
    """Returns the records that can be sent again, and counts the others by reason."""
    witness = context.engine.tables.witness(planned.table, context.connection)
    identity = witness.table_id if witness else ""
    changes = context.store.history(context.connection, limit=NO_LIMIT, partition="")
    moves = moves_of_stream(changes, planned.id, context.protocol.states)
    parts = {load_id: _part(context, planned, load_id) for load_id in {each.load_id for each in kept}}
    hash_key = plan.hash_key if hashes_columns(plan.columns[planned.id]) else ""
    shapes = fingerprints_of(planned, hash_key)
    known = {load_id for load_id, part in parts.items() if part is not None}
    outdated = _loads_before_another_shape(context, planned, shapes, known)
    found = []
    for each in kept:
        part = parts[each.load_id]
        fault = _FORGOTTEN if part is None else _fault_of_part(planned, part, identity, shapes)
        if fault is None and each.load_id in outdated:
            fault = _SHAPED_BETWEEN
        if fault is None and part is not None:
            fault = reason_to_wait(moves, each, was_resent=bool(part.resends))
        if each.is_of_source:
            fault = _OF_SOURCE
        if fault is None and not each.sendable:
            fault = _TOO_LONG if each.record is None else _NO_JSON
        if fault is None:
            found.append(each)
        else:
            left[fault] += 1
    return found


def _part(context: SyncContext, planned: PlannedStream, load_id: str) -> StagedRows | None:
    logged = context.store.load(load_id)
    return next((each for each in logged.load.parts if each.stream == planned.id), None) if logged else None


def _fault_of_part(planned: PlannedStream, part: StagedRows, identity: str, shapes: Collection[str]) -> str | None:
    """The reason for which no record of a part can be sent again, if there is one."""
    if replaces_table(planned) or part.generation_id != planned.generation_id:
        return _OLDER
    if not is_same_target(part.table_id, identity):
        return _ELSEWHERE
    if not part.relayed_as:
        return _NOT_NOTED
    return None if part.relayed_as in shapes else _SHAPED_OTHERWISE


def _loads_before_another_shape(
    context: SyncContext, planned: PlannedStream, shapes: Collection[str], loads: Collection[str]
) -> Collection[str]:
    """Those of the loads after which records of the stream went in another shape than today's. Only a load of today's
    mode and key forgets the kept records of whose keys it has newer ones."""
    left = set(loads)
    for logged in loads_newest_first(context.store, context.connection):
        left.discard(logged.load.load_id)
        parts = [each for each in logged.load.parts if each.stream == planned.id and each.rows]
        # Also one that was given up: the destination may have had some of its rows.
        if not left or any(each.relayed_as not in shapes for each in parts):
            break
    return left


def _shape(planned: PlannedStream) -> str:
    return planned.relay.fingerprint if planned.relay else ""


def _records(context: SyncContext, plan: SyncPlan, sendable: Sequence[KeptRejection], form: RecordForm) -> KeptRecords:
    texts = [each.record or "" for each in sendable]
    if context.destination is None or not context.destination.protocol.takes_batches or not sendable:
        return as_texts(texts, form)
    return as_columns(texts, form, plan.columns[sendable[0].stream])


def _load(
    context: SyncContext, plan: SyncPlan, planned: PlannedStream, sent: Sequence[KeptRejection], records: KeptRecords
) -> Load:
    """Stages the records. The folder is noted before it is used, so that the next run sweeps it after a crash."""
    run_id = context.lease.run_id
    load_id = f"{run_id}-{uuid4().hex[:12]}"
    target = context.engine.tables.prepare(plan.specs[planned.id])
    folder = run_staging_folder(target, staging_id(run_id, context.lease.fence))
    context.store.note_folders(context.lease, [folder])
    file = staged(records.rows, folder, load_id, str(planned.id))
    rows: dict[str, list[int]] = {}
    for each in sent:
        rows.setdefault(each.load_id, []).append(each.row.row)
    part = StagedRows(
        planned.id,
        planned.table,
        planned.write,
        planned.generation_id,
        files=(file,),
        emitted=len(sent),
        rows=len(sent),
        connection=context.connection,
        table_id=target.table_id,
        log_position=target.log_position,
        relayed_as=_shape(planned),
        resends={load: tuple(numbers) for load, numbers in rows.items()},
    )
    return Load(load_id, context.connection, run_id, (part,), ())


def _result(store: DeliveryStore, load: Load, outcome: LoadOutcome) -> Resent:
    [part] = load.parts
    if outcome.committed:
        rejections = outcome.committed[0].rejected
        rejected = sum(rejections.values())
        return Resent(ResentRecords(part.rows, part.rows - rejected, rejected, rejections=rejections))
    delivery = store.deliveries(load.connection, part.stream).get(part.stream)
    error = outcome.refused[part.stream]
    if delivery is None or delivery.plan.plan_id != load.load_id:
        return Resent(ResentRecords(), error)
    named = store.rejected_rows(delivery.plan)
    again = Counter(each.reason for each in named)
    again[PERHAPS_TAKEN] = _perhaps_taken(store, delivery, {each.row for each in named})
    rejected, announced = again.total(), max(delivery.announced, delivery.acknowledged)
    proved = delivery.acknowledged - rejected
    return Resent(ResentRecords(announced, proved, rejected, announced - delivery.acknowledged, +again), error)


def _perhaps_taken(store: DeliveryStore, delivery: Delivery, named: Collection[int]) -> int:
    """The records that are kept still though they are acknowledged: the destination counts that it rejected some."""
    kept = store.kept_rejections(delivery.plan.connection, delivery.plan.stream)
    rows = {each.row.row for each in kept if each.load_id == delivery.plan.plan_id}
    return sum(row < delivery.acknowledged for row in rows - set(named))
