"""Generations that an earlier run left unfinished, and which of them this one goes on with.

A run is the next attempt of such a generation if it would begin a new one of the same stream, of the same likeness (all
that is planned for it, its columns, the config), within a day of the last load, and the source said where it stood. It
need not have the run id of the first: after a kill -9 nobody retries by that. A run that reads the stream in another
way ends the generation, and so does a state that is reset, set or rolled back by hand.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from dagster_airbyte_proto.checkpoints.store import OpenGeneration
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.table import ASIDE_PREFIX
from dagster_airbyte_proto.model import PlannedStream, State, StateScope, StreamId
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.sync.plan.stream_plan import is_resumable
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.tables.writer import KeepsAside, TableWriter

_ATTEMPTS_WITHIN = timedelta(days=1)


def branch_of(connection: str, planned: PlannedStream) -> str:
    """Where loads of the stream's generation land until it is complete."""
    return f"{ASIDE_PREFIX}{connection}_generation_{planned.generation_id}"


def likenesses_of(
    chosen: Iterable[PlannedStream], columns: Mapping[StreamId, Columns], config_digest: str
) -> dict[StreamId, str]:
    """Of each stream that can be gone on with what has to be the same for rows of two attempts to be of one
    generation."""
    return {each.id: _likeness(each, columns[each.id], config_digest) for each in chosen if is_resumable(each)}


def continued(
    begun: Iterable[OpenGeneration],
    likenesses: Mapping[StreamId, str],
    states: Iterable[State],
    tables: Callable[[], TableWriter],
) -> dict[StreamId, OpenGeneration]:
    """What is gone on with, by stream, beside the `states` that the connector is handed. Asks for the tables only where
    there is something to find in them."""
    if any(state.scope is not StateScope.STREAM for state in states):
        return {}  # A connector is handed states of one kind.
    oldest = datetime.fromtimestamp(time.time(), UTC) - _ATTEMPTS_WITHIN
    fit = [
        each
        for each in begun
        if each.state is not None and each.changed_at > oldest and likenesses.get(each.stream) == each.likeness
    ]
    return {each.stream: each for each in fit if _stands(tables(), each)}


def note(
    runs: Mapping[StreamId, StreamRun],
    likenesses: Mapping[StreamId, str],
    continued: Mapping[StreamId, OpenGeneration],
    connection: str,
) -> None:
    """Tells each stream where its generation lies, and how far it has come."""
    for stream, run in runs.items():
        run.branch, run.likeness = branch_of(connection, run.planned), likenesses.get(stream, "")
        if begun := continued.get(stream):
            run.branch, run.newest_aside, run.state_before = begun.branch, begun.load_id, begun.state


def _stands(tables: TableWriter, generation: OpenGeneration) -> bool:
    """Whether its branch ends with the load that its state covers."""
    if not isinstance(tables, KeepsAside):
        return False
    try:
        return tables.aside(generation.table).get(generation.branch) == generation.load_id
    except TableError:
        return False


def _likeness(planned: PlannedStream, columns: Columns, config_digest: str) -> str:
    fields = [(field.name, str(field.type)) for field in columns.schema]
    # What is remembered of older runs is no choice, and what came of it is among the fields.
    plan = msgspec.structs.replace(planned, generation_id=0, minimum_generation_id=0, wish=None, names=())
    return hashlib.sha256(msgspec.json.encode((plan, fields, columns.keys, config_digest))).hexdigest()[:16]
