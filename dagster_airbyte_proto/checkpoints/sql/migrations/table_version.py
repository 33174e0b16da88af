"""The version of a database's tables, and how they come to the newest one."""

from sqlalchemy import Connection, delete, insert, inspect, select, text

from dagster_airbyte_proto.checkpoints.sql.migrations.steps import AFTER, FIRST, MIGRATIONS, TYPES
from dagster_airbyte_proto.checkpoints.sql.schema import schema_version
from dagster_airbyte_proto.errors import ConfigError

_PREFIX = "airbyte_proto_"
# Before the first release names had no prefix, and collided with Dagster's tables in the same database.
_UNPREFIXED = (
    "connections", "leases", "runs", "run_folders", "generations", "states", "state_history", "loads", "kept_configs",
    "schema_version",
)  # fmt: skip


def is_current(tx: Connection) -> bool:
    """True when no migration is due. Raises ConfigError for a database that a newer version has migrated."""
    return stored_version(tx) == len(MIGRATIONS)


def migrate(tx: Connection) -> None:
    """Migrates the database to the version of this code. The caller's transaction excludes all others."""
    _rename_unprefixed(tx)
    version = stored_version(tx)
    if version and tx.dialect.name == "postgresql":
        # Waits for writers that have looked at the version. The next ones look once all is done.
        tx.execute(text(f"LOCK TABLE {schema_version.name} IN ACCESS EXCLUSIVE MODE"))
    for step in MIGRATIONS[version:]:
        for statement in step.format(**TYPES[tx.dialect.name]).split(";"):
            tx.execute(text(statement))
        if step in AFTER:
            AFTER[step](tx)
    if version == 0:
        tx.execute(text("CREATE TABLE airbyte_proto_schema_version (version INTEGER NOT NULL PRIMARY KEY)"))
    tx.execute(delete(schema_version))
    tx.execute(insert(schema_version).values(version=len(MIGRATIONS)))


def _rename_unprefixed(tx: Connection) -> None:
    names = set(inspect(tx).get_table_names())
    if names.issuperset(_UNPREFIXED):
        for name in _UNPREFIXED:
            tx.execute(text(f"ALTER TABLE {name} RENAME TO {_PREFIX}{name}"))
        for index in ("loads_of_connection", "loads_of_run"):
            tx.execute(text(f"DROP INDEX {index}"))
        for statement in FIRST.split(";"):
            if "CREATE INDEX" in statement:
                tx.execute(text(statement))


def stored_version(tx: Connection) -> int:
    """The version of the database's tables; 0 for an empty database. Raises ConfigError for one that is too new."""
    if not inspect(tx).has_table(schema_version.name):
        return 0
    return checked_version(tx)


def checked_version(tx: Connection) -> int:
    """The version of the tables of a database that has some. Raises ConfigError for one that is too new."""
    version = tx.scalar(select(schema_version.c.version)) or 0
    if version > len(MIGRATIONS):
        raise ConfigError(
            "opening the state store",
            f"its tables have version {version}, and this version of dagster_airbyte_proto knows versions up to"
            f" {len(MIGRATIONS)}",
            remedy=f"Use a dagster_airbyte_proto that knows state store version {version}, at least as new as the one"
            " that wrote here last, and start again what runs with an older one; or name another state_url.",
        )
    return version
