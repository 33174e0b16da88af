"""Plans the streams of a connection from its saved catalog, as input for a translator."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.asset_keys import key_paths
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import (
    asset_error_context,
    catalog_of_named_streams,
    saved_catalog,
)
from dagster_airbyte_proto.dagster_defs.definitions.translator import StreamTranslatorData, TableFormat
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, PlannedStream
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest, planned_streams
from dagster_airbyte_proto.tables.formats import SESSION_CATALOG, find_format
from dagster_airbyte_proto.transforms.landed_columns import columns_in_tables


class AssetStreams(NamedTuple):
    """The planned streams. If no catalog was saved, `catalog` is None and the streams are those that the connection
    names, without columns."""

    catalog: Catalog | None
    streams: Sequence[StreamTranslatorData]


def plan_asset_streams(
    connection: Connection,
    *,
    catalog: Path | None = None,
    home: Path | None = None,
    spark_catalog: str = "",
    table_format: TableFormat = "iceberg",
    is_partitioned: bool = False,
) -> AssetStreams:
    """Plans the streams. Raises ConfigError, with the file, the stream and the nearest name, if the connection does not
    match its catalog."""
    spark_catalog = spark_catalog or (
        SESSION_CATALOG if find_format(table_format).abilities.uses_session_catalog else "lake"
    )
    found = saved_catalog(connection, catalog=catalog, home=home)
    with _naming_the_connection(connection):
        planned = _planned(connection, found)
        columns = [None if found is None else columns_in_tables(each) for each in planned]
    streams = [
        StreamTranslatorData(connection, *each, spark_catalog, is_partitioned, table_format)
        for each in zip(planned, columns, key_paths([each.id for each in planned]), strict=True)
    ]
    return AssetStreams(found, streams)


def check_makes_assets(connection: Connection, catalog: Catalog) -> None:
    """Raises ConfigError if no assets could be made from this catalog: it would stop a whole code location."""
    with _naming_the_connection(connection):
        for each in _planned(connection, catalog):
            columns_in_tables(each)


def _planned(connection: Connection, found: Catalog | None) -> Sequence[PlannedStream]:
    if found is not None:
        return planned_streams(connection, found, SyncRequest())
    # Keys and cursors refer to columns, which only a catalog has.
    guessed = planned_streams(connection, catalog_of_named_streams(connection), SyncRequest())
    return [msgspec.structs.replace(each, primary_key=(), cursor=()) for each in guessed]


@contextmanager
def _naming_the_connection(connection: Connection) -> Iterator[None]:
    """Adds the connection or its file to the message of an error."""
    try:
        yield
    except ConfigError as error:
        context = f"{asset_error_context(connection)}: {error.doing}"
        raise ConfigError(context, error.found, remedy=error.remedy, stream=error.stream) from error
