"""What streams looked like last and what changed in them, inside a transaction that someone else began and fenced."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection, delete, insert, select

from dagster_airbyte_proto.checkpoints.sql.schema import shapes, stream_changes
from dagster_airbyte_proto.checkpoints.store import Lease, StreamChange
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.schema.evolution import Change, What
from dagster_airbyte_proto.schema.shape import StreamShape

# Made here, in one thread: two that use a type for the first time at once can crash msgspec.
_SHAPE = msgspec.json.Decoder(StreamShape)


def kept(tx: Connection, connection: str) -> dict[StreamId, StreamShape]:
    rows = tx.execute(select(shapes).where(shapes.c.connection == connection))
    return {StreamId.of(row.stream, row.namespace): _SHAPE.decode(row.body) for row in rows}


def keep(tx: Connection, lease: Lease, found: Mapping[StreamId, StreamShape], now: datetime) -> None:
    for stream, shape in found.items():
        named = {"connection": lease.connection, "namespace": stream.namespace or "", "stream": stream.name}
        tx.execute(delete(shapes).where(*(shapes.c[name] == value for name, value in named.items())))
        body = msgspec.json.encode(shape).decode()
        tx.execute(insert(shapes).values(**named, body=body, changed_at=now, run_id=lease.run_id))


def note(tx: Connection, lease: Lease, changes: Sequence[tuple[StreamId, Change]], now: datetime) -> None:
    rows = [
        {
            "connection": lease.connection,
            "namespace": stream.namespace or "",
            "stream": stream.name,
            "what": change.what.value,
            "column_name": change.column,
            "was": change.before,
            "became": change.after,
            "changed_at": now,
            "run_id": lease.run_id,
        }
        for stream, change in changes
    ]
    if rows:
        tx.execute(insert(stream_changes), rows)


def newest(tx: Connection, connection: str, limit: int) -> list[StreamChange]:
    of_connection = select(stream_changes).where(stream_changes.c.connection == connection)
    rows = tx.execute(of_connection.order_by(stream_changes.c.number.desc()).limit(limit))
    return [
        StreamChange(
            StreamId.of(row.stream, row.namespace),
            Change(What(row.what), row.column_name, row.was, row.became),
            row.changed_at,
            row.run_id,
        )
        for row in rows
    ]
