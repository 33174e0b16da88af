"""The counters of a connection. They only grow, and outlive every lease, run and state."""

from typing import Literal

from sqlalchemy import Connection, select, update

from dagster_airbyte_proto.checkpoints.sql.schema import connections

CounterName = Literal["fence", "sync_id", "version"]


def last_number(tx: Connection, connection: str, counter: CounterName) -> int:
    """The last number that was given out; 0 before the first."""
    return int(tx.execute(select(connections.c[counter]).where(connections.c.connection == connection)).scalar_one())


def next_number(tx: Connection, connection: str, counter: CounterName) -> int:
    """Increments the counter and returns its new value. A number is never given out twice."""
    here = connections.c.connection == connection
    tx.execute(update(connections).where(here).values({counter: connections.c[counter] + 1}))
    return last_number(tx, connection, counter)
