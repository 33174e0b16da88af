"""Ends the loads that earlier runs announced to send rejected records again, once today's plan of their streams is
known.

Other announced loads are recovered before anything is planned. In one of these the records of weeks may be staged as
they were then: where their stream goes in another shape by now, one of its columns may have to be hashed or left out.
So such a load is given up. Its records are still kept, and are planned anew like all others (`resend.py`).
"""

from typing import NoReturn

from dagster_airbyte_proto.errors import CommitUnknown, TableError
from dagster_airbyte_proto.loads.load import Load, StagedRows
from dagster_airbyte_proto.model import PlannedStream
from dagster_airbyte_proto.sync.plan.relayed_stream import fingerprints_by_mode
from dagster_airbyte_proto.sync.plan.sync_plan import SyncPlan, hashes_columns
from dagster_airbyte_proto.sync.relay.relay_tables import remove_staged_files
from dagster_airbyte_proto.sync.sync_context import SyncContext

_OTHERWISE = (
    "its stream goes with another key, selection, transform or hash_key now, or is not there any more, and a column of"
    " its records may have to be hashed or left out"
)


def sends_again(load: Load) -> bool:
    """True if the load sends rejected records again."""
    return any(part.resends for part in load.parts)


def recover_resends(context: SyncContext, plan: SyncPlan) -> int:
    """Goes on with these loads, or gives them up, and returns how many have ended. Those of streams that this run does
    not sync wait. Raises CommitUnknown where a person has to end one."""
    if context.destination is None:
        return 0
    planned = {each.id: each for each in plan.streams}
    waiting = {each.planned.id for each in plan.refused}
    ended = 0
    for load in filter(sends_again, context.store.announced_loads(context.connection)):
        [part] = load.parts
        if part.stream not in planned and (context.request.only is not None or part.stream in waiting):
            context.destination.warn(f"{_not_sent(part)} until the stream is synced")
            continue
        if part.stream in planned and part.relayed_as in _shapes(plan, planned[part.stream]):
            context.committer.recover_load(load)
        else:
            _give_up(context, load, part)
        ended += 1
    return ended


def _shapes(plan: SyncPlan, planned: PlannedStream) -> frozenset[str]:
    """The fingerprints of the stream in any mode: a refresh, and a run of a partition, hash and leave out the same."""
    hash_key = plan.hash_key if hashes_columns(plan.columns[planned.id]) else ""
    return fingerprints_by_mode(planned, hash_key)


def _give_up(context: SyncContext, load: Load, part: StagedRows) -> None:
    doing = f"recovering load {load.load_id} of connection {load.connection}"
    delivery = context.engine.store.deliveries(load.connection).get(part.stream)
    if delivery is not None and delivery.plan.plan_id == load.load_id and delivery.undecided:
        _raise_undecided(doing, load, part, delivery.undecided)
    outcome = context.committer.give_up(load, TableError(doing, _OTHERWISE, stream=str(part.stream)))
    if outcome.refused and context.destination is not None:
        remove_staged_files(part)
        context.destination.warn(f"{_not_sent(part)}: {_OTHERWISE}. What was not acknowledged is still kept")


def _not_sent(part: StagedRows) -> str:
    records = "1 rejected record" if part.rows == 1 else f"{part.rows:,} rejected records"
    is_not = "is not" if part.rows == 1 else "are not"
    return f"{part.stream}: {records} that an earlier run was to send again {is_not} sent as announced"


def _raise_undecided(doing: str, load: Load, part: StagedRows, rows: int) -> NoReturn:
    raise CommitUnknown(
        doing,
        f"nobody knows of {rows:,} rejected records whether the destination has them, and they are not sent again:"
        f" {_OTHERWISE}",
        remedy=f"Look at the destination, then run `airbyte-proto loads resolve {load.load_id} --as landed` (all are"
        " there), or `--as lost` (none is there: they stay among the rejected records).",
        stream=str(part.stream),
    )
