"""The job `table_rollback_<connection>`: takes one table without states back to a snapshot, as `airbyte-proto table
rollback` does."""

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from dagster_airbyte_proto.dagster_defs.engines import opened_engine, table_io_manager
from dagster_airbyte_proto.dagster_defs.failures import failing_the_step
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.lease import LeaseWait
from dagster_airbyte_proto.sync.maintenance.table_rollback import roll_back_table
from dagster_airbyte_proto.tables.formats import care_of


class TableRollbackConfig(dg.Config):
    """The form of a rollback of one table whose rows no state covers."""

    table: str = Field(
        default="", description="The table as namespace.table. Empty: the only one that the connection loads."
    )
    snapshot: str = Field(
        default="",
        description="A snapshot of the table, as `airbyte-proto table history` lists them; materializations have it as"
        " `airbyte_proto/snapshot_id`.",
    )


def table_rollback_op(name: str, connector_key: str, io_manager_key: str) -> dg.OpDefinition:
    """Returns the op of the job for the connection of this name."""

    @dg.op(name=f"{name}_table_rollback", required_resource_keys={connector_key, io_manager_key})
    def table_rollback(context: dg.OpExecutionContext, config: TableRollbackConfig) -> None:
        connector = getattr(context.resources, connector_key)
        with failing_the_step():
            tables = table_io_manager(context.resources, io_manager_key, name).tables({"dagster-run": context.run_id})
            with opened_engine(connector, tables) as engine:
                chosen = chosen_tables(engine.store.loaded_tables(name), [config.table] if config.table else ())
                if len(chosen) != 1:
                    raise ConfigError(
                        "rolling a table back",
                        f"the connection has loaded {len(chosen)} tables",
                        remedy=f"Name one in `table`: {', '.join(map(str, chosen)) or 'there is none'}.",
                    )
                waiting = LeaseWait(connector.lease_wait_seconds, notify=context.log.info)
                has_moved = roll_back_table(engine, care_of(engine.tables), chosen[0], config.snapshot, waiting)
        context.log.info(f"{chosen[0]} is at snapshot {config.snapshot}" + ("" if has_moved else ", as before"))

    return table_rollback


def chosen_tables(known: Sequence[TableName], wanted: Sequence[str]) -> Sequence[TableName]:
    """Returns the tables of these names, all that are known where there is none. Raises ConfigError for others."""
    by_name = {str(each): each for each in known}
    if unknown := [each for each in wanted if each not in by_name]:
        raise ConfigError(
            "looking up tables",
            f"the connection has loaded no {' and no '.join(unknown)}",
            remedy=f"It has loaded {', '.join(by_name) or 'nothing yet'}.",
        )
    return [by_name[each] for each in wanted] or known
