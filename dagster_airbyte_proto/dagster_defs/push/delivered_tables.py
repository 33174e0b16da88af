"""The tables that remember what was delivered, as assets: each is downstream of the stream that a push sends."""

from typing import Any

import dagster as dg

from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import definition_of
from dagster_airbyte_proto.model import BY_KEY, StreamId
from dagster_airbyte_proto.sync.push.delivered_table import delivered_table_name
from dagster_airbyte_proto.sync.push_report import PushedStreamReport


def build_push_tables(pushes: dg.AssetsDefinition) -> list[dg.AssetSpec]:
    """Returns the assets of the tables that remember what these pushes have delivered, and which rows were rejected.

    They stand beside the pushes in the definitions. Each is downstream of its stream, and a run of the push records a
    materialization of it if the pushes were made with `records_tables`. The key is the name of the table, so the IO
    manager gives it to an asset that takes it as an input; the column `_status` of a row says `delivered` or
    `rejected`, with `_reason` and `_row`. Streams with `changes: cursor` or `all` have none.
    """
    definition = definition_of(pushes, pushed=True)
    options = definition.connection.push or {}
    return [
        dg.AssetSpec(
            _table_key(definition.connection.name, stream),
            deps=[key],
            description=f"What the push of `{stream}` has delivered, by key, and the rows that were rejected.",
            group_name=pushes.group_names_by_key[key],
            kinds={"spark"},
        ).with_io_manager_key(definition.io_manager_key)
        for key, stream in definition.streams.items()
        if options[str(stream)].changes_by in BY_KEY
    ]


def record_table(
    context: dg.AssetExecutionContext, key: dg.AssetKey, connection: str, stream: StreamId, pushed: PushedStreamReport
) -> None:
    """Records a materialization of a stream's table, if it has one."""
    table = _table_key(connection, stream)
    if pushed.table is None:
        return
    metadata: dict[str, Any] = {
        "dagster/table_name": pushed.table,
        "airbyte_proto/pushed_stream": dg.MetadataValue.asset(key),
        "airbyte_proto/acknowledged": pushed.acknowledged,
        "airbyte_proto/rejected": pushed.rejected,
    }
    context.log_event(dg.AssetMaterialization(table, metadata=metadata))


def _table_key(connection: str, stream: StreamId) -> dg.AssetKey:
    return dg.AssetKey(list(delivered_table_name(connection, stream)))
