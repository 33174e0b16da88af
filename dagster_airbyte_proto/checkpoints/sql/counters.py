"""The counters of a connection. They only grow, and outlive every lease, run and state."""

from typing import Literal

from sqlalchemy import Connection, select, update

from dagster_airbyte_proto.checkpoints.sql.schema import connections

Counter = Literal["fence", "sync_id", "version"]


def count(tx: Connection, connection: str, counter: Counter) -> int:
    """The last number that was given."""
    return int(tx.execute(select(connections.c[counter]).where(connections.c.connection == connection)).scalar_one())


def count_up(tx: Connection, connection: str, counter: Counter) -> int:
    """The next number. It is never given again."""
    here = connections.c.connection == connection
    tx.execute(update(connections).where(here).values({counter: connections.c[counter] + 1}))
    return count(tx, connection, counter)
