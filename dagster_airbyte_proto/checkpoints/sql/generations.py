"""Generations that lie aside and are not complete, inside a transaction that someone else began and fenced.

One is open from the announcement of its first load until its branch is published, or dropped. While it has a state it
can be gone on with; without one it is dead, and waits for whoever drops its branch.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from dagster_airbyte_proto.checkpoints.sql.schema import open_generations
from dagster_airbyte_proto.checkpoints.sql.states import StateKey, key_columns
from dagster_airbyte_proto.checkpoints.store import OpenGeneration
from dagster_airbyte_proto.loads.load import Load, StagedRows
from dagster_airbyte_proto.model import State, StateScope, StreamId, TableName

_STATELESS = {"scope": None, "message": None}


def announced(tx: Connection, load: Load, now: datetime) -> None:
    """Writes down what the load is to begin."""
    for part in load.parts:
        if part.aside is not None and part.aside.after is None:
            key = _key(part.stream)
            tx.execute(delete(open_generations).where(_is_at(load.connection, part)))
            begun = {"branch": part.aside.branch, "likeness": part.aside.likeness, "load_id": "", "changed_at": now}
            table = {"table_namespace": part.table.namespace, "table_name": part.table.name}
            of = {"connection": load.connection, "generation": part.generation_id, **key}
            tx.execute(insert(open_generations).values(**of, **begun, **table, **_STATELESS))


def landed(tx: Connection, load: Load, streams: Collection[StreamId], now: datetime) -> None:
    """The load is in, but for the parts of streams other than these."""
    for part in load.parts:
        if part.aside is not None and part.stream in streams:
            here = _is_at(load.connection, part)
            if part.aside.publishes:
                tx.execute(delete(open_generations).where(here))
            else:
                # A state that stood covers less than what has landed now.
                values = {"load_id": load.load_id, "changed_at": now, **_STATELESS}
                tx.execute(update(open_generations).where(here).values(values))
    refused = {part.stream for part in load.parts}.difference(streams)
    for point in load.resume_points:
        stream = point.state.stream
        if stream is not None and stream not in refused:
            here = and_(_is_of(load.connection, stream), open_generations.c.generation == point.generation_id)
            state = {"scope": str(point.state.scope), "message": point.state.message}
            # Before anything has landed there is nothing to go on with.
            has_rows = open_generations.c.load_id != ""
            tx.execute(update(open_generations).where(here, has_rows).values(**state, changed_at=now))


def abandon(tx: Connection, connection: str, streams: Iterable[StreamId] | None = None) -> None:
    """None of these streams, or of all, goes on with what it has open."""
    for stream in (None,) if streams is None else streams:
        here = open_generations.c.connection == connection if stream is None else _is_of(connection, stream)
        tx.execute(update(open_generations).where(here).values(_STATELESS))


def forget(tx: Connection, dropped: OpenGeneration, connection: str) -> None:
    here = and_(_is_of(connection, dropped.stream), open_generations.c.generation == dropped.generation_id)
    tx.execute(delete(open_generations).where(here))


def standing(tx: Connection, connection: str) -> Sequence[OpenGeneration]:
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


def _key(stream: StreamId) -> dict[str, str]:
    key = key_columns(StateKey(stream))
    del key["partition_key"]
    return key


def _is_of(connection: str, stream: StreamId) -> ColumnElement[bool]:
    named = (open_generations.c[name] == value for name, value in _key(stream).items())
    return and_(open_generations.c.connection == connection, *named)


def _is_at(connection: str, part: StagedRows) -> ColumnElement[bool]:
    return and_(_is_of(connection, part.stream), open_generations.c.generation == part.generation_id)
