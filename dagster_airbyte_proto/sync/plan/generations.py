"""Finds the unfinished generations of earlier runs that this run continues.

A run continues a generation if all of these hold:

- it would otherwise begin a new generation of the same stream;
- the fingerprint is the same: the stream's plan, its columns, the config, and the connectors of its transforms;
- the last load of the generation is at most a day old;
- the source sent a state for what landed, and the branch of the table still ends with that load.

The run need not have the run id of the first attempt: after a `kill -9` nobody retries with that id. A run that reads
the stream in another way ends the generation. So does a state that is reset, set or rolled back by hand. One that
is too old is dropped by any run of the connection, also if it does not sync that stream.

A generation may be hours of reading. So only a table whose log was read ends it: where that fails, the stream fails
alone, and the generation waits for the next run.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.checkpoints.store import OpenGeneration
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import CommitUnknown, TableError
from dagster_airbyte_proto.loads.table import BRANCH_PREFIX
from dagster_airbyte_proto.model import PlannedStream, State, StateScope, StreamId
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.sync.plan.stream_plan import can_resume_generation
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.tables.writer import SupportsBranches, TableWriter
from dagster_airbyte_proto.transforms.transform_choice import described_connectors, described_transforms

_MAX_AGE = timedelta(days=1)


def branch_name(connection: str, planned: PlannedStream) -> str:
    """The branch of the table on which the generation's loads land until it is complete."""
    return f"{BRANCH_PREFIX}{connection}_generation_{planned.generation_id}"


def fingerprints(
    connection: Connection, chosen: Iterable[PlannedStream], columns: Mapping[StreamId, Columns], config_digest: str
) -> dict[StreamId, str]:
    """A hash for each resumable stream of everything that two attempts must share for their rows to form one
    generation."""
    return {
        each.id: _fingerprint(each, columns[each.id], config_digest, described_connectors(connection, each.transforms))
        for each in chosen
        if can_resume_generation(each)
    }


class ContinuedGenerations(NamedTuple):
    """The generations that a run continues, by stream, and the errors of the streams whose table cannot be read: of
    their generations nobody knows."""

    by_stream: Mapping[StreamId, OpenGeneration]
    unreadable: Mapping[StreamId, TableError]


def continued_generations(
    open_generations: Iterable[OpenGeneration],
    fingerprints: Mapping[StreamId, str],
    states: Iterable[State],
    tables: Callable[[], TableWriter],
) -> ContinuedGenerations:
    """The generations that this run continues. `states` are those that the connector gets in any case.

    Opening the tables may start a Spark session, so `tables` is called only if some generation matches otherwise.
    """
    if any(state.scope is not StateScope.STREAM for state in states):
        # A connector gets either stream states or one shared state, and a generation has a stream state.
        return ContinuedGenerations({}, {})
    matching = [
        each
        for each in open_generations
        if each.state is not None and not is_outdated(each) and fingerprints.get(each.stream) == each.fingerprint
    ]
    intact: dict[StreamId, OpenGeneration] = {}
    unreadable: dict[StreamId, TableError] = {}
    for each in matching:
        try:
            if _branch_is_intact(tables(), each):
                intact[each.stream] = each
        except (TableError, CommitUnknown) as error:
            unreadable[each.stream] = _unreadable_error(each, error)
    return ContinuedGenerations(intact, unreadable)


def is_outdated(generation: OpenGeneration) -> bool:
    """True if no run continues the generation any more, whatever it syncs."""
    return generation.changed_at <= datetime.fromtimestamp(time.time(), UTC) - _MAX_AGE


def assign_generations(
    runs: Mapping[StreamId, StreamRun],
    fingerprints: Mapping[StreamId, str],
    continued: Mapping[StreamId, OpenGeneration],
    connection: str,
) -> None:
    """Sets the branch and fingerprint of each stream's generation, and the last load and state of a continued one."""
    for stream, run in runs.items():
        run.generation.branch, run.generation.fingerprint = (
            branch_name(connection, run.planned),
            fingerprints.get(stream, ""),
        )
        if generation := continued.get(stream):
            run.generation.branch, run.generation.newest_load = generation.branch, generation.load_id
            run.state_before = run.generation.resumed_state = generation.state


def _branch_is_intact(tables: TableWriter, generation: OpenGeneration) -> bool:
    """True if the generation's branch ends with the load that its state covers. Raises TableError if nobody knows."""
    if not isinstance(tables, SupportsBranches):
        return False
    return tables.branches(generation.table).get(generation.branch) == generation.load_id


def _unreadable_error(generation: OpenGeneration, error: TableError | CommitUnknown) -> TableError:
    kept = "The rows that an interrupted full refresh has landed are kept: sync again once the table can be read."
    remedy = f"{error.remedy}\n{kept}" if error.remedy else kept
    return TableError(error.doing, error.found, remedy=remedy, stream=str(generation.stream))


def _fingerprint(planned: PlannedStream, columns: Columns, config_digest: str, connectors: str) -> str:
    fields = [(field.name, str(field.type)) for field in columns.schema]
    # Numbers and names that come from older runs are not the user's choice. Their effect on columns is in `fields`.
    plan = msgspec.to_builtins(
        msgspec.structs.replace(
            planned, generation_id=0, minimum_generation_id=0, preferred_table=None, column_names=()
        )
    )
    # Generations that began before these were there go on.
    for name in ("naming", "relay", "member_names", "is_key_configured"):
        del plan[name]
    del plan["transforms"]
    if planned.transforms:
        plan["transforms"] = described_transforms(planned.transforms)
    if connectors:
        plan["connectors"] = connectors
    return hashlib.sha256(msgspec.json.encode((plan, fields, columns.keys, config_digest))).hexdigest()[:16]
