"""Queries by which a person finds out what became of a load, before they resolve it."""

from collections.abc import Iterator, Mapping, Sequence

from dagster_airbyte_proto.loads.load import FileContent, Load, StagedRows
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.schema.columns import EXTRACTED_AT, META
from dagster_airbyte_proto.settings import CatalogSettings
from dagster_airbyte_proto.sync.commit.rejected_rows import LOAD_ID, NAMESPACE
from dagster_airbyte_proto.sync.push.delivered_table import NAMESPACE as PUSHES
from dagster_airbyte_proto.tables.formats import LoadQuery, SupportsLoadQueries, find_format, sql_name
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.sql_names import quoted, text_literal

_MAX_FILES = 20
_SYNCS = 5


def load_queries(load: Load, catalog: CatalogSettings) -> Mapping[StreamId, Sequence[LoadQuery]]:
    """Returns the queries for each part of a load. None for parts of no table, and for tables that tell nothing by SQL.

    The first is the surest, and the next helps where maintenance has removed what the one before looks for.
    """
    found = find_format(catalog.format)
    if not isinstance(found, SupportsLoadQueries):
        return {}
    # What a relay delivers is in no table, and has no identity of one.
    parts = [part for part in load.parts if part.table_id]
    spark = SparkSettings(catalog.warehouse, catalog.name)
    return {part.stream: tuple(_queries(load, part, found, sql_name(found, spark, part.table))) for part in parts}


def _queries(load: Load, part: StagedRows, of_format: SupportsLoadQueries, table: str) -> Iterator[LoadQuery]:
    yield of_format.query_of_log(table, load.load_id)
    paths = [file.path for file in part.files if file.content is FileContent.ROWS]
    if paths:
        yield of_format.query_of_files(table, paths[:_MAX_FILES])
    if part.table.namespace == NAMESPACE:
        sql = f"SELECT count(*) FROM {table} WHERE {LOAD_ID} = {text_literal(load.load_id)}"  # noqa: S608 - quoted
        yield LoadQuery(sql, f"{part.rows}: it landed")
    elif part.table.namespace != PUSHES:
        sync, at = f"{quoted(META)}.sync_id", quoted(EXTRACTED_AT)
        yield LoadQuery(
            f"SELECT {sync}, min({at}), max({at}), count(*) FROM {table}"  # noqa: S608 - quoted
            f" GROUP BY 1 ORDER BY 1 DESC LIMIT {_SYNCS}",
            f"the rows by sync, newest first: are {part.rows:,} more there than its other loads have?",
        )
