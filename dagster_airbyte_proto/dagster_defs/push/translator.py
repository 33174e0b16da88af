"""The translator from pushed streams to assets: one method to override."""

from dataclasses import dataclass

import dagster as dg

from dagster_airbyte_proto.connection import Connection, PushOptions
from dagster_airbyte_proto.dagster_defs.definitions.asset_keys import allowed_in_keys, key_paths
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.tables.sql_names import name_parts, qualified


@dataclass(frozen=True)
class PushTranslatorData:
    """A pushed stream for a translator.

    `key_path` is the stream's path below the connection, unique, and made of letters, digits, `_`, `-` and `.`.
    `options` are those that the connection gives the stream; their `table` is the one that it reads, if it reads one.
    """

    connection: Connection
    stream: StreamId
    options: PushOptions
    key_path: tuple[str, ...]


class PushTranslator:
    """Makes the asset of each pushed stream. Override `get_asset_spec` to change its key, group, owners or
    dependencies."""

    def get_asset_spec(self, data: PushTranslatorData) -> dg.AssetSpec:
        """Returns the asset of a stream. Change the result with `replace_attributes` and `merge_attributes`.

        It depends on the asset of the table that it reads: of `lake.shop.users` that is `shop/users`, or, where the
        definitions have none of that key, the one whose table it is. A stream that reads a query depends on nothing.
        """
        connection = data.connection
        return dg.AssetSpec(
            dg.AssetKey([connection.name, *data.key_path]),
            deps=[] if data.options.table is None else [_table_dep(data.options.table)],
            description=_description(data),
            kinds={connection.connector.protocol},
            group_name=connection.name,
        )


def table_asset(table: str) -> dg.AssetKey:
    """The asset of a table: its name without the catalog, as syncs name theirs."""
    parts = _parts(table)
    *namespace, name = parts[1:] if len(parts) > 2 else parts
    return dg.AssetKey([*map(allowed_in_keys, namespace), *key_paths([StreamId(None, name)])[0]])


def _table_dep(table: str) -> dg.AssetDep:
    """The dependency on the asset of a table. By the table's name Dagster finds a stream that a translator gave another
    key, or that has a namespace in it."""
    parts = ("lake", *_parts(table))[-3:]
    name = qualified(parts[0], TableName(*parts[1:])) if len(parts) == 3 else table
    return dg.AssetDep(table_asset(table), metadata={"dagster/table_name": name})


def _parts(table: str) -> tuple[str, ...]:
    return name_parts(table, "the asset of a pushed table", f"the table is {table!r}")


def _description(data: PushTranslatorData) -> str:
    options = data.options
    origin = f"table `{options.table}`" if options.table else "a query"
    keys = f" with the key {', '.join(options.key)}" if options.key else ""
    return (
        f"Stream `{data.stream}` of the push `{data.connection.name}`: rows of {origin}, in mode {options.mode}{keys}."
    )
