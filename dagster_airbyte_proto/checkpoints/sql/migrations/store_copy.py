"""Copies a state store into another database, as from the SQLite file of a laptop to the PostgreSQL of a deployment.

All of it comes along but the leases: states, loads, counters. So the tables know the loads that the copy knows, and a
run with the copy goes on where the last one ended. Whoever goes on with the old store is refused by the tables, as soon
as a run with the copy has landed a load.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, Table, func, insert, select, text

from dagster_airbyte_proto.checkpoints.sql.database import Database
from dagster_airbyte_proto.checkpoints.sql.schema import connections, leases, metadata, schema_version
from dagster_airbyte_proto.errors import ConfigError

_LEFT = frozenset((schema_version, leases))
_EMPTY = "Name an empty database, or an empty schema of one."
_ROWS = 50
"""So many rows are in memory at once: a load, a report or a state may have megabytes."""


def copy_store(source: Database, target: Database) -> Sequence[str]:
    """Copies everything into a database that has no connections yet, in one transaction. Returns the connections.

    Raises ConfigError while a run is at work: what it does from now on would be in the old store alone.
    """
    doing = f"copying the state store {source} to {target}"
    if str(source) == str(target):
        raise ConfigError(doing, "they are the same", remedy=_EMPTY)
    with source.write() as old, target.write() as new:  # No run changes the old one meanwhile.
        if old.dialect.name == "postgresql":
            old.execute(text(f"LOCK TABLE {connections.name} IN EXCLUSIVE MODE"))
        now = source.now(old)
        if busy := old.scalars(select(leases.c.connection).where(leases.c.expires_at > now).distinct()).all():
            raise ConfigError(
                doing, f"a run of {', '.join(sorted(busy))} is at work", remedy="Wait until it has ended, or stop it."
            )
        if taken := new.scalars(select(connections.c.connection)).all():
            raise ConfigError(
                doing,
                f"the other one has connections already: {', '.join(sorted(taken))}",
                remedy=_EMPTY,
            )
        for table in metadata.sorted_tables:
            if table not in _LEFT:
                _copy_rows(table, old, new)
        return sorted(new.scalars(select(connections.c.connection)))


def _copy_rows(table: Table, old: Connection, new: Connection) -> None:
    rows = old.execute(select(table).execution_options(yield_per=_ROWS)).mappings()
    for some in rows.partitions():
        new.execute(insert(table), [dict(row) for row in some])
    if new.dialect.name == "postgresql" and [*table.primary_key.columns.keys()] == ["number"]:
        # What the database numbers goes on behind the rows that came with numbers.
        behind = select(func.coalesce(func.max(table.c.number) + 1, 1)).scalar_subquery()
        new.execute(select(func.setval(func.pg_get_serial_sequence(table.name, "number"), behind, False)))
