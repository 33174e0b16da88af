"""The configs that connectors wrote back: the one that is used, and the last ones of each connection."""

from datetime import datetime

import msgspec
from sqlalchemy import Connection, delete, func, insert, select

from dagster_airbyte_proto.checkpoints.sql.schema import config_history, kept_configs
from dagster_airbyte_proto.checkpoints.store import ConfigChange, Lease, StoredConfig

# A connector may renew its token at every sync.
_MAX_CHANGES = 20


def stored_config(tx: Connection, connection: str) -> StoredConfig | None:
    """The config that is used; None if there is none."""
    row = tx.execute(select(kept_configs).where(kept_configs.c.connection == connection)).one_or_none()
    return None if row is None else StoredConfig(msgspec.json.decode(row.config), row.based_on)


def replace_config(tx: Connection, lease: Lease, config: StoredConfig | None, *, who: str, now: datetime) -> None:
    """Puts a config, or none, in the place of the one that is used, and notes the change."""
    here, history = lease.connection, config_history.c
    tx.execute(delete(kept_configs).where(kept_configs.c.connection == here))
    text = None if config is None else msgspec.json.encode(config.config).decode()
    based_on = "" if config is None else config.based_on
    saved = {"connection": here, "config": text, "based_on": based_on, "run_id": lease.run_id, "kept_at": now}
    if config is not None:
        tx.execute(insert(kept_configs).values(**saved))
    newest = tx.scalar(select(func.max(history.version)).where(history.connection == here)) or 0
    tx.execute(insert(config_history).values(version=newest + 1, who=who, **saved))
    tx.execute(delete(config_history).where(history.connection == here, history.version <= newest + 1 - _MAX_CHANGES))


def changes(tx: Connection, connection: str) -> list[ConfigChange]:
    """The last changes of a connection, newest first."""
    history = config_history.c
    rows = tx.execute(select(config_history).where(history.connection == connection).order_by(history.version.desc()))
    return [
        ConfigChange(
            row.version,
            None if row.config is None else msgspec.json.decode(row.config),
            row.kept_at,
            row.who,
            row.run_id,
        )
        for row in rows
    ]
