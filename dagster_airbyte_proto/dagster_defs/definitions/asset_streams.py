"""Plans the streams of a connection from its saved catalog, as input for a translator."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.asset_keys import key_paths
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import (
    asset_error_context,
    catalog_of_named_streams,
)
from dagster_airbyte_proto.dagster_defs.definitions.translator import StreamTranslatorData, TableFormat
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.model import Catalog, PlannedStream
from dagster_airbyte_proto.sync.plan.stream_check import asset_faults
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest, planned_streams
from dagster_airbyte_proto.tables.formats import SESSION_CATALOG, find_format
from dagster_airbyte_proto.transforms.landed_columns import columns_of_asset


class TablesOfAssets(NamedTuple):
    """The tables as definitions know them. `spark_catalog` is empty for the format's own."""

    spark_catalog: str = ""
    format: TableFormat = "iceberg"
    is_partitioned: bool = False


def plan_asset_streams(
    connection: Connection, found: Catalog | None, tables: TablesOfAssets
) -> list[StreamTranslatorData]:
    """Plans the streams of a saved catalog; without one those that the connection names, without columns. Raises
    ConfigError, with the file, the stream and the nearest name, if the connection does not match its catalog."""
    if connection.push is not None:
        raise ConfigError(asset_error_context(connection), "it has a `push`", remedy="Use build_push_assets.")
    spark_catalog = tables.spark_catalog or (
        SESSION_CATALOG if find_format(tables.format).abilities.uses_session_catalog else "lake"
    )
    with _naming_the_connection(connection):
        planned = _planned(connection, found)
        unknown = {each.id for each in planned} if found is None else {*found.unreadable}
        columns = [None if each.id in unknown else columns_of_asset(each) for each in planned]
    return [
        StreamTranslatorData(connection, *each, spark_catalog, tables.is_partitioned, tables.format)
        for each in zip(planned, columns, key_paths([each.id for each in planned]), strict=True)
    ]


def check_makes_assets(connection: Connection, catalog: Catalog, make: Callable[[], object] | None) -> None:
    """Raises ConfigError if no assets can be made from this catalog: it would stop a whole code location. `make` makes
    them, with the translator of the code location."""
    if faults := asset_faults(connection, catalog):
        raise _together(connection, faults)
    try:
        if make is not None:
            make()
    except ProtoError:
        raise
    except Exception as error:  # Dagster checks each spec that a translator made, with errors of many classes.
        raise ConfigError(asset_error_context(connection), f"{type(error).__name__}: {error}") from error


def _together(connection: Connection, faults: Sequence[ConfigError]) -> ConfigError:
    if len(faults) > 1:
        found = "\n".join([f"{len(faults)} faults", *map(str, faults)])
        return ConfigError(asset_error_context(connection), found)
    [only] = faults
    return _with_connection(connection, only)


def _planned(connection: Connection, found: Catalog | None) -> Sequence[PlannedStream]:
    # Keys and cursors refer to columns. Only a catalog has those, and not of a stream whose schema cannot be read.
    if found is None:
        guessed = planned_streams(connection, catalog_of_named_streams(connection), SyncRequest())
        return [msgspec.structs.replace(each, primary_key=(), cursor=()) for each in guessed]
    return [
        msgspec.structs.replace(each, primary_key=(), cursor=()) if each.id in found.unreadable else each
        for each in planned_streams(connection, found, SyncRequest())
    ]


@contextmanager
def _naming_the_connection(connection: Connection) -> Iterator[None]:
    """Adds the connection or its file to the message of an error."""
    try:
        yield
    except ConfigError as error:
        raise _with_connection(connection, error) from error


def _with_connection(connection: Connection, error: ConfigError) -> ConfigError:
    if error.doing == asset_error_context(connection):
        return error
    context = f"{asset_error_context(connection)}: {error.doing}"
    return ConfigError(context, error.found, remedy=error.remedy, stream=error.stream)
