"""Ends the loads that earlier runs of a relay announced, once it is known how records are shaped today.

The records of a load are staged as they were to be sent when it was made. Where their stream goes in another shape by
now, one of its columns may have to be hashed or left out; where the connection has another destination by now, that one
lacks what the former one acknowledged. So such a load is given up:

- No state moves with an ordinary load, so the source sends its records again. In a mode in which they would be there
  twice, a person ends a load of which the destination may have some.
- Records that are sent again after they were rejected are still kept, and are planned anew like all others
  (`resend.py`). A load of them moves no state, so it can wait for the plan, and for a run of its stream.
"""

from collections.abc import Mapping
from typing import NoReturn

from dagster_airbyte_proto.errors import CommitUnknown, TableError
from dagster_airbyte_proto.loads.load import Load, StagedRows
from dagster_airbyte_proto.loads.program_identity import is_same_target, relay_identity
from dagster_airbyte_proto.loads.push import Delivery
from dagster_airbyte_proto.model import IDEMPOTENT, PlannedStream, StateScope, StreamId
from dagster_airbyte_proto.plurals import counted
from dagster_airbyte_proto.sync.plan.relayed_stream import fingerprints_by_mode
from dagster_airbyte_proto.sync.plan.sync_plan import ShapedStream, SyncPlan, hashes_columns, shaped_streams
from dagster_airbyte_proto.sync.relay.relay_tables import remove_staged_files
from dagster_airbyte_proto.sync.sync_context import SyncContext

_OTHERWISE = (
    "its stream goes with another key, selection, transform or hash_key now, or is not there any more, and a column of"
    " its records may have to be hashed or left out"
)
_ELSEWHERE = "its destination is another program now"


def goes_to_destination(load: Load) -> bool:
    return any(part.is_relayed for part in load.parts)


def _sends_again(load: Load) -> bool:
    return any(part.resends for part in load.parts)


def recover_loads(context: SyncContext) -> int:
    """Goes on with these loads, but for those that send rejected records again, or gives them up. Returns how many have
    ended. States may have moved after it. Raises CommitUnknown where a person has to end one."""
    announced = context.store.announced_loads(context.connection) if context.destination is not None else ()
    announced = [load for load in announced if goes_to_destination(load) and not _sends_again(load)]
    if not announced:
        return 0
    shaped = shaped_streams(context)
    for load in announced:
        found = (_fault(context, load, part, shaped) for part in load.parts)
        fault = next((each for each in found if each is not None), None)
        if fault is None:
            context.committer.recover_load(load)
        else:
            _give_up_whole(context, load, fault)
    return len(announced) + len(context.committer.recover(goes_to_destination))  # Now their folders are swept.


def _fault(context: SyncContext, load: Load, part: StagedRows, shaped: Mapping[StreamId, ShapedStream]) -> str | None:
    """The reason for which a part is not sent as it was staged."""
    if _is_elsewhere(context, part):
        return _ELSEWHERE
    logged, found = context.store.load(load.load_id), shaped.get(part.stream)
    partition = (logged.partition if logged is not None else "") or None
    if found is None or part.relayed_as not in fingerprints_by_mode(*found, partition):
        return _OTHERWISE
    return None


def _is_elsewhere(context: SyncContext, part: StagedRows) -> bool:
    destination = context.destination
    if destination is None:
        return False
    return not is_same_target(part.table_id, relay_identity(destination.connection.connector))


def _give_up_whole(context: SyncContext, load: Load, fault: str) -> None:
    doing = f"recovering load {load.load_id} of connection {load.connection}"
    is_shared = any(state.scope is not StateScope.STREAM for state in load.states)
    begun = context.engine.store.deliveries(load.connection)
    for part in load.parts:
        delivery = begun.get(part.stream)
        if delivery is None or delivery.plan.plan_id != load.load_id or delivery.plan.mode in IDEMPOTENT:
            continue
        # Under a shared state all parts come again, those too that have arrived.
        if delivery.announced and (is_shared or not delivery.is_complete):
            _raise_begun(doing, delivery, fault)
    outcome = context.committer.give_up(load, TableError(doing, fault), whole=is_shared)
    for part in load.parts:
        if part.stream in outcome.refused and context.destination is not None:
            remove_staged_files(part)
            records = counted(part.rows, "record")
            context.destination.warn(
                f"{part.stream}: {records} that an earlier run announced {_are_not(part)} sent as staged:"
                f" {fault}. The source sends them again"
            )


