"""The streams of a connection, planned from its saved catalog: what a translator makes assets of."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import doing, named_streams, saved_catalog
from dagster_airbyte_proto.dagster_defs.definitions.translator import StreamTranslatorData, TableFormat
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, PlannedStream
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.schema.names import unique_names
from dagster_airbyte_proto.settings import IN_SESSION_CATALOG, SESSION_CATALOG
from dagster_airbyte_proto.sync.plan.stream_plan import Wanted, planned_streams

# What Dagster takes in the name of an output, which it makes of an asset's key.
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class Offered(NamedTuple):
    """`catalog` is None where none was saved: the streams are those that the connection names, without columns."""

    catalog: Catalog | None
    streams: Sequence[StreamTranslatorData]


def offered(
    connection: Connection,
    *,
    catalog: Path | None = None,
    home: Path | None = None,
    spark_catalog: str = "",
    table_format: TableFormat = "iceberg",
    is_partitioned: bool = False,
) -> Offered:
    """Raises ConfigError with the file, the stream and the nearest name where the two do not fit each other."""
    spark_catalog = spark_catalog or (SESSION_CATALOG if table_format in IN_SESSION_CATALOG else "lake")
    found = saved_catalog(connection, catalog=catalog, home=home)
    with _told_where(connection):
        planned = _planned(connection, found)
        columns = [None if found is None else table_columns(each) for each in planned]
    streams = [
        StreamTranslatorData(connection, *each, spark_catalog, is_partitioned, table_format)
        for each in zip(planned, columns, _key_paths(planned), strict=True)
    ]
    return Offered(found, streams)


def _planned(connection: Connection, found: Catalog | None) -> Sequence[PlannedStream]:
    if found is not None:
        return planned_streams(connection, found, Wanted())
    # Keys and cursors are of columns, which only a catalog has.
    guessed = planned_streams(connection, named_streams(connection), Wanted())
    return [msgspec.structs.replace(each, primary_key=(), cursor=()) for each in guessed]


@contextmanager
def _told_where(connection: Connection) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        where = f"{doing(connection)}: {error.doing}"
        raise ConfigError(where, error.found, remedy=error.remedy, stream=error.stream) from error


def _key_paths(planned: Sequence[PlannedStream]) -> list[tuple[str, ...]]:
    """A stream's namespace and name, as far as Dagster takes them; those that it would confuse get a mark."""
    paths = [tuple(_UNSAFE.sub("_", part) for part in (each.id.namespace, each.id.name) if part) for each in planned]
    wishes = [dg_name(path) for path in paths]
    names = unique_names(zip(wishes, (str(each.id) for each in planned), strict=True))
    marks = [name[len(wish) :] for name, wish in zip(names, wishes, strict=True)]
    return [(*path[:-1], path[-1] + mark) for path, mark in zip(paths, marks, strict=True)]


def dg_name(path: Sequence[str]) -> str:
    """What Dagster makes of an asset's key where it needs a name."""
    return re.sub("[-.]", "_", "__".join(path))
