"""The translator from streams to assets: one method to override."""

from dataclasses import dataclass
from typing import Literal

import dagster as dg

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.column_schema import code_version, table_schema
from dagster_airbyte_proto.errors import outdated_catalog_remedy
from dagster_airbyte_proto.model import PlannedStream, Stream, TableName
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.tables.sql_names import qualified
from dagster_airbyte_proto.transforms.landed_columns import key_fault_in_table
from dagster_airbyte_proto.transforms.transform_choice import transform_text

TableFormat = Literal["iceberg", "delta", "parquet"]
"""The format of the tables. It has to match the IO manager's Spark resource, which definitions cannot see."""


@dataclass(frozen=True)
class StreamTranslatorData:
    """A planned stream for a translator. `columns` is None if the connection was never discovered, and for a stream
    whose schema cannot be read, or whose key in the source can be none: syncs refuse it, alone.

    `key_path` is the stream's path below the connection, unique, and made of letters, digits, `_`, `-` and `.`.
    `spark_catalog` is the Spark catalog of the tables. A table that `is_partitioned` has a column for the partition.
    """

    connection: Connection
    planned: PlannedStream
    columns: Columns | None
    key_path: tuple[str, ...]
    spark_catalog: str
    is_partitioned: bool = False
    table_format: TableFormat = "iceberg"

    @property
    def stream(self) -> Stream:
        return self.planned.stream

    @property
    def table(self) -> TableName:
        return self.planned.table

    @property
    def table_name(self) -> str:
        """The table's name in SQL."""
        return qualified(self.spark_catalog, self.table)


class StreamTranslator:
    """Makes the asset of each stream. Override `get_asset_spec` to change its key, group, owners or dependencies."""

    def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
        """Returns the asset of a stream. Change the result with `replace_attributes` and `merge_attributes`."""
        connection, columns = data.connection, data.columns
        relay = data.planned.relay
        kinds: set[str] = {connection.connector.protocol}
        metadata: dict[str, object] = {}
        if relay is None or connection.to is None:
            metadata["dagster/table_name"] = data.table_name
            kinds |= {"spark", data.table_format}
        else:
            metadata["airbyte_proto/destination_stream"] = str(relay.stream)
            kinds |= {connection.to.connector.protocol}
        if data.planned.transforms:
            metadata["airbyte_proto/transforms"] = [transform_text(each) for each in data.planned.transforms]
        if columns is not None:
            metadata["dagster/column_schema"] = table_schema(
                columns, write=data.planned.write, is_partitioned=data.is_partitioned
            )
        return dg.AssetSpec(
            dg.AssetKey([connection.name, *data.key_path]),
            description=_description(data),
            kinds=kinds,
            group_name=connection.name,
            code_version=None if columns is None else code_version(connection, data.planned),
            metadata=metadata,
        )


def _description(data: StreamTranslatorData) -> str:
    connection, described = data.connection, data.stream.json_schema.get("description")
    paragraphs = [described] if isinstance(described, str) and described else []
    sentence = f"Stream `{data.stream.id}` of the connection `{connection.name}`"
    if data.columns is None:
        fault = key_fault_in_table(data.planned)
        unknown = f"Its columns are not known yet. {outdated_catalog_remedy(str(connection.origin or connection.name))}"
        refused = "" if fault is None else f"Syncs refuse it: {fault.found}. {fault.remedy}"
        paragraphs += [f"{sentence}.", refused or unknown]
    else:
        paragraphs.append(f"{sentence}, {_modes(data.planned)}.")
    return "\n\n".join(paragraphs)


def _modes(planned: PlannedStream) -> str:
    keys = ", ".join(".".join(path) for path in planned.primary_key)
    cursor = ".".join(planned.cursor)
    read = f"read as {planned.read}" + (f" by {cursor}" if cursor else "")
    return f"{read}, written as {planned.write}" + (f" with the key {keys}" if keys else "")
