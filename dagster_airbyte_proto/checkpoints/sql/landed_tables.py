"""SQL of the tables in which the loads of each stream landed last. The caller has begun the transaction."""

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, delete, insert, select

from dagster_airbyte_proto.checkpoints.sql.schema import landed_tables
from dagster_airbyte_proto.checkpoints.sql.states import StateKey, key_columns
from dagster_airbyte_proto.checkpoints.store import LandedTable, LoggedLoad
from dagster_airbyte_proto.model import StreamId, WriteMode


def record(tx: Connection, ended: LoggedLoad, states: Collection[StateKey], partition: str) -> None:
    """Records the tables of a load that has landed. Its moved `states` say which of its streams they cover."""
    landed = {committed.stream for committed in ended.committed}
    for part in ended.load.parts:
        if part.stream not in landed or not part.is_shown:
            continue
        key = StateKey(part.stream, partition)
        is_covered = key in states or StateKey(None, partition) in states
        values = {"table_id": part.table_id, "load_id": ended.load.load_id, "write_mode": part.write.value}
        at = {"connection": ended.load.connection, **key_columns(key)}
        forget(tx, ended.load.connection, [key])
        tx.execute(insert(landed_tables).values(**at, **values, is_covered=int(is_covered)))


def forget(tx: Connection, connection: str, keys: Collection[StateKey]) -> None:
    """Forgets the tables of streams whose state a person has changed. The whole connection's key stands for all."""
    for key in keys:
        at = {"connection": connection, **key_columns(key)}
        names = ["connection", "partition_key"] if key.stream is None else list(at)
        tx.execute(delete(landed_tables).where(*(landed_tables.c[name] == at[name] for name in names)))


def read(tx: Connection, connection: str, partition: str) -> Mapping[StreamId, LandedTable]:
    here = landed_tables.c.connection == connection, landed_tables.c.partition_key == partition
    return {
        StreamId.of(row.stream, row.namespace): LandedTable(
            row.table_id, row.load_id, WriteMode(row.write_mode), bool(row.is_covered)
        )
        for row in tx.execute(select(landed_tables).where(*here))
    }
