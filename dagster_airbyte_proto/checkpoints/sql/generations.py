"""SQL of the open generations: those that lie on a branch and are not complete.

A generation is open from the announcement of its first load until its branch is published or dropped. While it has a
state, a run can resume it. Without a state it is dead: the next run drops its branch.

The caller has begun the transaction and checked the fence.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from dagster_airbyte_proto.checkpoints.sql.schema import open_generations
from dagster_airbyte_proto.checkpoints.sql.states import stream_columns
from dagster_airbyte_proto.checkpoints.store import OpenGeneration
from dagster_airbyte_proto.loads.load import Load, StagedRows
from dagster_airbyte_proto.model import State, StateScope, StreamId, TableName

_STATELESS = {"scope": None, "message": None}


def record_announced(tx: Connection, load: Load, now: datetime) -> None:
    """Records the generations that the load begins."""
    for part in load.parts:
        if part.branch_position is not None and part.branch_position.after is None:
            key = stream_columns(part.stream)
            tx.execute(delete(open_generations).where(_is_at(load.connection, part)))
            first = {
                "branch": part.branch_position.branch,
                "likeness": part.branch_position.fingerprint,
                "load_id": "",
                "changed_at": now,
            }
            table = {"table_namespace": part.table.namespace, "table_name": part.table.name}
            at = {"connection": load.connection, "generation": part.generation_id, **key}
            tx.execute(insert(open_generations).values(**at, **first, **table, **_STATELESS))


def record_landed(tx: Connection, load: Load, streams: Collection[StreamId], now: datetime) -> None:
    """Records that the load has landed, for these of its streams. The tables of the others refused their parts."""
    for part in load.parts:
        if part.branch_position is not None and part.stream in streams:
            here = _is_at(load.connection, part)
            if part.branch_position.publishes:
                tx.execute(delete(open_generations).where(here))
            else:
                # The stored state covers less than what has landed by now, so the generation cannot be resumed from it.
                values = {"load_id": load.load_id, "changed_at": now, **_STATELESS}
                tx.execute(update(open_generations).where(here).values(values))
    refused = {part.stream for part in load.parts}.difference(streams)
    for point in load.resume_points:
        stream = point.state.stream
        if stream is not None and stream not in refused:
            here = and_(_is_of(load.connection, stream), open_generations.c.generation == point.generation_id)
            state = {"scope": str(point.state.scope), "message": point.state.message}
            # A generation without a landed load has nothing to resume.
            has_rows = open_generations.c.load_id != ""
            tx.execute(update(open_generations).where(here, has_rows).values(**state, changed_at=now))


def end_resumable(tx: Connection, connection: str, streams: Iterable[StreamId] | None = None) -> None:
    """Removes the states of the open generations of these streams, or of all: no run can resume them any more."""
    for stream in (None,) if streams is None else streams:
        here = open_generations.c.connection == connection if stream is None else _is_of(connection, stream)
        tx.execute(update(open_generations).where(here).values(_STATELESS))


def delete_generation(tx: Connection, dropped: OpenGeneration, connection: str) -> None:
    here = and_(_is_of(connection, dropped.stream), open_generations.c.generation == dropped.generation_id)
    tx.execute(delete(open_generations).where(here))


def all_open(tx: Connection, connection: str) -> Sequence[OpenGeneration]:
    query = select(open_generations).where(open_generations.c.connection == connection)
    found = []
    for row in tx.execute(query.order_by(open_generations.c.stream, open_generations.c.generation)):
        stream = StreamId.of(row.stream, row.namespace)
        state = State(StateScope(row.scope), bytes(row.message), stream) if row.scope else None
        table = TableName(row.table_namespace, row.table_name)
        found.append(
            OpenGeneration(stream, row.generation, table, row.branch, row.likeness, row.load_id, state, row.changed_at)
        )
    return found


def _is_of(connection: str, stream: StreamId) -> ColumnElement[bool]:
    named = (open_generations.c[name] == value for name, value in stream_columns(stream).items())
    return and_(open_generations.c.connection == connection, *named)


def _is_at(connection: str, part: StagedRows) -> ColumnElement[bool]:
    return and_(_is_of(connection, part.stream), open_generations.c.generation == part.generation_id)