def _raise_begun(doing: str, delivery: Delivery, fault: str) -> NoReturn:
    plan = delivery.plan
    raise CommitUnknown(
        doing,
        f"{delivery.acknowledged:,} of {plan.rows:,} rows are acknowledged, nobody knows of {delivery.unknown:,}"
        f" whether the destination has them, and the rest is not sent as it was staged: {fault}",
        remedy=f"In mode {plan.mode} a row that is sent twice may be there twice. Sync once more with all as it was:"
        f" then the load goes on. Or look at the destination, and run `airbyte-proto loads resolve {plan.plan_id} --as"
        " landed` (all are there), or `--as lost` (none is there: the source sends all rows of the load again).",
        stream=str(plan.stream),
    )


def recover_resends(context: SyncContext, plan: SyncPlan) -> int:
    """Goes on with the loads that send rejected records again, or gives them up, and returns how many have ended. Those
    of streams that this run does not sync wait. Raises CommitUnknown where a person has to end one."""
    if context.destination is None:
        return 0
    planned = {each.id: each for each in plan.streams}
    waiting = {each.planned.id for each in plan.refused}
    ended = 0
    for load in filter(_sends_again, context.store.announced_loads(context.connection)):
        [part] = load.parts
        if part.stream not in planned and (context.request.only is not None or part.stream in waiting):
            context.destination.warn(f"{_not_sent(part)} until the stream is synced")
            continue
        is_shaped = part.stream in planned and part.relayed_as in _shapes(plan, planned[part.stream])
        if _is_elsewhere(context, part):
            _give_up(context, load, part, _ELSEWHERE)
        elif is_shaped:
            context.committer.recover_load(load)
        else:
            _give_up(context, load, part, _OTHERWISE)
        ended += 1
    return ended


def _shapes(plan: SyncPlan, planned: PlannedStream) -> frozenset[str]:
    """The fingerprints of the stream in any mode: a refresh, and a run of a partition, hash and leave out the same."""
    hash_key = plan.hash_key if hashes_columns(plan.columns[planned.id]) else ""
    return fingerprints_by_mode(planned, hash_key)


def _give_up(context: SyncContext, load: Load, part: StagedRows, fault: str) -> None:
    doing = f"recovering load {load.load_id} of connection {load.connection}"
    delivery = context.engine.store.deliveries(load.connection, part.stream).get(part.stream)
    if delivery is not None and delivery.plan.plan_id == load.load_id and delivery.undecided:
        _raise_undecided(doing, delivery, fault)
    outcome = context.committer.give_up(load, TableError(doing, fault, stream=str(part.stream)))
    if outcome.refused and context.destination is not None:
        remove_staged_files(part)
        context.destination.warn(f"{_not_sent(part)}: {fault}. What was not acknowledged is still kept")


def _not_sent(part: StagedRows) -> str:
    records = counted(part.rows, "rejected record")
    return f"{part.stream}: {records} that an earlier run was to send again {_are_not(part)} sent as announced"


def _are_not(part: StagedRows) -> str:
    return "is not" if part.rows == 1 else "are not"


def _raise_undecided(doing: str, delivery: Delivery, fault: str) -> NoReturn:
    raise CommitUnknown(
        doing,
        f"nobody knows of {delivery.undecided:,} rejected records whether the destination has them, and they are not"
        f" sent again: {fault}",
        remedy=f"Look at the destination, then run `airbyte-proto loads resolve {delivery.plan.plan_id} --as landed`"
        " (all are there), or `--as lost` (none is there: they stay among the rejected records).",
        stream=str(delivery.plan.stream),
    )
