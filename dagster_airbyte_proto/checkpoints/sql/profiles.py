"""SQL of stream profiles and their changes. The caller has begun the transaction and checked the fence."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection, delete, insert, select

from dagster_airbyte_proto.checkpoints.sql.schema import profiles, stream_changes
from dagster_airbyte_proto.checkpoints.sql.states import stream_columns
from dagster_airbyte_proto.checkpoints.store import NO_LIMIT, Lease, StreamChange
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.schema.evolution import ChangeKind, SchemaChange
from dagster_airbyte_proto.schema.stream_profile import StreamProfile

_PROFILE = msgspec.json.Decoder(StreamProfile)


def prune_changes(tx: Connection, connection: str, before: datetime) -> None:
    here = stream_changes.c.connection == connection
    tx.execute(delete(stream_changes).where(here, stream_changes.c.changed_at < before))


def stored_profiles(tx: Connection, connection: str) -> dict[StreamId, StreamProfile]:
    rows = tx.execute(select(profiles).where(profiles.c.connection == connection))
    return {StreamId.of(row.stream, row.namespace): _PROFILE.decode(row.body) for row in rows}


def save_profiles(tx: Connection, lease: Lease, found: Mapping[StreamId, StreamProfile], now: datetime) -> None:
    for stream, profile in found.items():
        named = {"connection": lease.connection, **stream_columns(stream)}
        tx.execute(delete(profiles).where(*(profiles.c[name] == value for name, value in named.items())))
        body = msgspec.json.encode(profile).decode()
        tx.execute(insert(profiles).values(**named, body=body, changed_at=now, run_id=lease.run_id))


def record_changes(
    tx: Connection, lease: Lease, changes: Sequence[tuple[StreamId, SchemaChange]], now: datetime
) -> None:
    rows = [
        {
            "connection": lease.connection,
            **stream_columns(stream),
            "what": change.kind.value,
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


def newest_changes(tx: Connection, connection: str, limit: int) -> list[StreamChange]:
    of_connection = select(stream_changes).where(stream_changes.c.connection == connection)
    rows = tx.execute(of_connection.order_by(stream_changes.c.number.desc()).limit(min(limit, NO_LIMIT)))
    return [
        StreamChange(
            StreamId.of(row.stream, row.namespace),
            SchemaChange(ChangeKind(row.what), row.column_name, row.was, row.became),
            row.changed_at,
            row.run_id,
        )
        for row in rows
    ]
