"""The configs that connectors wrote back: the one that is used, and the last ones of each connection."""

from datetime import datetime
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, delete, func, insert, select

from dagster_airbyte_proto.checkpoints.sql.schema import config_history, kept_configs
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.checkpoints.stored_config import ConfigChange, ConfigOwner, StoredConfig

# A connector may renew its token at every sync.
_MAX_CHANGES = 20


class ChangedBy(NamedTuple):
    """The one who changes a config, and the time."""

    who: str
    now: datetime


def stored_config(tx: Connection, connection: str, owner: ConfigOwner) -> StoredConfig | None:
    """The config that is used; None if there is none."""
    kept = kept_configs.c
    row = tx.execute(select(kept_configs).where(kept.connection == connection, kept.owner == owner)).one_or_none()
    return None if row is None else StoredConfig(msgspec.json.decode(row.config), row.based_on)


def replace_config(
    tx: Connection, lease: Lease, owner: ConfigOwner, config: StoredConfig | None, by: ChangedBy
) -> None:
    """Puts a config, or none, in the place of the one that is used, and notes the change."""
    here, kept, history = lease.connection, kept_configs.c, config_history.c
    tx.execute(delete(kept_configs).where(kept.connection == here, kept.owner == owner))
    text = None if config is None else msgspec.json.encode(config.config).decode()
    based_on = "" if config is None else config.based_on
    saved: dict[str, str | datetime | None] = {"connection": here, "owner": owner, "config": text}
    saved |= {"based_on": based_on, "run_id": lease.run_id, "kept_at": by.now}
    if config is not None:
        tx.execute(insert(kept_configs).values(**saved))
    newest = tx.scalar(select(func.max(history.version)).where(history.connection == here)) or 0
    tx.execute(insert(config_history).values(version=newest + 1, who=by.who, **saved))
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
            ConfigOwner(row.owner),
        )
        for row in rows
    ]
